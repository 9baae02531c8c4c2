package agent_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// withPort returns a pod on node n with a host port.
func withPort(name string, number int32) *corev1.Pod {
	p := pod(name, "n", nil)
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: number, Protocol: corev1.ProtocolTCP}}
	return p
}

func (h *host) add(p *corev1.Pod) {
	h.t.Helper()
	if _, err := h.CoreV1().Pods("ns").Create(h.t.Context(), p, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

// rejects waits until a pod has failed for a reason.
func (h *host) rejects(name, reason string) {
	h.t.Helper()
	eventually.Agrees(h.t, func() string {
		p, err := h.CoreV1().Pods("ns").Get(h.t.Context(), name, metav1.GetOptions{})
		if err != nil || p.Status.Phase != corev1.PodFailed || p.Status.Reason != reason {
			return fmt.Sprintf("%s: %v, %+v", name, err, p.Status)
		}
		return ""
	})
}

// TestPodsThatDoNotFitAreRejected checks that a pod that does not fit on its node fails, and that resources are free
// again when their pods have ended or are gone.
func TestPodsThatDoNotFitAreRejected(t *testing.T) {
	h := newHost(t)
	h.run()
	h.add(withPort("first", 80))
	h.runs("first")
	h.add(withPort("second", 80))
	h.rejects("second", "NodePorts")
	h.add(withPort("beside", 81))
	h.runs("beside")
	h.mark("first")
	eventually.Holds(t, "first is gone", func() bool { return h.isGone("first") })
	h.add(withPort("third", 80))
	h.runs("third")
}

func (h *host) isGone(name string) bool {
	_, err := h.CoreV1().Pods("ns").Get(h.t.Context(), name, metav1.GetOptions{})
	return err != nil
}

// TestPodsAreComparedWithTheNodeAsItIs checks that labels and resources count that the node got after it was observed: this
// watch shows none of them.
func TestPodsAreComparedWithTheNodeAsItIs(t *testing.T) {
	h := newHost(t)
	h.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil })
	h.run()
	eventually.Holds(t, "the node is registered", func() bool {
		_, err := h.CoreV1().Nodes().Patch(t.Context(), "n", types.MergePatchType, []byte(`{"metadata":{"labels":{"disk":"fast"}},"status":{"allocatable":{"cpu":"200"}}}`), metav1.PatchOptions{})
		return err == nil
	})
	large := pod("large", "n", nil)
	large.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100")}
	h.add(large)
	for name, disk := range map[string]string{"fast": "fast", "slow": "slow"} {
		p := pod(name, "n", nil)
		p.Spec.NodeSelector = map[string]string{"disk": disk}
		h.add(p)
	}
	h.runs("large")
	h.runs("fast")
	h.rejects("slow", "NodeAffinity")
}

// TestPodsThatRunAreNotRejected checks that a pod that an earlier agent has started keeps running, although it would be
// rejected now, and that its usage counts before a new pod is admitted.
func TestPodsThatRunAreNotRejected(t *testing.T) {
	now := metav1.Now()
	there := withPort("there", 80)
	there.Status.Phase, there.Status.StartTime = corev1.PodRunning, &now
	there.Spec.NodeSelector = map[string]string{"disk": "fast"}
	objects := []*corev1.Pod{withPort("a", 80), there, withPort("z", 80)}
	h := newHost(t)
	for _, p := range objects {
		h.add(p)
	}
	h.run()
	h.rejects("a", "NodePorts")
	h.rejects("z", "NodePorts")
	eventually.Holds(t, "there is ready", func() bool {
		p, err := h.CoreV1().Pods("ns").Get(t.Context(), "there", metav1.GetOptions{})
		return err == nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready
	})
}

// TestEventsOfAPod checks that the steps of a pod on its node are recorded as Events of that node.
func TestEventsOfAPod(t *testing.T) {
	h := newHost(t)
	h.run()
	h.create("p", nil)
	h.runs("p")
	h.mark("p")
	h.add(pod("twin", "n", map[string]string{"simulated.coppice.dev/fail-pull": "true"}))
	want := map[string]bool{"Created c": true, "Started c": true, "Killing c": true, "Failed c": true}
	eventually.Agrees(t, func() string {
		events, err := h.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, e := range events.Items {
			if e.Source.Host == "n" && e.Source.Component == "kubelet" {
				got[e.Reason+" "+strings.TrimSuffix(strings.TrimPrefix(e.InvolvedObject.FieldPath, "spec.containers{"), "}")] = true
			}
		}
		for event := range want {
			if !got[event] {
				return fmt.Sprintf("%s is missing: %v", event, got)
			}
		}
		return ""
	})
}
