package system

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// becomesTrue waits until a condition holds. It returns an error because it is called on goroutines that
// must not end the test.
func becomesTrue(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, eventually.Patience, true, holds); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// runWith runs a control plane while use runs.
func runWith(t *testing.T, o Options, use func(ctx context.Context, client kubernetes.Interface) error) {
	t.Helper()
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		client, err := kubernetes.NewForConfig(p.Config)
		if err != nil {
			return err
		}
		return use(ctx, client)
	})
}

func runWithPlane(t *testing.T, o Options, use func(ctx context.Context, p Plane) error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	used := errors.New("not used")
	err := Run(ctx, o, func(p Plane) {
		go func() {
			defer stop()
			used = use(ctx, p)
		}()
	})
	if err := errors.Join(err, used); err != nil {
		t.Fatal(err)
	}
}

func boundPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

// TestPodsKeepRunningAcrossARestart checks that nodes are registered; pods on them run, keep running across a restart of the
// process, and end gracefully when they are deleted.
func TestPodsKeepRunningAcrossARestart(t *testing.T) {
	o := options(t.TempDir())
	o.Nodes.Nodes = 2
	var before *corev1.Pod
	running := func(client kubernetes.Interface, pod **corev1.Pod) func(context.Context) (bool, error) {
		return func(ctx context.Context) (done bool, err error) {
			*pod, err = client.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{})
			return err == nil && (*pod).Status.Phase == corev1.PodRunning, err
		}
	}
	runWith(t, o, func(ctx context.Context, client kubernetes.Interface) error {
		err := becomesTrue(ctx, "the lease of a node", func(ctx context.Context) (bool, error) {
			lease, err := client.CoordinationV1().Leases("kube-node-lease").Get(ctx, "node-2", metav1.GetOptions{})
			return err == nil && lease.OwnerReferences[0].Kind == "Node", unlessMissing(err)
		})
		if err != nil {
			return err
		}
		if _, err := client.CoreV1().Pods("default").Create(ctx, boundPod("web", "node-2"), metav1.CreateOptions{}); err != nil {
			return err
		}
		return becomesTrue(ctx, "the pod runs", running(client, &before))
	})
	runWith(t, o, func(ctx context.Context, client kubernetes.Interface) error {
		// A new running pod shows that the agent has reconciled the others.
		if _, err := client.CoreV1().Pods("default").Create(ctx, boundPod("later", "node-1"), metav1.CreateOptions{}); err != nil {
			return err
		}
		err := becomesTrue(ctx, "another pod runs", func(ctx context.Context) (bool, error) {
			pod, err := client.CoreV1().Pods("default").Get(ctx, "later", metav1.GetOptions{})
			return err == nil && pod.Status.Phase == corev1.PodRunning, err
		})
		if err != nil {
			return err
		}
		var after *corev1.Pod
		if err := becomesTrue(ctx, "the pod runs on", running(client, &after)); err != nil {
			return err
		}
		if after.ResourceVersion != before.ResourceVersion {
			return fmt.Errorf("after the restart the pod is\n%+v\nand was\n%+v", after.Status, before.Status)
		}
		if err := client.CoreV1().Pods("default").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
			return err
		}
		return becomesTrue(ctx, "the pod is gone", func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{})
			return apierrors.IsNotFound(err), unlessMissing(err)
		})
	})
}

// logsOf reads the log of a pod with one container.
func logsOf(ctx context.Context, client kubernetes.Interface, pod string, o *corev1.PodLogOptions) (string, error) {
	text, err := client.CoreV1().Pods("default").GetLogs(pod, o).DoRaw(ctx)
	return string(text), err
}

// TestOutputOfSimulatedContainersIsServed checks that the API serves the output of simulated containers, and rejects invalid requests with
// the reason.
func TestOutputOfSimulatedContainersIsServed(t *testing.T) {
	o := ephemeral(t)
	o.Nodes.Nodes = 1
	runWith(t, o, func(ctx context.Context, client kubernetes.Interface) error {
		pod, waiting := boundPod("web", "node-1"), boundPod("waiting", "node-1")
		pod.Annotations = map[string]string{"simulated.coppice.dev/exit-after": "0s", "simulated.coppice.dev/exit-after-times": "1"}
		waiting.Annotations = map[string]string{"simulated.coppice.dev/fail-pull": "true"}
		for _, p := range []*corev1.Pod{pod, waiting} {
			if _, err := client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		err := becomesTrue(ctx, "the second instance runs", func(ctx context.Context) (bool, error) {
			pod, err := client.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{})
			return err == nil && len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].Ready && pod.Status.ContainerStatuses[0].RestartCount == 1, err
		})
		if err != nil {
			return err
		}
		now, err := logsOf(ctx, client, "web", &corev1.PodLogOptions{})
		if err != nil || now != "simulated: container c started, attempt 1\n" {
			return fmt.Errorf("log %q, %w", now, err)
		}
		before, err := logsOf(ctx, client, "web", &corev1.PodLogOptions{Previous: true, TailLines: new(int64(1))})
		if err != nil || before != "simulated: exit code 0\n" {
			return fmt.Errorf("log of the instance before %q, %w", before, err)
		}
		for pod, question := range map[string]corev1.PodLogOptions{"web": {Container: "other"}, "waiting": {}} {
			if text, err := logsOf(ctx, client, pod, &question); !apierrors.IsBadRequest(err) {
				return fmt.Errorf("logs of %s are %q, %w", pod, text, err)
			}
		}
		return nil
	})
}

// TestPodThatFitsIsBoundAndRuns checks that a pod that fits is bound to a node and runs. For one that does not fit, its
// condition and an Event give the reason, until there is capacity.
func TestPodThatFitsIsBoundAndRuns(t *testing.T) {
	o := ephemeral(t)
	o.Nodes.Nodes, o.Scheduler = 2, true
	runWith(t, o, func(ctx context.Context, client kubernetes.Interface) error {
		pods := client.CoreV1().Pods("default")
		small, large := boundPod("small", ""), boundPod("large", "")
		large.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100")}
		for _, pod := range []*corev1.Pod{small, large} {
			if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		err := becomesTrue(ctx, "the small pod runs", func(ctx context.Context) (bool, error) {
			pod, err := pods.Get(ctx, "small", metav1.GetOptions{})
			return err == nil && pod.Status.Phase == corev1.PodRunning, err
		})
		if err != nil {
			return err
		}
		const reason = "0/2 nodes are available: 2 Insufficient cpu."
		err = becomesTrue(ctx, "the large pod waits", func(ctx context.Context) (bool, error) {
			events, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=large"})
			return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == "FailedScheduling" && e.Message == reason }), err
		})
		if err != nil {
			return err
		}
		pod, err := pods.Get(ctx, "large", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c := pod.Status.Conditions[0]; c.Type != corev1.PodScheduled || c.Reason != corev1.PodReasonUnschedulable || c.Message != reason {
			return fmt.Errorf("condition %+v", c)
		}
		patch := `{"status":{"allocatable":{"cpu":"200"}}}`
		if _, err := client.CoreV1().Nodes().Patch(ctx, "node-2", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
		return becomesTrue(ctx, "the large pod runs where there is room now", func(ctx context.Context) (bool, error) {
			pod, err := pods.Get(ctx, "large", metav1.GetOptions{})
			return err == nil && pod.Status.Phase == corev1.PodRunning && pod.Spec.NodeName == "node-2", err
		})
	})
}

// unlessMissing lets a poll continue while an object does not exist.
func unlessMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
