package system

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestSchedulerKeepsApart checks that two of three pods with anti-affinity, in namespaces with the same
// label, run on two nodes. The third waits with a reason, and runs when there is room.
func TestSchedulerKeepsApart(t *testing.T) {
	o := ephemeral(t)
	o.Nodes.Nodes, o.Scheduler = 2, true
	term := corev1.PodAffinityTerm{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"app"},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}},
	}
	runWith(t, o, func(ctx context.Context, client kubernetes.Interface) error {
		names := []string{"one", "two", "three"}
		for _, name := range names {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "a"}}}
			if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
				return err
			}
			pod := boundPod("web", "")
			pod.Labels = map[string]string{"app": "web"}
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
			if _, err := client.CoreV1().Pods(name).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		const reason = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
		var waits, runs string
		err := becomesTrue(ctx, "two run, and one waits", func(ctx context.Context) (bool, error) {
			on := map[string]string{}
			waits = ""
			for _, name := range names {
				pod, err := client.CoreV1().Pods(name).Get(ctx, "web", metav1.GetOptions{})
				if err != nil {
					return false, err
				}
				saysWhy := func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled && c.Message == reason }
				switch {
				case pod.Status.Phase == corev1.PodRunning:
					on[pod.Spec.NodeName], runs = name, name
				case slices.ContainsFunc(pod.Status.Conditions, saysWhy):
					waits = name
				}
			}
			return len(on) == 2 && waits != "", nil
		})
		if err != nil {
			return err
		}
		err = becomesTrue(ctx, "an Event about it", func(ctx context.Context) (bool, error) {
			events, err := client.CoreV1().Events(waits).List(ctx, metav1.ListOptions{})
			return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == "FailedScheduling" && e.Message == reason }), err
		})
		if err != nil {
			return err
		}
		if err := client.CoreV1().Pods(runs).Delete(ctx, "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			return err
		}
		return becomesTrue(ctx, fmt.Sprintf("the pod of %s runs", waits), func(ctx context.Context) (bool, error) {
			pod, err := client.CoreV1().Pods(waits).Get(ctx, "web", metav1.GetOptions{})
			return err == nil && pod.Status.Phase == corev1.PodRunning, err
		})
	})
}
