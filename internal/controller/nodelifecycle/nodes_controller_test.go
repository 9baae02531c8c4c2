package nodelifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
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
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
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

// taint sets the taints of node a.
func (l lifecycle) taint(taints ...corev1.Taint) {
	l.Helper()
	node := l.node("a")
	node.Spec.Taints = taints
	_, err := l.client.CoreV1().Nodes().Update(l.Context(), node, metav1.UpdateOptions{})
	must(l.T, err)
	synctest.Wait()
}

// add adds a pod to node a.
func (l lifecycle) add(name string, tolerations ...corev1.Toleration) {
	l.Helper()
	must(l.T, l.client.Tracker().Add(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now()},
		Spec:       corev1.PodSpec{NodeName: "a", Tolerations: tolerations},
	}))
	synctest.Wait()
}

// check checks the pods after a time in which both nodes are alive.
func (l lifecycle) check(after time.Duration, want ...string) {
	l.Helper()
	if l.pass(after, "a", "b"); !slices.Equal(l.pods(), want) {
		l.Errorf("after %s more: pods %v, want %v", after, l.pods(), want)
	}
}

// kubectl taint adds no time.
func TestPodLeavesATaintWithoutATime(t *testing.T) {
	withLifecycle(t, func(l lifecycle) {
		l.taint(taint("maintenance", corev1.TaintEffectNoExecute))
		l.check(290*time.Second, "a", "b")
		l.check(20*time.Second, "b")
	})
}

func TestPodThatArrivesAfterTheTaintHasItsOwnTime(t *testing.T) {
	for name, added := range map[string]func() *metav1.Time{
		"with a time": func() *metav1.Time { return new(metav1.Now()) },
		"without":     func() *metav1.Time { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			withLifecycle(t, func(l lifecycle) {
				old := taint("maintenance", corev1.TaintEffectNoExecute)
				old.TimeAdded = added()
				l.taint(old)
				l.check(350*time.Second, "b")
				l.add("late", tolerating("maintenance", 300))
				l.add("later", tolerating("maintenance", 600))
				l.check(290*time.Second, "b", "late", "later")
				l.check(20*time.Second, "b", "later")
				l.check(300*time.Second, "b")
			})
		})
	}
}

func TestTaintThatIsAddedAgainIsToleratedAnew(t *testing.T) {
	withLifecycle(t, func(l lifecycle) {
		maintenance := taint("maintenance", corev1.TaintEffectNoExecute)
		l.taint(maintenance)
		l.check(200*time.Second, "a", "b")
		l.taint()
		l.taint(maintenance)
		l.check(290*time.Second, "a", "b")
		l.check(20*time.Second, "b")
	})
}

// Each of two taints has its own time, and the first that ends counts.
func TestEachTaintIsToleratedForItsOwnTime(t *testing.T) {
	const noExecute = corev1.TaintEffectNoExecute
	slow, fast := taint("slow", noExecute), taint("fast", noExecute)
	withLifecycle(t, func(l lifecycle) {
		l.add("c", tolerating("slow", 300), tolerating("fast", 100))
		l.add("d", tolerating("slow"), tolerating("fast", 275))
		l.taint(slow)
		l.check(150*time.Second, "a", "b", "c", "d")
		l.taint(slow, fast)
		l.check(90*time.Second, "a", "b", "c", "d")
		l.check(20*time.Second, "a", "b", "d") // the second taint ends the toleration of c, after 100 s
		l.taint(fast)
		l.check(160*time.Second, "a", "b", "d") // the first taint of a is gone
		l.check(20*time.Second, "a", "b")
		l.check(20*time.Second, "b")
	})
}

// A taint that the pod does not tolerate for ever any more is tolerated from then on.
func TestTolerationThatChangesBeginsThen(t *testing.T) {
	withLifecycle(t, func(l lifecycle) {
		l.add("c", tolerating("maintenance"))
		l.taint(taint("maintenance", corev1.TaintEffectNoExecute))
		l.check(350*time.Second, "b", "c")
		pod, err := l.client.CoreV1().Pods("default").Get(l.Context(), "c", metav1.GetOptions{})
		must(l.T, err)
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, tolerating("maintenance", 300))
		_, err = l.client.CoreV1().Pods("default").Update(l.Context(), pod, metav1.UpdateOptions{})
		must(l.T, err)
		l.check(290*time.Second, "b", "c")
		l.check(20*time.Second, "b")
	})
}

// Nothing is remembered of nodes, pods and taints that are gone.
func TestExposuresAreForgotten(t *testing.T) {
	client := fake.NewClientset()
	shared, err := controller.NewContext(client, clock.RealClock{}, slog.New(slog.DiscardHandler))
	must(t, err)
	c := &reconciler{client: client, nodes: shared.Informers.Nodes.Lister(), shared: shared, heartbeats: map[string]heartbeat{}, exposures: exposures{}}
	pods := shared.Informers.Pods.Informer().GetIndexer()
	for _, name := range []string{"x", "y"} {
		must(t, pods.Add(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec:       corev1.PodSpec{NodeName: "a", Tolerations: []corev1.Toleration{tolerating("m", 300)}},
		}))
	}
	expose := func(when string, want int, taints ...corev1.Taint) {
		t.Helper()
		node := aNode(corev1.ConditionTrue, taints...)
		node.Name = "a"
		if c.expose(node, epoch); len(c.exposures["a"]) != want || want == 0 && len(c.exposures) != 0 {
			t.Errorf("%s: %v, want %d", when, c.exposures, want)
		}
	}
	tainted := taint("m", corev1.TaintEffectNoExecute)
	expose("two pods", 2, tainted)
	must(t, pods.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}))
	expose("one is gone", 1, tainted)
	expose("another taint", 0, taint("m", corev1.TaintEffectNoSchedule))
	expose("the taint again", 1, tainted)
	expose("no taint", 0)
	expose("the taint once more", 1, tainted)
	if _, err := c.reconcile(t.Context(), cache.ObjectName{Name: "a"}); err != nil || len(c.exposures) != 0 {
		t.Errorf("the node is gone: %v: %v", c.exposures, err)
	}
}

// A webhook may deny an eviction for a while, also with the code of a pod that is gone. The eviction is repeated with the
// back-off of failures, and not only when the heartbeats of the node are due.
func TestDeniedEvictionIsRepeated(t *testing.T) {
	for _, code := range []int32{http.StatusForbidden, http.StatusNotFound, http.StatusConflict} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			withLifecycle(t, func(l lifecycle) {
				var denied atomic.Int32
				var allowed atomic.Bool
				l.client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					if allowed.Load() {
						return false, nil, nil
					}
					denied.Add(1)
					return true, nil, denial(code)
				})
				// A server makes no event of an update that changes nothing.
				l.client.PrependReactor("update", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
					update, _ := action.(clienttesting.UpdateActionImpl)
					return true, update.Object, nil
				})
				l.taint(taint("maintenance", corev1.TaintEffectNoExecute))
				if l.check(310*time.Second, "a", "b"); denied.Load() < 8 {
					t.Errorf("%d attempts in 10 s", denied.Load())
				}
				allowed.Store(true)
				l.check(100*time.Second, "b")
			})
		})
	}
}

func denial(code int32) error {
	return webhookerrors.ToStatusErr("keep.example.com", &metav1.Status{Code: code, Message: "not now"})
}

// A client that changes the value of a taint again and again keeps no pod on the node.
func TestTaintWithAnotherValueIsTheSameTaint(t *testing.T) {
	withLifecycle(t, func(l lifecycle) {
		maintenance := taint("maintenance", corev1.TaintEffectNoExecute)
		for i := range 29 {
			maintenance.Value = fmt.Sprint(i)
			l.taint(maintenance)
			l.check(10*time.Second, "a", "b")
		}
		maintenance.Value = "last"
		l.taint(maintenance)
		l.check(20*time.Second, "b")
	})
}
