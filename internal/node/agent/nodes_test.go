package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
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

// TestFeaturesOfAnEarlierRuntimeAreRemoved checks that a node has the features that its runtime reports, also if it reports
// fewer than before, or none.
func TestFeaturesOfAnEarlierRuntimeAreRemoved(t *testing.T) {
	for name, test := range map[string]struct{ before, now *corev1.NodeFeatures }{
		"none":       {&corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)}, nil},
		"not any":    {&corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)}, &corev1.NodeFeatures{SupplementalGroupsPolicy: new(false)}},
		"first ones": {nil, &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n"},
				Status:     corev1.NodeStatus{Features: test.before, VolumesInUse: []corev1.UniqueVolumeName{"of another writer"}},
			})
			a, err := New(Config{
				Client: client, Runtime: simulated.New(clock.RealClock{}), Nodes: []Node{{Name: "n", Features: test.now}}, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.register(t.Context(), a.nodes["n"]); err != nil {
				t.Fatal(err)
			}
			node, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.now, node.Status.Features); diff != "" || len(node.Status.VolumesInUse) != 1 || !isReady(node) {
				t.Errorf("features %s, status %+v", diff, node.Status)
			}
		})
	}
}

// flapping is a runtime that fails and works in turn, with each question.
type flapping struct {
	*simulated.Runtime

	asked int
}

// Healthy returns an error each time that it is called an odd number of times.
func (f *flapping) Healthy() error {
	f.asked++
	if f.asked%2 == 1 {
		return errors.New("container runtime is down")
	}
	return nil
}

// TestReportsTellOneHealth checks that a report of a node, the next report that is due and the hold of its pods follow from
// one reading of the runtime's health.
func TestReportsTellOneHealth(t *testing.T) {
	client, r := fake.NewClientset(), &flapping{Runtime: simulated.New(clock.RealClock{})}
	a, err := New(Config{Client: client, Runtime: r, Nodes: []Node{{Name: "n"}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	n, err := a.register(t.Context(), a.nodes["n"])
	if err != nil {
		t.Fatal(err)
	}
	for asked := 1; asked <= 4; asked++ {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, isHeld := a.held["n"]
		if down := asked%2 == 1; r.asked != asked || isReady(node) == down || n.down != down || isHeld != down {
			t.Errorf("report %d: asked %d times, ready: %t, down: %t, held: %t", asked, r.asked, isReady(node), n.down, isHeld)
		}
		if err := a.beat(t.Context(), &n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNodeThatIsRefusedDelaysNoOther: the other nodes send their heartbeats while one cannot be registered, and it is
// registered when it may be.
func TestNodeThatIsRefusedDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var isAllowed atomic.Bool
		client.PrependReactor("create", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			node := action.(clienttesting.CreateAction).GetObject().(*corev1.Node)
			if node.Name == "refused" && !isAllowed.Load() {
				return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), node.Name, errors.New("a policy"))
			}
			return false, nil, nil
		})
		complete := make(chan struct{})
		a, err := New(Config{
			Client: client, Runtime: simulated.New(clock.RealClock{}), Logger: slog.New(slog.DiscardHandler),
			Nodes: []Node{{Name: "good"}, {Name: "refused"}}, Registered: func() { close(complete) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		a.events.Start()
		running.Go(func() { a.events.Run(ctx) })
		running.Go(func() { a.keepNodes(ctx) })
		time.Sleep(10 * a.lease)
		lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "good", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(lease.Spec.RenewTime.Time); age > a.lease/renewals {
			t.Errorf("the Lease of the good node was renewed %s ago", age)
		}
		select {
		case <-complete:
			t.Error("all nodes count as registered")
		default:
		}
		isAllowed.Store(true)
		<-complete
		if _, err := client.CoreV1().Nodes().Get(ctx, "refused", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		stop()
		a.queue.ShutDown()
		running.Wait()
	})
}
