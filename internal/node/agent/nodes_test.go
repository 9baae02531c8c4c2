package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/simulated"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestReadinessOfNodesIsTold checks that an Event records when a node becomes ready: when it is registered, and when it
// comes back.
func TestReadinessOfNodesIsTold(t *testing.T) {
	client := fake.NewClientset()
	names := []string{"new", "known", "lost", "last"}
	for _, name := range names[1:3] {
		status := corev1.ConditionTrue
		if name == "lost" {
			status = corev1.ConditionUnknown
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	config := Config{Client: client, Runtime: simulated.New(clock.RealClock{}), Logger: slog.New(slog.DiscardHandler)}
	for _, name := range names {
		config.Nodes = append(config.Nodes, Node{Name: name})
	}
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	a.events.Start()
	running.Go(func() { a.events.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	for _, n := range config.Nodes {
		if _, err := a.register(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	eventually.Holds(t, "the last Event", func() bool {
		all, err := client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		told = nil
		for _, e := range all.Items {
			told = append(told, e.InvolvedObject.Name+" "+e.Reason+": "+e.Message)
		}
		return slices.ContainsFunc(told, func(text string) bool { return strings.HasPrefix(text, "last ") })
	})
	slices.Sort(told)
	want := []string{
		"last NodeReady: Node last status is now: NodeReady", "lost NodeReady: Node lost status is now: NodeReady", "new NodeReady: Node new status is now: NodeReady",
	}
	if !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}
