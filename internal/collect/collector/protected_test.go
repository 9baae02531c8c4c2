package collector_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// The deletion of a protected object is tried once a minute at most, and at once when it has changed.
// One Event reports each object that waits for it, with the reason. Nothing else waits.
func TestR28_ProtectedObjectsAreParked(t *testing.T) {
	refusal := protection.New("always", "").Decide(protection.Cascade, nil).Error(schema.GroupResource{Resource: "pods"}, space, "kept")
	events := &eventLog{}
	running(t, collector.Config{Events: events}, func(s *apimodel.Server, c *collector.Collector) {
		web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "web", UID: "web"})
		for _, name := range []string{"kept", "other"} {
			s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: name, UID: ownership.UID(name), Owners: []ownership.Reference{blocking(ownedBy(web))}})
		}
		synctest.Wait()
		s.Inject(apimodel.Fault{Verb: "delete", Ref: podRef("kept"), Err: refusal})
		s.Remove(setRef("web"), foreground)
		synctest.Wait()
		if _, there := s.Lookup(podRef("other")); there {
			t.Error("what is not protected waits")
		}
		const minutes = 10
		time.Sleep(minutes * time.Minute)
		synctest.Wait()
		if got := countDeletes(s, "kept"); got < minutes || got > minutes+1 {
			t.Errorf("%d DELETEs of the protected object in %d minutes", got, minutes)
		}
		if _, unfinished := c.Work(); len(unfinished) > 0 {
			t.Errorf("a protected object is work: %q", unfinished)
		}
		events.mustSay(t, "Pod shop/kept GarbageCollectionProtected: it would be collected, but is protected by its label",
			"ReplicaSet.apps shop/web GarbageCollectionProtected: its foreground deletion waits for Pod shop/kept, which is protected by its label")

		// Observations of other objects have no effect; an observation of the object itself has one at
		// once.
		before := countDeletes(s, "kept")
		s.Update(setRef("web"), addFinalizer("example.com/hold"))
		synctest.Wait()
		s.Update(setRef("web"), removeFinalizer("example.com/hold"))
		synctest.Wait()
		if got := countDeletes(s, "kept"); got != before {
			t.Errorf("%d more DELETEs although the object is as it was", got-before)
		}
		s.Heal()
		time.Sleep(time.Second)
		s.Update(podRef("kept"), addFinalizer("example.com/lifted"))
		s.Update(podRef("kept"), removeFinalizer("example.com/lifted"))
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		for _, ref := range []string{"kept", "web"} {
			if _, there := s.Lookup(podRef(ref)); there {
				t.Errorf("pod %s is there after its protection was lifted", ref)
			}
		}
		if _, there := s.Lookup(setRef("web")); there {
			t.Error("the owner is there after the protection was lifted")
		}
	})
}

// A protected object is tried at once when an object is gone that it outlives, as far as the refusal names it.
func TestR28_OutlivedObjectsEndTheWait(t *testing.T) {
	p := protection.New("outlives", `[{"apiVersion":"v1","kind":"Pod","name":"consumer"}]`)
	refusal := p.Decide(protection.Cascade, []protection.Remaining{{Outlived: p.Outlives[0]}}).Error(schema.GroupResource{Resource: "pods"}, space, "kept")
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "web", UID: "web"})
		s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: "kept", UID: "kept", Owners: []ownership.Reference{ownedBy(web)}})
		for _, name := range []string{"consumer", "stranger"} {
			s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: name, UID: ownership.UID(name)})
		}
		synctest.Wait()
		s.Inject(apimodel.Fault{Verb: "delete", Ref: podRef("kept"), Err: refusal})
		s.Remove(setRef("web"), background)
		time.Sleep(2 * time.Second)
		before := countDeletes(s, "kept")
		s.Remove(podRef("stranger"), background)
		time.Sleep(2 * time.Second)
		if after := countDeletes(s, "kept"); before == 0 || after != before {
			t.Errorf("%d DELETEs, and %d after another object is gone", before, after)
		}
		s.Heal()
		s.Remove(podRef("consumer"), background)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, there := s.Lookup(podRef("kept")); there {
			t.Error("the object waits although the object that it outlives is gone")
		}
	})
}

func countDeletes(s *apimodel.Server, pod string) (n int) {
	for _, r := range s.Requests() {
		if r.Verb == "delete" && r.Ref == podRef(pod) {
			n++
		}
	}
	return n
}

// mustSay fails unless these are the beginnings of the Events, each once.
func (l *eventLog) mustSay(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.lines
	if len(got) != len(want) {
		t.Errorf("Events: %q, want %d", got, len(want))
	}
	for i := range min(len(got), len(want)) {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("Event %q, want %q", got[i], want[i])
		}
	}
}
