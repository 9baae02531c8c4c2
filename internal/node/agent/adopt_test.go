package agent

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/simulated"
	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// TestAddressesOfRunningPodsAreKept checks that a pod which starts after a restart of the agent does not get the address of a
// pod that runs.
func TestAddressesOfRunningPodsAreKept(t *testing.T) {
	runtime := simulated.New(clock.RealClock{})
	create := func(name string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "new"}, Spec: corev1.PodSpec{NodeName: "n"}}
		runtime.Do(t.Context(), pod, lifecycle.CreateSandbox{}, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		return pod
	}
	first := runtime.Observe(create("first").UID).Sandbox.IPs
	now := metav1.Now()
	running := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "running", UID: "running"}, Spec: corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &now, PodIP: first[0], PodIPs: []corev1.PodIP{{IP: first[0]}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}},
		},
	}
	runtime = simulated.New(clock.RealClock{}) // of the next process
	a, err := New(Config{Client: fake.NewClientset(), Runtime: runtime, Nodes: []Node{{Name: "n"}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.pods.GetStore().Add(running); err != nil {
		t.Fatal(err)
	}
	a.adoptStarted()
	if second := runtime.Observe(create("second").UID).Sandbox.IPs; second[0] == first[0] {
		t.Errorf("the new pod has the address %s of the one that runs", first[0])
	}
}
