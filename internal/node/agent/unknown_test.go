package agent

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/simulated"
	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// blind is a runtime that cannot describe its pods at first.
type blind struct {
	*simulated.Runtime

	unknown   bool
	forgotten []types.UID
}

// Observe implements Runtime.
func (b *blind) Observe(types.UID) lifecycle.Observed { return lifecycle.Observed{Unknown: b.unknown} }

// Forget implements Runtime.
func (b *blind) Forget(uid types.UID) { b.forgotten = append(b.forgotten, uid) }

// TestUnknownPodStays checks that the agent neither removes a pod from the API nor forgets it while the runtime cannot
// describe it: its containers may be alive.
func TestUnknownPodStays(t *testing.T) {
	now := metav1.Now()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u-1", DeletionTimestamp: &now, DeletionGracePeriodSeconds: new(int64(0))},
		Spec:       corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodFailed},
	}
	client, runtime := fake.NewClientset(pod), &blind{Runtime: simulated.New(clock.RealClock{}), unknown: true}
	a, err := New(Config{Client: client, Runtime: runtime, Nodes: []Node{{Name: "n"}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.pods.GetStore().Add(pod); err != nil {
		t.Fatal(err)
	}
	reconcile := func() (deletions int) {
		t.Helper()
		for _, uid := range []types.UID{pod.UID, "gone"} {
			if err := a.reconcile(t.Context(), uid); err != nil {
				t.Fatal(err)
			}
		}
		for _, action := range client.Actions() {
			if action.GetVerb() == "delete" {
				deletions++
			}
		}
		return deletions
	}
	if n := reconcile(); n != 0 || len(runtime.forgotten) != 0 {
		t.Errorf("unknown: %d deletions, forgotten %v", n, runtime.forgotten)
	}
	runtime.unknown = false
	if n := reconcile(); n != 1 || len(runtime.forgotten) != 1 || runtime.forgotten[0] != "gone" {
		t.Errorf("known: %d deletions, forgotten %v", n, runtime.forgotten)
	}
}

// describedLater is a runtime that describes a pod only when it is asked again.
type describedLater struct {
	blind

	asked int
}

// Observe implements Runtime.
func (d *describedLater) Observe(types.UID) lifecycle.Observed {
	d.asked++
	if d.asked == 1 {
		return lifecycle.Observed{Unknown: true}
	}
	return lifecycle.Observed{Sandbox: lifecycle.Sandbox{ID: "s", Ready: true}}
}

// TestPodDescribedMeanwhileStays checks that the agent does not forget a pod, and with it the files of its containers, that
// the runtime begins to describe while the agent decides.
func TestPodDescribedMeanwhileStays(t *testing.T) {
	runtime := &describedLater{blind: blind{Runtime: simulated.New(clock.RealClock{})}}
	a, err := New(Config{Client: fake.NewClientset(), Runtime: runtime, Nodes: []Node{{Name: "n"}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.reconcile(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if len(runtime.forgotten) != 0 {
		t.Errorf("forgotten %v", runtime.forgotten)
	}
	if runtime.asked == 0 {
		t.Error("the agent has not asked the runtime")
	}
}
