package agent_test

import (
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/kubelet"
	"github.com/coppice-dev/coppice/internal/node/agent"
	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/simulated"
	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// TestStreamsToSimulatedPods checks that a stream to a simulated pod is refused with the reason, and that the agent
// does not serve streams to pods of other nodes.
func TestStreamsToSimulatedPods(t *testing.T) {
	a, err := agent.New(agent.Config{
		Client: fake.NewClientset(), Runtime: simulated.New(clock.RealClock{}), Nodes: []agent.Node{{Name: "n"}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{NodeName: "n"}}
	for _, kind := range kubeletapi.StreamKinds() {
		to, err := a.Stream(t.Context(), pod, kubeletapi.StreamRequest{Kind: kind, Container: "c"})
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "pod web is on node n, of which nothing can be reached: it is simulated") {
			t.Errorf("%s: %v, %v", kind, to, err)
		}
	}
	pod.Spec.NodeName = "other"
	if _, err := a.Stream(t.Context(), pod, kubeletapi.StreamRequest{Kind: kubeletapi.Exec}); !kubelet.IsUnknownNode(err) {
		t.Errorf("a pod on another node: %v", err)
	}
}
