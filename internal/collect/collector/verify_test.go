package collector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// AC-01: one read serves all dependents of an absent owner.
func TestOneReadForAllSiblings(t *testing.T) {
	const n = 100
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		slow := make(chan struct{})
		s.Inject(apimodel.Fault{Verb: "get", Wait: slow})
		for i := range n {
			s.Create(ownership.Object{
				Kind: podKind, Namespace: space, Name: fmt.Sprint("pod-", i), Owners: []ownership.Reference{absent("web")},
			})
		}
		synctest.Wait()
		if got := s.Count(""); got != 1 {
			t.Errorf("%d requests while the read is under way, want 1", got)
		}
		close(slow)
		synctest.Wait()
		if got := s.Count("get"); got != 1 {
			t.Errorf("%d reads, want 1", got)
		}
		if got := s.Len(); got != 0 {
			t.Errorf("%d objects are left, want none", got)
		}
	})
}

func TestOneReadForAllSiblingsAtFullSpeed(t *testing.T) {
	const n = 500
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		s.Hold(podKind) // else the first is gone, and the answer with it, before the second comes
		for i := range n {
			s.Create(ownership.Object{
				Kind: podKind, Namespace: space, Name: fmt.Sprint("pod-", i), Owners: []ownership.Reference{absent("web")},
			})
		}
		s.Unhold(podKind)
		synctest.Wait()
		if gets, left := s.Count("get"), s.Len(); gets != 1 || left != 0 {
			t.Errorf("%d reads, %d objects are left; want 1 and none", gets, left)
		}
	})
}

// R3: a read that fails is no evidence. All objects that waited for it come back.
func TestR3_FailedReadIsNoEvidence(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		s.Inject(apimodel.Fault{Verb: "get", Err: apierrors.NewServiceUnavailable("away")})
		for i := range 10 {
			s.Create(ownership.Object{
				Kind: podKind, Namespace: space, Name: fmt.Sprint("pod-", i), Owners: []ownership.Reference{absent("web")},
			})
		}
		time.Sleep(10 * time.Minute)
		if got := s.Count("delete"); got != 0 {
			t.Fatalf("%d objects deleted without evidence", got)
		}
		s.Heal()
		time.Sleep(2 * time.Minute)
		if got := s.Len(); got != 0 {
			t.Errorf("%d objects are left, want none", got)
		}
	})
}

// An object that waits for another object's read comes back when the read fails, even if
// the other object does not.
func TestR3_WhoWaitedForFailedReadComesBack(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		answer := make(chan struct{})
		s.Inject(apimodel.Fault{Verb: "get", Times: 1, Wait: answer, Err: apierrors.NewServiceUnavailable("away")})
		for _, name := range []string{"first", "second"} {
			s.Create(ownership.Object{
				Kind: podKind, Namespace: space, Name: name, Owners: []ownership.Reference{absent("web")},
			})
			synctest.Wait()
		}
		s.Remove(podRef("first"), background)
		close(answer)
		time.Sleep(time.Minute)
		if got := s.Len(); got != 0 {
			t.Errorf("%d objects are left, want none", got)
		}
	})
}

// The back-off of an object ends when it is settled.
func TestBackoffStartsAnew(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		held := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "held"})
		s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: "pod", Owners: []ownership.Reference{ownedBy(held)}})
		for round := range 2 {
			s.Inject(apimodel.Fault{Verb: "get", Times: 10, Err: apierrors.NewServiceUnavailable("away")})
			start := time.Now()
			s.Update(podRef("pod"), addOwner(absent(fmt.Sprint(round))))
			time.Sleep(4 * time.Second)
			synctest.Wait()
			if got := s.Count("patch owners"); got > round {
				t.Errorf("round %d: settled within %v, although ten reads failed", round, time.Since(start))
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := s.Count("patch owners"); got != round+1 {
				t.Errorf("round %d: %d patches after %v, want %d", round, got, time.Since(start), round+1)
			}
		}
	})
}

// R3: another UID at the coordinates is evidence.
func TestR3_OtherUIDIsAbsence(t *testing.T) {
	w := newFixture(t)
	w.Hold(setKind)
	w.set("web")
	stale := absent("web")
	w.pod("pod", stale)
	w.settle()
	w.mustBeGone(podRef("pod"))
	w.mustHaveRequested("get", "delete")
}

// CS-01: the watch of the owner's kind lags. The child of a live owner is kept,
// the child of a missing one is deleted, the child of an unknown kind is kept.
func TestLaggingWatchOfOwnersDeletesNoChildOfALiveOwner(t *testing.T) {
	w := newFixture(t)
	w.Hold(nodeKind)
	node := w.Create(ownership.Object{Kind: nodeKind, Name: "n", UID: "n"})
	w.pod("live", ownedBy(node))
	w.pod("missing", ownership.Reference{APIVersion: "v1", Kind: "Node", Name: "m", UID: "m"})
	w.pod("unknown", ownership.Reference{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "w"})
	w.drain()
	w.mustExist(podRef("live"), podRef("unknown"))
	w.mustBeGone(podRef("missing"))
	w.Unhold(nodeKind)
	w.settle()
	w.mustExist(podRef("live"), podRef("unknown"))

	// R7: parked until the kind appears, without a request until then.
	before := w.Count("")
	w.keys.Add("unknown")
	w.settle()
	if got := w.Count("") - before; got != 0 {
		t.Errorf("%d requests for a parked object, want none", got)
	}
	w.Serve(ownership.Kind{Group: "example.com", Kind: "Widget"}, ownership.Namespaced)
	w.settle()
	w.mustBeGone(podRef("unknown"))
}

// An owner that was read live and is never observed is read again, less and less
// often, and no longer when no dependent is left.
func TestUnobservedOwnerIsReadAgain(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		s.Hold(nodeKind)
		node := s.Create(ownership.Object{Kind: nodeKind, Name: "n"})
		ref := client.Ref{Kind: nodeKind, Name: "n"}
		for i := range 50 {
			s.Create(ownership.Object{
				Kind: podKind, Namespace: space, Name: fmt.Sprint("pod-", i), Owners: []ownership.Reference{ownedBy(node)},
			})
		}
		time.Sleep(10 * time.Minute)
		early := s.Count("get")
		time.Sleep(10 * time.Minute)
		if got := s.Count("get") - early; got < 9 || got > 15 {
			t.Errorf("%d reads in ten minutes, want about one a minute for all 50", got)
		}
		if got := s.Count("delete"); got != 0 {
			t.Fatalf("%d deleted although the owner exists", got)
		}
		s.Remove(ref, background) // its DELETED event never comes
		time.Sleep(2 * time.Minute)
		if got := s.Len(); got != 0 {
			t.Errorf("%d objects are left, want none", got)
		}
		rest := s.Count("get")
		time.Sleep(time.Hour)
		if got := s.Count("get") - rest; got != 0 {
			t.Errorf("%d reads after all is done, want none", got)
		}
	})
}

// It is also not read when its kind is no longer served: the dependents are parked.
func TestUnobservedOwnerOfWithdrawnKindIsNotReadAgain(t *testing.T) {
	w := newFixture(t)
	w.Hold(widgetKind)
	w.Serve(widgetKind, ownership.Namespaced)
	widget := w.Create(ownership.Object{Kind: widgetKind, Namespace: space, Name: "w", UID: "w"})
	w.pod("pod", ownedBy(widget))
	w.try(3)
	w.Withdraw(widgetKind)
	w.settle()
	w.mustExist(podRef("pod"))

	// It is served again, and read again.
	w.Serve(widgetKind, ownership.Namespaced)
	w.settle()
	w.mustBeGone(podRef("pod"))
}

// An owner without dependents is not read.
func TestUnobservedOwnerWithoutDependentsIsNotReadAgain(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		s.Hold(nodeKind)
		node := s.Create(ownership.Object{Kind: nodeKind, Name: "n"})
		s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: "pod", Owners: []ownership.Reference{ownedBy(node)}})
		time.Sleep(time.Minute)
		s.Remove(podRef("pod"), background)
		time.Sleep(2 * time.Minute)
		before := s.Count("")
		time.Sleep(time.Hour)
		if got := s.Count("") - before; got != 0 {
			t.Errorf("%d requests in an hour, want none", got)
		}
	})
}

// Once the owner is observed it is no longer read (L4).
func TestObservedOwnerIsNotReadAgain(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		s.Hold(nodeKind)
		node := s.Create(ownership.Object{Kind: nodeKind, Name: "n"})
		s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: "pod", Owners: []ownership.Reference{ownedBy(node)}})
		time.Sleep(time.Minute)
		s.Unhold(nodeKind)
		time.Sleep(2 * time.Minute)
		before := s.Count("")
		time.Sleep(time.Hour)
		if got := s.Count("") - before; got != 0 {
			t.Errorf("%d requests in an hour in which nothing happened", got)
		}
	})
}

// H8, small: an object with many fake owners of one kind costs one list, and
// those that exist among them are found.
func TestManyClaimsAreReadTogether(t *testing.T) {
	w := newFixtureWith(t, collector.Config{References: 2000})
	w.Hold(setKind) // so that nothing is known of what exists
	var owners []ownership.Reference
	for i := range 1000 {
		owners = append(owners, absent(fmt.Sprint("owner-", i)))
	}
	here := w.set("here")
	w.set("owner-7") // another one than the one that is claimed
	w.pod("pod", append(owners, ownedBy(here))...)
	w.collect("pod")
	if lists, gets := w.Count("list"), w.Count("get"); lists != 1 || gets != 0 {
		t.Errorf("%d lists and %d reads, want one list", lists, gets)
	}
	w.Unhold(setKind)
	w.settle()
	w.mustHaveOwners(podRef("pod"), "here")
	w.mustExist(setRef("owner-7"))
}

// Where there are many more objects of the kind than claims on them, or the kind
// cannot be listed, claims are read one by one, and do not keep a worker until all
// of them are.
func TestManyClaimsAreReadInTurns(t *testing.T) {
	w := newFixtureWith(t, collector.Config{References: 200})
	w.Inject(apimodel.Fault{Verb: "list", Kind: setKind, Err: errForbidden})
	var owners []ownership.Reference
	for i := range 100 {
		owners = append(owners, absent(fmt.Sprint("owner-", i)))
	}
	w.pod("pod", owners...)
	w.keys.Take()
	w.collect("pod")
	if got := w.Count("get"); got != 16 {
		t.Errorf("%d reads at once, want 16", got)
	}
	w.settle()
	w.mustBeGone(podRef("pod"))
	if got := w.Count("get"); got != 100 {
		t.Errorf("%d reads, want 100", got)
	}
}

// Run ends with its context even while requests hang.
func TestRunEndsWithItsContext(t *testing.T) {
	running(t, collector.Config{Workers: 20}, func(s *apimodel.Server, _ *collector.Collector) {
		const kinds = 10
		for i := range kinds {
			s.Serve(ownership.Kind{Group: "example.com", Kind: fmt.Sprint("Kind", i)}, ownership.Namespaced)
		}
		s.Inject(apimodel.Fault{Wait: make(chan struct{})})
		for i := range 50 {
			s.Create(ownership.Object{
				Kind: podKind, Namespace: space, Name: fmt.Sprint("pod-", i), Owners: []ownership.Reference{
					{APIVersion: "example.com/v1", Kind: fmt.Sprint("Kind", i%kinds), Name: fmt.Sprint(i), UID: ownership.UID(fmt.Sprint(i))},
				},
			})
		}
		synctest.Wait()
		if got := s.Count("get"); got != 20 {
			t.Errorf("%d requests under way, want one for each of 20 workers", got)
		}
	})
}

// eventLog is an Events that records, and fails if it is configured to.
type eventLog struct {
	mu    sync.Mutex
	lines []string
	err   error
}

func (l *eventLog) Warn(_ context.Context, regarding ownership.Object, reason, message string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%s %s: %s", client.RefOf(regarding), reason, message))
	return l.err
}

// R5: a reference out of scope is reported on the dependent, once.
func TestR5_OutOfScopeIsReportedOnce(t *testing.T) {
	events := &eventLog{err: errors.New("no events today")}
	w := newFixtureWith(t, collector.Config{Events: events})
	node := w.Create(ownership.Object{Kind: nodeKind, Name: "n", UID: "n", Owners: []ownership.Reference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web"},
	}})
	w.settle()
	w.Update(client.RefOf(node), addFinalizer("example.com/own"))
	w.keys.Add("n")
	w.settle()
	if len(events.lines) != 1 || !strings.Contains(events.lines[0], "Node n OwnerRefInvalidNamespace: ownerRef [apps/v1/ReplicaSet, name: web, uid: web]") {
		t.Fatalf("events = %q, want one", events.lines)
	}
	w.Update(client.RefOf(node), addOwner(ownership.Reference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}))
	w.keys.Add("n")
	w.settle()
	if len(events.lines) != 2 {
		t.Errorf("%d events after another bad reference, want 2", len(events.lines))
	}
	w.mustExist(client.RefOf(node))
	w.mustHaveRequested()
}

// R5: the same for an owner that lives in another namespace; the dependent goes.
func TestR5_OwnerInOtherNamespace(t *testing.T) {
	events := &eventLog{}
	w := newFixtureWith(t, collector.Config{Events: events})
	web := w.set("web")
	w.Create(ownership.Object{Kind: podKind, Namespace: "elsewhere", Name: "pod", UID: "pod", Owners: []ownership.Reference{ownedBy(web)}})
	w.settle()
	w.mustBeGone(client.Ref{Kind: podKind, Namespace: "elsewhere", Name: "pod"})
	w.mustExist(setRef("web"))
	if len(events.lines) != 1 || !strings.Contains(events.lines[0], `does not exist in namespace "elsewhere"`) ||
		!strings.Contains(events.lines[0], space) {
		t.Errorf("events = %q, want one that names both namespaces", events.lines)
	}
}
