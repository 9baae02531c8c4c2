package system

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestPartsObserveEachOthersChanges checks that the parts of the process observe each other's changes. A new node loses its taint,
// so that pods are placed there; its agent is reached through the API; the address of a service has an
// object; and the parts are listed as components while they run.
func TestPartsObserveEachOthersChanges(t *testing.T) {
	o := ephemeral(t)
	o.Nodes.Nodes, o.Scheduler, o.Workloads = 1, true, InProcess
	runWith(t, o, func(ctx context.Context, client kubernetes.Interface) error {
		err := becomesTrue(ctx, "the node is ready for pods", func(ctx context.Context) (bool, error) {
			node, err := client.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{})
			return err == nil && len(node.Spec.Taints) == 0, unlessMissing(err)
		})
		if err != nil {
			return err
		}
		err = becomesTrue(ctx, "a pod runs there", func(ctx context.Context) (bool, error) {
			if _, err := client.CoreV1().Pods("default").Create(ctx, boundPod("web", ""), metav1.CreateOptions{}); err != nil {
				pod, err := client.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{})
				return err == nil && pod.Status.Phase == corev1.PodRunning, unlessMissing(err) // refused until the service account exists
			}
			return false, nil
		})
		if err != nil {
			return err
		}
		return errors.Join(reachesAgent(ctx, client), hasComponents(ctx, client), becomesTrue(ctx, "an address has an object", func(ctx context.Context) (bool, error) {
			address, err := client.NetworkingV1().IPAddresses().Get(ctx, "10.96.0.1", metav1.GetOptions{})
			return err == nil && address.Spec.ParentRef.Name == "kubernetes", unlessMissing(err)
		}))
	})
}

// reachesAgent returns an error unless nodes/proxy reaches the agent of the node with the pod web.
func reachesAgent(ctx context.Context, client kubernetes.Interface) error {
	for path, want := range map[string]string{"healthz": "ok", "pods": `"items":[{"metadata":{"name":"web"`, "containerLogs/default/web/c": ""} {
		for _, node := range []string{"node-1", "node-1:10250", "https:node-1:10250"} {
			text, err := client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix(path).DoRaw(ctx)
			if err != nil || !strings.Contains(string(text), want) {
				return fmt.Errorf("%s of the agent of %s: %q, %w", path, node, text, err)
			}
		}
	}
	if text, err := client.CoreV1().RESTClient().Get().Resource("nodes").Name("node-1").SubResource("proxy").Suffix("metrics").DoRaw(ctx); err == nil {
		return fmt.Errorf("the agent has metrics: %q", text)
	}
	return nil
}

func hasComponents(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.CoreV1().ComponentStatuses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name+" "+string(c.Conditions[0].Status))
	}
	if got := strings.Join(names, ", "); got != "controller-manager True, etcd-0 True, scheduler True" {
		return fmt.Errorf("components: %s", got)
	}
	return nil
}
