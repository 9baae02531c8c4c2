package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/fakewatch"
)

// cluster is an in-memory API and a scheduler. A Binding binds the pod, as on a server, unless
// refuse returns an error.
type cluster struct {
	*fake.Clientset
	t *testing.T

	mu      sync.Mutex
	refuse  func(pod string) error // guarded by mu
	bound   []string               // guarded by mu: pod on node, in order, refused ones included
	patched []string               // guarded by mu: whose status was patched
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	t.Helper()
	c := &cluster{Clientset: fake.NewClientset(objects...), t: t}
	fakewatch.Copy(c.Clientset)
	c.PrependReactor("create", "pods/binding", c.bind)
	c.PrependReactor("patch", "pods/status", func(a clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.patched = append(c.patched, a.(clienttesting.PatchAction).GetName())
		return false, nil, nil
	})
	return c
}

// run runs the scheduler until the test ends.
func (c *cluster) run() {
	c.t.Helper()
	c.runWith(slog.New(slog.DiscardHandler))
}

// runWith runs the scheduler with a logger until the test ends.
func (c *cluster) runWith(log *slog.Logger) {
	c.t.Helper()
	s, err := New(Config{Client: c, Logger: log})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	c.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
}

// observing returns a scheduler that does not run, and its handlers of nodes and pods.
func observing(t *testing.T) (s *Scheduler, nodes, pods cache.ResourceEventHandler) {
	t.Helper()
	s, err := New(Config{Client: newCluster(t), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s, handler(s.observeNode, s.forgetNode), handler(s.observePod, s.forgetPod)
}

func (c *cluster) bind(a clienttesting.Action) (bool, runtime.Object, error) {
	binding, ok := a.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
	if !ok {
		return false, nil, nil
	}
	c.mu.Lock()
	c.bound = append(c.bound, binding.Name+" on "+binding.Target.Name)
	refuse := c.refuse
	c.mu.Unlock()
	if refuse != nil {
		if err := refuse(binding.Name); err != nil {
			return true, nil, err
		}
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	obj, err := c.Tracker().Get(pods, binding.Namespace, binding.Name)
	if err != nil {
		return true, nil, err
	}
	pod := obj.(*corev1.Pod).DeepCopy()
	if pod.UID != binding.UID {
		return true, nil, apierrors.NewConflict(corev1.Resource("pods"), pod.Name, errors.New("another uid"))
	}
	pod.Spec.NodeName = binding.Target.Name
	return true, binding, c.Tracker().Update(pods, pod, binding.Namespace)
}

func node(name, cpu string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse("110")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func pod(name, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Generation: 7},
		Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

func (c *cluster) create(pods ...*corev1.Pod) {
	c.t.Helper()
	for _, p := range pods {
		if _, err := c.CoreV1().Pods("ns").Create(c.t.Context(), p, metav1.CreateOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) get(name string) *corev1.Pod {
	c.t.Helper()
	p, err := c.CoreV1().Pods("ns").Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *cluster) isOn(name, node string) {
	c.t.Helper()
	eventually.Holds(c.t, name+" is on "+node, func() bool { return c.get(name).Spec.NodeName == node })
}

// isUnschedulable waits until the current pod is reported to fit on no node.
func (c *cluster) isUnschedulable(name string) {
	c.t.Helper()
	eventually.Holds(c.t, name+" is unschedulable", func() bool {
		conditions := c.get(name).Status.Conditions
		return len(conditions) == 1 && conditions[0].Type == corev1.PodScheduled && conditions[0].Reason == corev1.PodReasonUnschedulable &&
			conditions[0].ObservedGeneration == 7
	})
}

// TestEachPlacementSeesTheOnesBefore checks that four pods of half a node each are not all placed on one node, although
// the cache does not show the bindings yet.
func TestEachPlacementSeesTheOnesBefore(t *testing.T) {
	c := newCluster(t, node("a", "1"), node("b", "1"))
	for i := range 4 {
		c.create(pod(fmt.Sprintf("p%d", i), "500m"))
	}
	c.run()
	on := map[string]int{}
	for i := range 4 {
		name := fmt.Sprintf("p%d", i)
		eventually.Holds(c.t, name+" is bound", func() bool { return c.get(name).Spec.NodeName != "" })
		on[c.get(name).Spec.NodeName]++
	}
	if on["a"] != 2 || on["b"] != 2 {
		t.Errorf("the pods are on %v", on)
	}
}

// TestPodsOnNodesCountFromTheStart checks that pods that were bound before the scheduler started count.
func TestPodsOnNodesCountFromTheStart(t *testing.T) {
	there := pod("there", "1")
	there.Spec.NodeName = "a"
	c := newCluster(t, node("a", "1"), node("b", "1"), there, pod("new", "1"))
	c.run()
	c.isOn("new", "b")
}

// TestUnschedulablePodIsRetried checks that an unschedulable pod is placed when another pod is gone, has ended
// or is resized, or when a node grows or is added.
func TestUnschedulablePodIsRetried(t *testing.T) {
	for name, free := range map[string]func(*cluster) error{
		"a pod is gone": func(c *cluster) error {
			return c.CoreV1().Pods("ns").Delete(c.t.Context(), "first", metav1.DeleteOptions{})
		},
		"a pod has ended": func(c *cluster) error {
			p := c.get("first")
			p.Status.Phase = corev1.PodSucceeded
			_, err := c.CoreV1().Pods("ns").UpdateStatus(c.t.Context(), p, metav1.UpdateOptions{})
			return err
		},
		"a pod is resized": func(c *cluster) error {
			p := c.get("first")
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("0")
			_, err := c.CoreV1().Pods("ns").Update(c.t.Context(), p, metav1.UpdateOptions{})
			return err
		},
		"a node grows": func(c *cluster) error {
			_, err := c.CoreV1().Nodes().UpdateStatus(c.t.Context(), node("a", "2"), metav1.UpdateOptions{})
			return err
		},
		"another node": func(c *cluster) error {
			_, err := c.CoreV1().Nodes().Create(c.t.Context(), node("b", "1"), metav1.CreateOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, node("a", "1"), pod("first", "1"))
			c.run()
			c.isOn("first", "a")
			c.create(pod("second", "1"))
			c.isUnschedulable("second")
			if err := free(c); err != nil {
				t.Fatal(err)
			}
			eventually.Holds(c.t, "the second pod is bound", func() bool { return c.get("second").Spec.NodeName != "" })
		})
	}
}

// TestRefusedBindingFreesTheNode checks that the resources of a failed binding are free again, whatever the error was,
// and that the pod is retried unless it is gone or bound elsewhere.
func TestRefusedBindingFreesTheNode(t *testing.T) {
	denial := apierrors.NewConflict(corev1.Resource("pods"), "first", errors.New("no"))
	denial.ErrStatus.Message = `admission webhook "keep.example.com" denied the request: no`
	for name, c := range map[string]struct {
		err   error
		again bool
	}{
		"not found": {apierrors.NewNotFound(corev1.Resource("pods"), "first"), false},
		"conflict":  {apierrors.NewConflict(corev1.Resource("pods"), "first", errors.New("it is bound")), false},
		"no answer": {errors.New("connection refused"), true},
		"denied":    {denial, true}, // by a webhook, which may allow the next one
	} {
		t.Run(name, func(t *testing.T) {
			refused := 0
			k := newCluster(t, node("a", "1"), pod("first", "1"))
			k.refuse = func(pod string) error {
				k.mu.Lock()
				defer k.mu.Unlock()
				if pod != "first" || refused > 0 {
					return nil
				}
				refused++
				return c.err
			}
			k.run()
			if c.again {
				k.isOn("first", "a")
				return
			}
			eventually.Holds(k.t, "the binding is refused", func() bool {
				k.mu.Lock()
				defer k.mu.Unlock()
				return refused == 1
			})
			k.create(pod("second", "1"))
			k.isOn("second", "a")
		})
	}
}

// TestBoundPodKeepsItsResources checks that a pod that was bound counts on its node, although the answer to its Binding
// was an error.
func TestBoundPodKeepsItsResources(t *testing.T) {
	s, nodes, pods := observing(t)
	nodes.OnAdd(node("a", "1"), true)
	first := pod("first", "1")
	if on, err := s.place(cache.MetaObjectToName(first), first); err != nil || on != "a" {
		t.Fatalf("placed on %q: %v", on, err)
	}
	bound := first.DeepCopy()
	bound.Spec.NodeName = "a"
	if err := s.pods.GetStore().Add(bound); err != nil {
		t.Fatal(err)
	}
	pods.OnUpdate(first, bound)
	s.unplace(first, "a")
	if n := s.cluster.Node("a").Pods(); n != 1 || s.placed[first.UID] != "a" {
		t.Errorf("%d pods are on the node, placed are %v", n, s.placed)
	}
}

// TestAnotherSchedulerWasFaster checks that a pod that another scheduler has bound elsewhere takes its resources there,
// and not on the node that this scheduler chose.
func TestAnotherSchedulerWasFaster(t *testing.T) {
	c := newCluster(t, node("a", "1"), node("b", "1"))
	c.refuse = func(name string) error {
		if name != "first" {
			return nil
		}
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		obj, err := c.Tracker().Get(pods, "ns", name)
		if err != nil {
			return err
		}
		p := obj.(*corev1.Pod).DeepCopy()
		c.mu.Lock()
		meant := strings.TrimPrefix(c.bound[0], "first on ")
		c.mu.Unlock()
		p.Spec.NodeName = map[string]string{"a": "b", "b": "a"}[meant]
		if err := c.Tracker().Update(pods, p, "ns"); err != nil {
			return err
		}
		return apierrors.NewConflict(corev1.Resource("pods"), name, errors.New("it is bound"))
	}
	c.create(pod("first", "1"))
	c.run()
	eventually.Holds(c.t, "the first pod is bound", func() bool { return c.get("first").Spec.NodeName != "" })
	other := map[string]string{"a": "b", "b": "a"}[c.get("first").Spec.NodeName]
	c.create(pod("second", "1"))
	c.isOn("second", other)
}

// TestReplacedPodFreesItsNode checks that a pod counts no longer when the watch shows another one of its name, without
// having shown its deletion, and that a node which is replaced so has the pods that are bound to it.
func TestReplacedPodFreesItsNode(t *testing.T) {
	s, nodes, pods := observing(t)
	nodes.OnAdd(node("a", "1"), true)
	old, other := pod("p", "1"), pod("p", "1")
	old.Spec.NodeName, other.UID = "a", "other"
	pods.OnAdd(old, true)
	if n := s.cluster.Node("a").Pods(); n != 1 {
		t.Fatalf("%d pods are on the node", n)
	}
	pods.OnUpdate(old, other)
	if n := s.cluster.Node("a").Pods(); n != 0 || len(s.placed) != 0 {
		t.Errorf("%d pods are on the node after the replacement: %v", n, s.placed)
	}
	bound := other.DeepCopy()
	bound.Spec.NodeName = "a"
	if err := s.pods.GetStore().Add(bound); err != nil {
		t.Fatal(err)
	}
	pods.OnUpdate(other, bound)
	again := node("a", "2")
	again.UID = "again"
	nodes.OnUpdate(node("a", "1"), again)
	if n := s.cluster.Node("a").Pods(); n != 1 {
		t.Errorf("%d pods are on the node that was replaced", n)
	}
}

// TestNotForThisScheduler checks that pods of other schedulers, and pods that have scheduling gates, have finished or
// are being deleted, stay as they are.
func TestNotForThisScheduler(t *testing.T) {
	others, gated, ended, leaving := pod("others", "1m"), pod("gated", "1m"), pod("ended", "1m"), pod("leaving", "1m")
	others.Spec.SchedulerName = "mine"
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x/y"}}
	ended.Status.Phase = corev1.PodFailed
	now := metav1.Now()
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{"x/y"}
	c := newCluster(t, node("a", "1"), others, gated, ended, leaving)
	c.run()
	c.create(pod("last", "1m"))
	c.isOn("last", "a")
	p := c.get("gated")
	p.Spec.SchedulingGates = nil
	if _, err := c.CoreV1().Pods("ns").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.isOn("gated", "a")
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.bound) != 2 {
		t.Errorf("bound are %v", c.bound)
	}
}

// TestReasonIsReportedOnce checks that a pod that still fits on no node for the same reason is not reported again.
func TestReasonIsReportedOnce(t *testing.T) {
	c := newCluster(t, node("a", "1"), pod("large", "5"))
	c.run()
	c.isUnschedulable("large")
	// Each makes the scheduler try the large pod again before the next one.
	for i := range 3 {
		name := fmt.Sprintf("p%d", i)
		c.create(pod(name, "1"))
		c.isOn(name, "a")
		if err := c.CoreV1().Pods("ns").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.create(pod("last", "1"))
	c.isOn("last", "a")
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range c.patched {
		if i > 0 && name == "large" {
			t.Errorf("reasons were reported of %v", c.patched)
		}
	}
}

// TestFailedBindingsTakeFewLines checks that pods that cannot be bound take a few lines of the log in a minute. Pods of
// a namespace that is being deleted take none, and one request each: they are deleted with it.
func TestFailedBindingsTakeFewLines(t *testing.T) {
	terminating := apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		err         error
		lines       int
		least, most int // requests
	}{
		"a webhook":               {apierrors.NewInternalError(errors.New("failed calling webhook")), 10, 200, 10000},
		"a terminating namespace": {terminating, 0, 40, 40},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, node("a", "100"))
				for i := range 40 {
					c.create(pod(fmt.Sprint("p-", i), "1"))
				}
				c.refuse = func(string) error { return test.err }
				var logged bytes.Buffer
				c.runWith(slog.New(slog.NewTextHandler(&logged, nil)))
				time.Sleep(time.Minute - time.Second)
				synctest.Wait()
				c.mu.Lock()
				defer c.mu.Unlock()
				if lines := strings.Count(logged.String(), "\n"); lines != test.lines || len(c.bound) < test.least || len(c.bound) > test.most {
					t.Errorf("%d lines, want %d, and %d requests:\n%s", lines, test.lines, len(c.bound), logged.String())
				}
			})
		})
	}
}
