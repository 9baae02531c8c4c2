package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/node/agent"
	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/simulated"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/fakewatch"
)

// host is an in-memory API with an agent for node n.
type host struct {
	*fake.Clientset
	t       *testing.T
	agent   *agent.Agent       // set by run
	runtime *simulated.Runtime // set by run
	down    atomic.Bool        // the runtime cannot be used

	mu      sync.Mutex
	removed []removal              // guarded by mu
	hold    bool                   // guarded by mu: removals are accepted, and the pod stays
	refuse  func(pod string) error // guarded by mu: called before a status is written
}

// fallible is a runtime that can be down.
type fallible struct {
	*simulated.Runtime

	down *atomic.Bool
}

// Healthy returns an error while the runtime is down.
func (f fallible) Healthy() error {
	if f.down.Load() {
		return errors.New("container runtime is down")
	}
	return nil
}

// removal is a DELETE that the agent has sent.
type removal struct {
	name    string
	options metav1.DeleteOptions
	status  corev1.PodStatus // the pod's status in the API at that time
}

func newHost(t *testing.T, objects ...runtime.Object) *host {
	t.Helper()
	h := &host{Clientset: fake.NewClientset(objects...), t: t}
	fakewatch.Copy(h.Clientset)
	h.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		d, ok := a.(clienttesting.DeleteActionImpl)
		if !ok {
			return false, nil, nil
		}
		obj, err := h.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), d.Namespace, d.Name)
		if err != nil {
			return true, nil, err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.removed = append(h.removed, removal{d.Name, d.DeleteOptions, obj.(*corev1.Pod).Status})
		return h.hold, nil, nil
	})
	refused := func(name string) (bool, runtime.Object, error) {
		h.mu.Lock()
		refuse := h.refuse
		h.mu.Unlock()
		if refuse == nil {
			return false, nil, nil
		}
		err := refuse(name)
		return err != nil, nil, err
	}
	h.PrependReactor("update", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "status" { // of the test
			return false, nil, nil
		}
		sent := a.(clienttesting.UpdateAction).GetObject().(*corev1.Pod)
		if isRefused, _, err := refused(sent.Name); isRefused {
			return true, nil, err
		}
		// A server keeps everything else as it is. The tracker would write the whole pod, without a mark that a test has made.
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		obj, err := h.Tracker().Get(pods, sent.Namespace, sent.Name)
		if err != nil {
			return true, nil, err
		}
		now := obj.(*corev1.Pod).DeepCopy()
		if now.UID != sent.UID {
			return true, nil, replaced(sent.Name)
		}
		now.Status = sent.Status
		return true, now, h.Tracker().Update(pods, now, now.Namespace)
	})
	h.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch := a.(clienttesting.PatchAction)
		if isRefused, _, err := refused(patch.GetName()); isRefused {
			return true, nil, err
		}
		var sent metav1.PartialObjectMetadata
		if err := json.Unmarshal(patch.GetPatch(), &sent); err != nil {
			return true, nil, err
		}
		obj, err := h.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), patch.GetNamespace(), patch.GetName())
		if err == nil && sent.UID != "" && sent.UID != obj.(*corev1.Pod).UID {
			return true, nil, replaced(patch.GetName())
		}
		return false, nil, nil
	})
	return h
}

// replaced is the answer of a server to a write of a pod that has another UID.
func replaced(name string) error {
	return apierrors.NewConflict(corev1.Resource("pods"), name, errors.New("the pod has another UID"))
}

// aNode is a node for as many pods as a test creates.
func aNode(name string) agent.Node {
	return agent.Node{Name: name, Addresses: []string{"10.0.0.1"}, Capacity: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("1000"),
	}}
}

// run runs the agent until the test ends.
func (h *host) run() {
	h.t.Helper()
	h.runWith(slog.New(slog.DiscardHandler))
}

// runWith runs the agent with a logger until the test ends.
func (h *host) runWith(log *slog.Logger) {
	h.t.Helper()
	h.runtime = simulated.New(clock.RealClock{})
	a, err := agent.New(agent.Config{Client: h, Runtime: fallible{h.runtime, &h.down}, Nodes: []agent.Node{aNode("n")}, Logger: log})
	if err != nil {
		h.t.Fatal(err)
	}
	h.agent = a
	ctx, stop := context.WithCancel(h.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	h.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			h.t.Error(err)
		}
	})
}

func pod(name, node string, annotations map[string]string) *corev1.Pod {
	grace := int64(30)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "-uid"), Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: node, RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
}

func (h *host) create(name string, annotations map[string]string) {
	h.t.Helper()
	if _, err := h.CoreV1().Pods("ns").Create(h.t.Context(), pod(name, "n", annotations), metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

// mark marks a pod as being deleted, like a user's DELETE.
func (h *host) mark(name string) {
	h.t.Helper()
	p, err := h.CoreV1().Pods("ns").Get(h.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	grace, at := int64(30), metav1.NewTime(time.Now().Add(30*time.Second))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	if _, err := h.CoreV1().Pods("ns").Update(h.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) runs(name string) {
	h.t.Helper()
	eventually.Holds(h.t, name+" runs", func() bool {
		p, err := h.CoreV1().Pods("ns").Get(h.t.Context(), name, metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning && p.Status.ContainerStatuses[0].Ready
	})
}

func (h *host) removals() []removal {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]removal(nil), h.removed...)
}

// TestManyPodsEnd checks that workers are free again when pods are gone. It has more pods than workers.
func TestManyPodsEnd(t *testing.T) {
	const many = 40
	h := newHost(t)
	h.run()
	for i := range many {
		h.create(fmt.Sprintf("p%d", i), nil)
	}
	for i := range many {
		h.runs(fmt.Sprintf("p%d", i))
		h.mark(fmt.Sprintf("p%d", i))
	}
	eventually.Holds(h.t, "all are removed", func() bool { return len(h.removals()) >= many })
	h.create("next", nil)
	h.runs("next")
	if n := len(h.removals()); n != many {
		t.Errorf("%d pods were removed by %d requests", many, n)
	}
}

// TestRemovalIsOfThisPod checks that the DELETE has a UID precondition and no grace period, and follows the report of
// the pod's end.
func TestRemovalIsOfThisPod(t *testing.T) {
	h := newHost(t)
	h.run()
	h.create("web", map[string]string{"simulated.coppice.dev/term-exit-code": "3"})
	h.runs("web")
	h.mark("web")
	eventually.Holds(h.t, "it is removed", func() bool { return len(h.removals()) == 1 })
	r := h.removals()[0]
	if o := r.options; o.GracePeriodSeconds == nil || *o.GracePeriodSeconds != 0 || o.Preconditions == nil || *o.Preconditions.UID != "web-uid" {
		t.Errorf("options %+v", o)
	}
	if r.status.Phase != corev1.PodFailed || len(r.status.ContainerStatuses) != 1 || r.status.ContainerStatuses[0].State.Terminated == nil ||
		r.status.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
		t.Errorf("when it was removed the API had %+v", r.status)
	}
}

// TestPodThatStaysAfterItsRemoval checks that a pod that stays because of a finalizer keeps no worker busy.
func TestPodThatStaysAfterItsRemoval(t *testing.T) {
	h := newHost(t)
	h.hold = true
	h.run()
	for i := range 20 {
		name := fmt.Sprintf("held%d", i)
		h.create(name, nil)
		h.runs(name)
		h.mark(name)
	}
	eventually.Holds(h.t, "their removal is asked for", func() bool { return len(h.removals()) >= 20 })
	h.create("next", nil)
	h.runs("next")
}

// TestReplacedPodEnds checks that the containers of a pod end that was deleted and created anew while the watch was
// interrupted. The informer delivers that as an update.
func TestReplacedPodEnds(t *testing.T) {
	h := newHost(t, pod("web", "n", nil))
	interrupted := watch.NewFake()
	watches := 0
	h.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		watches++
		return watches == 1, interrupted, nil
	})
	// In a reactor, no write of the agent is under way: the clientset runs one at a time.
	h.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		return false, nil, h.Tracker().Delete(pods, a.GetNamespace(), "web")
	})
	h.run()
	h.runs("web")
	again := pod("web", "n", nil)
	again.UID = "again"
	if _, err := h.CoreV1().Pods("ns").Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := apierrors.NewResourceExpired("the watch is too old")
	interrupted.Error(&gone.ErrStatus)
	h.runs("web")
	eventually.Agrees(t, func() string {
		if known := h.runtime.Known(); !slices.Equal(known, []types.UID{"again"}) {
			return fmt.Sprint("the node has the pods ", known)
		}
		return ""
	})
}

// TestPodsOfOtherNodes checks that the agent does not touch pods of other nodes.
func TestPodsOfOtherNodes(t *testing.T) {
	h := newHost(t, pod("other", "m", nil), pod("nowhere", "", nil))
	h.run()
	h.create("web", nil)
	h.runs("web")
	for _, name := range []string{"other", "nowhere"} {
		p, err := h.CoreV1().Pods("ns").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || p.Status.Phase != corev1.PodPending || len(p.Status.ContainerStatuses) > 0 {
			t.Errorf("%s: %+v, %v", name, p.Status, err)
		}
	}
}

// TestReportThatIsRefused checks that a refused report is retried, and that a report about a pod that is gone stops no
// worker.
func TestReportThatIsRefused(t *testing.T) {
	h := newHost(t)
	asked := map[string]int{}
	h.refuse = func(name string) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		asked[name]++
		switch {
		case name == "gone":
			return apierrors.NewNotFound(corev1.Resource("pods"), name)
		case name == "web" && asked[name] == 1:
			return errors.New("connection refused")
		}
		return nil
	}
	h.run()
	h.create("gone", nil)
	h.create("web", nil)
	h.runs("web")
	h.create("next", nil)
	h.runs("next")
	h.mu.Lock()
	defer h.mu.Unlock()
	if asked["gone"] == 0 || asked["web"] < 2 {
		t.Errorf("reports: %v", asked)
	}
}

// A pod that somebody else writes at the same time gets the report as a patch.
func TestReportOnAPodThatHasChanged(t *testing.T) {
	h := newHost(t)
	h.PrependReactor("update", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetSubresource() == "status", nil, apierrors.NewConflict(corev1.Resource("pods"), "web", errors.New("it has changed"))
	})
	h.run()
	h.create("web", nil)
	h.runs("web")
}

// TestForbiddenPods checks that Forbidden about a pod that is not on the node any more counts as NotFound, and about
// another pod as a failure; so does the denial of a webhook, whatever its code.
func TestForbiddenPods(t *testing.T) {
	refusal := apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("it is not bound to the node"))
	denial := apierrors.NewNotFound(corev1.Resource("pods"), "p")
	denial.ErrStatus.Message = `admission webhook "keep.example.com" denied the request: no`
	remove := func(h *host, name string) error {
		if err := h.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", name); err != nil {
			return err
		}
		return refusal
	}
	for name, test := range map[string]struct {
		refuse func(*host)
		warns  bool
	}{
		"its report, gone":  {func(h *host) { h.refuse = func(name string) error { return remove(h, name) } }, false},
		"its report, there": {func(h *host) { h.refuse = func(string) error { return refusal } }, true},
		"its removal, gone": {func(h *host) {
			h.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, remove(h, a.(clienttesting.DeleteAction).GetName())
			})
		}, false},
		"its removal, there": {func(h *host) {
			h.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
		}, true},
		"its removal, denied with 404": {func(h *host) {
			h.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, denial })
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				test.refuse(h)
				h.create("p", nil)
				h.mark("p")
				var logged strings.Builder
				h.runWith(slog.New(slog.NewTextHandler(&logged, nil)))
				time.Sleep(time.Minute)
				synctest.Wait()
				if warns := strings.Contains(logged.String(), "level=WARN"); warns != test.warns {
					t.Errorf("warns: %t\n%s", warns, logged.String())
				}
			})
		})
	}
}

// TestConfigIsChecked checks that missing fields are reported at once, not by a panic later.
func TestConfigIsChecked(t *testing.T) {
	if _, err := agent.New(agent.Config{Client: fake.NewClientset()}); err == nil {
		t.Error("New accepts a config without a runtime")
	}
}

// TestPodsOfTheAgent checks that an agent returns the pods of its own nodes, and no NotFound before its informer has
// synced.
func TestPodsOfTheAgent(t *testing.T) {
	h := newHost(t)
	release := make(chan struct{})
	h.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-release
		return false, nil, nil
	})
	h.run()
	if _, err := h.agent.Pod("ns", "web"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("before the informer has synced: %v", err)
	}
	only, err := h.agent.Only("n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := only.Pods(); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("all pods, before the informer has synced: %v", err)
	}
	close(release)
	if _, err := h.CoreV1().Pods("ns").Create(t.Context(), pod("far", "other", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.create("web", nil) // registered later, so that the agent has seen both pods when this one runs
	h.runs("web")
	if p, err := h.agent.Pod("ns", "web"); err != nil || p.UID != "web-uid" {
		t.Errorf("%v, %v", p, err)
	}
	for _, name := range []string{"far", "none"} {
		if p, err := h.agent.Pod("ns", name); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	if all, err := only.Pods(); err != nil || len(all) != 1 || all[0].Name != "web" {
		t.Errorf("all pods: %v, %v", all, err)
	}
	if p, err := only.Pod("ns", "web"); err != nil || p.UID != "web-uid" {
		t.Errorf("the node's own: %v, %v", p, err)
	}
	if _, err := h.agent.Only("other"); !apierrors.IsNotFound(err) {
		t.Errorf("a node of another agent: %v", err)
	}
	if p, err := h.agent.Pod("other", "web"); !apierrors.IsNotFound(err) {
		t.Errorf("in another namespace: %v, %v", p, err)
	}
}

// TestRefusedPodsTakeFewLines checks that pods whose removal or status is refused take few lines of the log, however
// often the agent tries.
func TestRefusedPodsTakeFewLines(t *testing.T) {
	refusal := apierrors.NewInternalError(errors.New("failed calling webhook"))
	for name, refuse := range map[string]func(*host){
		"not removed": func(h *host) {
			h.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
		},
		"not reconciled": func(h *host) { h.refuse = func(string) error { return refusal } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				refuse(h)
				for i := range 40 {
					h.create(fmt.Sprint("p-", i), nil)
					h.mark(fmt.Sprint("p-", i))
				}
				var logged strings.Builder
				h.runWith(slog.New(slog.NewTextHandler(&logged, nil)))
				time.Sleep(time.Minute + 20*time.Second)
				synctest.Wait()
				if lines := strings.Count(logged.String(), "level=WARN"); lines < 10 || lines > 20 || !strings.Contains(logged.String(), name) {
					t.Errorf("%d lines about 40 pods:\n%s", lines, logged.String())
				}
			})
		})
	}
}

// TestNodeIsNotReadyWhileItsRuntimeIsDown checks that a node is reported as not ready with the next heartbeat after its
// runtime has failed, that the agent leaves its pods not ready meanwhile, and that all are ready again afterwards.
func TestNodeIsNotReadyWhileItsRuntimeIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.run()
		h.create("web", nil)
		time.Sleep(agent.DefaultLease)
		synctest.Wait()
		want := func(node, message string, pod corev1.ConditionStatus) {
			t.Helper()
			n, err := h.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && (c.Reason != node || !strings.Contains(c.Message, message)) {
					t.Errorf("the node: %+v, want %s, %s", c, node, message)
				}
			}
			p, err := h.CoreV1().Pods("ns").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status != pod {
					t.Errorf("the pod: %+v, want %s", c, pod)
				}
			}
		}
		want("KubeletReady", "is posting ready status", corev1.ConditionTrue)
		h.down.Store(true)
		time.Sleep(agent.DefaultLease / 4)
		synctest.Wait()
		want("KubeletNotReady", "container runtime is down", corev1.ConditionTrue)
		h.markNotReady("web")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		want("KubeletNotReady", "container runtime is down", corev1.ConditionFalse)
		h.down.Store(false)
		time.Sleep(agent.DefaultLease / 4)
		synctest.Wait()
		want("KubeletReady", "is posting ready status", corev1.ConditionTrue)
		events, err := h.CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "Node" {
				reasons = append(reasons, e.Reason)
			}
		}
		if slices.Sort(reasons); !slices.Equal(slices.Compact(reasons), []string{"NodeNotReady", "NodeReady"}) {
			t.Errorf("Events of the node: %q", reasons)
		}
	})
}

// TestNodeWhoseRuntimeIsDownAtFirst checks that the pods of a node that is registered as not ready are not reported as
// ready, and that they are when its runtime works.
func TestNodeWhoseRuntimeIsDownAtFirst(t *testing.T) {
	for name, objects := range map[string][]runtime.Object{
		"a new node":   nil,
		"a known node": {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, objects...)
				h.down.Store(true)
				h.run()
				synctest.Wait()
				h.create("web", nil)
				want := func(ready bool) {
					t.Helper()
					time.Sleep(agent.DefaultLease/4 - time.Second)
					synctest.Wait()
					p, err := h.CoreV1().Pods("ns").Get(t.Context(), "web", metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if got := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
						return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
					}); got != ready {
						t.Errorf("the pod is ready: %t, want %t", got, ready)
					}
				}
				want(false)
				h.down.Store(false)
				want(true)
			})
		})
	}
}

// markNotReady marks a pod as not ready, like the node lifecycle controller.
func (h *host) markNotReady(name string) {
	h.t.Helper()
	p, err := h.CoreV1().Pods("ns").Get(h.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status, c.Reason = corev1.ConditionFalse, "NodeNotReady"
		}
	}
	if _, err := h.CoreV1().Pods("ns").UpdateStatus(h.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}
