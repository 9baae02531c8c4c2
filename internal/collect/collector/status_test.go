package collector_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// measuredKeys is a queue with Len and Oldest.
type measuredKeys struct{ keys }

func (k *measuredKeys) Len() int              { return len(k.waiting) }
func (k *measuredKeys) Oldest() time.Duration { return time.Minute }

func TestStatusCountsObjectsClaimsAndWork(t *testing.T) {
	w := newFixture(t)
	held := w.set("held")
	w.pod("a", ownedBy(held))
	w.pod("b", ownedBy(held), ownership.Reference{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "w"})
	w.pod("c", ownership.Reference{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "w"})
	w.pod("d", ownedBy(held), absent("web"))
	w.settle()
	got := w.c.Status()
	wantGraph := report.GraphStatus{Objects: 5, Presumed: 1, References: 5, Claims: 2}
	if diff := cmp.Diff(wantGraph, got.Graph); diff != "" {
		t.Errorf("graph (-want +got):\n%s", diff)
	}
	wantKinds := []report.KindStatus{
		{Kind: "Node", Scope: "cluster"},
		{Kind: "Pod", Scope: "namespaced", Objects: 4},
		{Kind: "ReplicaSet.apps", Scope: "namespaced", Objects: 1},
		{Kind: "Widget.example.com", Scope: "unknown", Parked: 2},
	}
	if diff := cmp.Diff(wantKinds, got.Kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	if got.Queue != (report.QueueStatus{}) || got.Stats.Park != 1 || got.Stats.Detach != 1 || got.Stats.Gets != 1 {
		t.Errorf("queue %+v, stats %+v", got.Queue, got.Stats)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
	w.c.View(func(g *ownership.Graph) {
		if err := g.Check(); err != nil {
			t.Error(err)
		}
	})
}

func TestStatusOfTheQueue(t *testing.T) {
	q := &measuredKeys{}
	q.Add("a", "b")
	got := collector.New(apimodel.New(), collector.Config{Queue: q}).Status().Queue
	if want := (report.QueueStatus{Length: 2, Oldest: time.Minute}); got != want {
		t.Errorf("queue = %+v, want %+v", got, want)
	}
}

// The time from the end of an owner to the end of its dependent is measured, by event and by
// read.
func TestLatencyIsMeasured(t *testing.T) {
	w, clock := newTimedFixture(t, collector.Config{})
	web := w.set("web")
	w.pod("by-event", ownedBy(web))
	w.set("top")
	w.pod("foreground", blocking(ownedBy(ownership.Object{Kind: setKind, Name: "top", UID: "top"})))
	w.pod("by-read", absent("never"))
	w.settle()
	w.Remove(setRef("web"), background)
	w.Remove(setRef("top"), foreground)
	clock.Step(30 * time.Millisecond)
	w.settle()
	got := w.c.Status().Latency
	if got.Count != 2 || got.Sum != 30*time.Millisecond || len(got.Counts) != len(got.Bounds)+1 {
		t.Fatalf("latency = %+v, want two deletions, one of them after 30 ms", got)
	}
	for i, bound := range got.Bounds {
		want := int64(0)
		if i == 0 || bound == 50*time.Millisecond {
			want = 1
		}
		if got.Counts[i] != want {
			t.Errorf("%d deletions up to %v, want %d", got.Counts[i], bound, want)
		}
	}
	clock.Step(time.Hour)
}

// R12: refused writes are counted, and objects that keep changing.
func TestR12_ConflictsAreCounted(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.pod("pod", ownedBy(web))
	n := 0
	w.Before(func(r apimodel.Request) {
		if r.Verb == "delete" && n < 7 {
			n++
			w.Update(podRef("pod"), func(o *ownership.Object) { o.Finalizers = []string{fmt.Sprint("example.com/", n)} })
		}
	})
	w.Remove(setRef("web"), background)
	w.settle()
	if got := w.c.Stats(); got.Conflicts != 7 || got.Hot != 1 {
		t.Errorf("%d conflicts, %d hot; want 7 and 1", got.Conflicts, got.Hot)
	}
}

// H10, the graph's side: a kind that is gone leaves nothing.
func TestH10KindThatIsGoneLeavesNothingInTheGraph(t *testing.T) {
	w := newFixture(t)
	for range 10 {
		w.Serve(widgetKind, ownership.Namespaced)
		for i := range 20 {
			w.Create(ownership.Object{
				Kind: widgetKind, Namespace: space, Name: fmt.Sprint(i),
				Owners: []ownership.Reference{blocking(ownedBy(ownership.Object{Kind: widgetKind, Name: "0", UID: "x"}))},
			})
		}
		w.Withdraw(widgetKind)
		w.settle()
	}
	got := w.c.Status()
	if got.Graph != (report.GraphStatus{}) || len(got.Kinds) != 3 {
		t.Errorf("graph %+v, kinds %+v; want nothing but the three kinds that are served", got.Graph, got.Kinds)
	}
}

// H9: an object with many absent owners and one whose kind is not served costs one
// list, and nothing when it is reconsidered.
func TestH9ManyAbsentOwnersAreReadOnce(t *testing.T) {
	const n = 2000
	w := newFixtureWith(t, collector.Config{References: 2 * n})
	owners := []ownership.Reference{{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "w"}}
	for i := range n {
		owners = append(owners, absent(fmt.Sprint(i)))
	}
	w.pod("pod", owners...)
	w.settle()
	for range 5 {
		w.Update(podRef("pod"), func(o *ownership.Object) { o.Finalizers = append(o.Finalizers, "example.com/x") })
		w.keys.Add("pod")
		w.settle()
	}
	if lists, requests := w.Count("list"), w.Count(""); lists != 1 || requests != 1 {
		t.Errorf("%d requests, %d of them lists; want one list", requests, lists)
	}
	w.mustExist(podRef("pod"))
}
