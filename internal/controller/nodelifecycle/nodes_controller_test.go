package nodelifecycle

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/controller"
)

// lifecycle is a running controller, with nodes a and b, and a pod on each that leaves 300 s after a taint.
type lifecycle struct {
	*testing.T
	client *fake.Clientset
}

func withLifecycle(t *testing.T, f func(l lifecycle)) {
	synctest.Test(t, func(t *testing.T) {
		l := lifecycle{t, fake.NewClientset()}
		for _, name := range []string{"a", "b"} {
			node := aNode(corev1.ConditionTrue)
			node.Name = name
			must(t, l.client.Tracker().Add(node))
			must(t, l.client.Tracker().Add(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}))
			must(t, l.client.Tracker().Add(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec:       corev1.PodSpec{NodeName: name, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(300))}}},
			}))
		}
		shared, err := controller.NewContext(l.client, clock.RealClock{}, slog.New(slog.DiscardHandler))
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- shared.Run(ctx, New(shared, grace)) }()
		synctest.Wait()
		f(l)
		cancel()
		must(t, <-ended)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pass lets time pass, in which the given nodes send heartbeats and report that they are ready.
func (l lifecycle) pass(long time.Duration, alive ...string) {
	l.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(10 * time.Second) {
		for _, name := range alive {
			renewed := metav1.NowMicro()
			_, err := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Update(l.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
			}, metav1.UpdateOptions{})
			must(l.T, err)
			if node := l.node(name); readiness(node) != corev1.ConditionTrue {
				l.report(node)
			}
		}
	}
	synctest.Wait()
}

// report reports that a node is ready.
func (l lifecycle) report(node *corev1.Node) {
	l.Helper()
	node.Status.Conditions = aNode(corev1.ConditionTrue).Status.Conditions
	_, err := l.client.CoreV1().Nodes().UpdateStatus(l.Context(), node, metav1.UpdateOptions{})
	must(l.T, err)
}

func (l lifecycle) node(name string) *corev1.Node {
	l.Helper()
	node, err := l.client.CoreV1().Nodes().Get(l.Context(), name, metav1.GetOptions{})
	must(l.T, err)
	return node
}

// evicting reports whether a node has a taint that evicts pods.
func (l lifecycle) evicting(name string) bool {
	l.Helper()
	return slices.ContainsFunc(l.node(name).Spec.Taints, func(taint corev1.Taint) bool { return taint.Effect == corev1.TaintEffectNoExecute })
}

// pods returns the names of the pods that have not been evicted.
func (l lifecycle) pods() (names []string) {
	l.Helper()
	list, err := l.client.CoreV1().Pods("default").List(l.Context(), metav1.ListOptions{})
	must(l.T, err)
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names
}

func TestPodsOfASilentNodeAreEvicted(t *testing.T) {
	withLifecycle(t, func(l lifecycle) {
		if l.pass(300*time.Second, "a"); !slices.Equal(l.pods(), []string{"a", "b"}) || !l.evicting("b") || l.evicting("a") {
			t.Errorf("pods %v", l.pods())
		}
		if l.pass(60*time.Second, "a"); !slices.Equal(l.pods(), []string{"a"}) {
			t.Errorf("pods %v, want that of the other node alone", l.pods())
		}
	})
}

// While all nodes are silent, no pod is evicted, however long that is, and when the first node is back, the others have
// time to report before their pods are.
func TestNoPodIsEvictedWhileNoNodeIsReady(t *testing.T) {
	withLifecycle(t, func(l lifecycle) {
		l.pass(20*time.Second, "a")
		if l.pass(time.Hour); len(l.pods()) != 2 || l.evicting("a") || l.evicting("b") {
			t.Errorf("in the outage: pods %v, evicting from a %t, from b %t", l.pods(), l.evicting("a"), l.evicting("b"))
		}
		if l.pass(grace-10*time.Second, "a"); len(l.pods()) != 2 || l.evicting("b") {
			t.Errorf("in the grace period after it: pods %v, evicting %t", l.pods(), l.evicting("b"))
		}
		if l.pass(300*time.Second, "a"); len(l.pods()) != 2 || !l.evicting("b") || l.evicting("a") {
			t.Errorf("after that: pods %v, evicting %t", l.pods(), l.evicting("b"))
		}
		if l.pass(60*time.Second, "a"); !slices.Equal(l.pods(), []string{"a"}) {
			t.Errorf("at last: pods %v", l.pods())
		}
	})
}

// After an outage a node that reports before it sends heartbeats is ready.
func TestHeartbeatsCountAnewAfterAnOutage(t *testing.T) {
	withLifecycle(t, func(l lifecycle) {
		l.pass(time.Hour)
		l.pass(10*time.Second, "a")
		l.report(l.node("b"))
		if l.pass(10*time.Second, "a"); readiness(l.node("b")) != corev1.ConditionTrue {
			t.Errorf("%+v", l.node("b").Status)
		}
		if l.pass(grace, "a"); readiness(l.node("b")) != corev1.ConditionUnknown {
			t.Errorf("%+v", l.node("b").Status)
		}
	})
}
