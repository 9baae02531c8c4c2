package collector_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// newTimedFixture returns a fixture whose clock stands at noon.
func newTimedFixture(t *testing.T, config collector.Config) (*fixture, *clocktesting.FakeClock) {
	clock := clocktesting.NewFakeClock(noon)
	config.Clock = clock
	return newFixtureWith(t, config), clock
}

// A record has the action, its object, and the evidence.
func TestRecordHasActionObjectAndEvidence(t *testing.T) {
	w, clock := newTimedFixture(t, collector.Config{})
	web := w.set("web")
	pod := w.pod("pod", ownedBy(web), absent("never"))
	w.try(1)
	clock.Step(time.Second)
	w.Remove(setRef("web"), background)
	w.settle()

	records := w.c.Records()
	if len(records) != 2 {
		t.Fatalf("records = %+v, want a detach and a delete", records)
	}
	if records[0].Action != report.ActionDetach || records[0].Owners[0].Standing != "solid" ||
		records[0].Owners[0].Evidence != "observation" || records[0].Owners[1].Evidence != "live read" ||
		!records[0].Owners[1].Time.Equal(noon) {
		t.Errorf("first = %+v", records[0])
	}
	now, _ := w.Lookup(podRef("pod"))
	_ = now
	got := records[1]
	revision := got.Owners[0].Revision
	want := report.Record{
		Number: 2, Time: noon.Add(time.Second), Action: report.ActionDelete, Policy: metav1.DeletePropagationBackground, Answer: report.AnswerDone,
		Object:   report.RecordedObject{Kind: "Pod", Namespace: space, Name: "pod", UID: "pod", ResourceVersion: got.Object.ResourceVersion},
		Decision: "delete Background: owners absent: ReplicaSet.apps web",
		Owners: []report.Owner{{
			Kind: "ReplicaSet.apps", Namespace: space, Name: "web", UID: "web", Standing: "dangling",
			Evidence: "deleted event", Revision: revision, Time: noon.Add(time.Second),
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if revision == 0 || got.Object.ResourceVersion == pod.ResourceVersion {
		t.Errorf("revision %d of the event, object at %s", revision, got.Object.ResourceVersion)
	}
	text, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(text), `"evidence":"deleted event"`) || strings.Contains(string(text), "moreOwners") {
		t.Errorf("JSON = %s, %v", text, err)
	}
}

// Every kind of change leaves a record with the policy of its deletion.
func TestRecordOfEveryChange(t *testing.T) {
	lines := func(w *fixture) (lines []string) {
		for _, r := range w.c.Records() {
			lines = append(lines, fmt.Sprintf("%s %s %s %s", r.Action, r.Object.Name, r.Policy, r.Answer))
		}
		return lines
	}
	tests := map[string]struct {
		run  func(w *fixture)
		want []string
	}{
		"orphan": {func(w *fixture) {
			w.pod("pod", ownedBy(w.set("web")))
			w.Remove(setRef("web"), orphan)
		}, []string{"orphan pod Orphan done", "remove-finalizer web Orphan done"}},
		"foreground": {func(w *fixture) {
			w.pod("pod", blocking(ownedBy(w.set("web"))))
			w.Remove(setRef("web"), foreground)
		}, []string{"delete pod Background done", "remove-finalizer web Foreground done"}},
		"cycle": {func(w *fixture) {
			w.set("a", blocking(ownedBy(ownership.Object{Kind: setKind, Name: "a", UID: "a"})))
			w.Remove(setRef("a"), foreground)
		}, []string{"unblock a Foreground done", "remove-finalizer a Foreground done"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			test.run(w)
			w.settle()
			if diff := cmp.Diff(test.want, lines(w)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A refused request leaves no record; a request without an answer may have changed something.
func TestRecordOfRefusalAndSilence(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"forbidden": {errForbidden, 0}, "throttled": {apierrors.NewTooManyRequests("x", 1), 0},
		"timeout": {errTimeout, 1}, "internal": {apierrors.NewInternalError(errors.New("x")), 1}, "cut": {errors.New("connection reset"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.pod("pod", absent("web"))
			w.Inject(apimodel.Fault{Verb: "delete", Times: 1, Err: test.err, Committed: true})
			w.settle()
			records := w.c.Records()
			unknown := 0
			for _, r := range records {
				if r.Answer == report.AnswerUnknown && r.Error != "" {
					unknown++
				}
			}
			if unknown != test.want {
				t.Errorf("records = %+v, want %d without an answer", records, test.want)
			}
		})
	}
}

func TestRecordsAreBounded(t *testing.T) {
	for size, want := range map[int]int{3: 3, 100: 10, 0: 10, -1: 0} {
		w := newFixtureWith(t, collector.Config{Records: size})
		for i := range 10 {
			w.pod(fmt.Sprint("pod-", i), absent(fmt.Sprint(i)))
		}
		w.settle()
		records := w.c.Records()
		if len(records) != want {
			t.Fatalf("size %d: %d records, want %d", size, len(records), want)
		}
		for i, r := range records {
			if r.Number != uint64(10-want+i+1) {
				t.Errorf("size %d: record %d has number %d", size, i, r.Number)
			}
		}
	}
}

// The last records are kept in their order, after any number of earlier ones.
func TestLastRecordsAreKeptInOrder(t *testing.T) {
	const size, n = 500, 1700
	w := newFixtureWith(t, collector.Config{Records: size})
	for i := range n {
		w.pod(fmt.Sprint("pod-", i), absent(strings.Repeat("x", 200)))
	}
	w.settle()
	records := w.c.Records()
	if len(records) != size {
		t.Fatalf("%d records, want %d", len(records), size)
	}
	names := make(map[string]bool)
	for i, r := range records {
		names[r.Object.Name] = true
		if r.Number != uint64(n-size+i+1) || len(r.Owners) != 1 || r.Owners[0].Name != strings.Repeat("x", 200) {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if len(names) != size {
		t.Errorf("%d objects, want %d", len(names), size)
	}
}

func TestRecordNamesAFewOwners(t *testing.T) {
	w := newFixture(t)
	var owners []ownership.Reference
	for i := range 20 {
		owners = append(owners, absent(fmt.Sprint(i)))
	}
	w.pod("pod", owners...)
	w.settle()
	records := w.c.Records()
	if len(records) != 1 || len(records[0].Owners) != 8 || records[0].MoreOwners != 12 {
		t.Errorf("records = %+v, want 8 owners and 12 more", records)
	}
}

// Observe-only: everything is decided and recorded once, and nothing is written.
func TestObserveOnlyWritesNothing(t *testing.T) {
	events := &eventLog{}
	w := newFixtureWith(t, collector.Config{ObserveOnly: true, Events: events})
	w.pod("garbage", absent("web"))
	w.pod("detached", absent("web"), ownedBy(w.set("held")))
	w.pod("orphan", ownedBy(w.set("leaving")))
	w.Remove(setRef("leaving"), orphan)
	w.set("foreground")
	w.Remove(setRef("foreground"), foreground)
	w.set("cycle", blocking(ownedBy(ownership.Object{Kind: setKind, Name: "cycle", UID: "cycle"})))
	w.Remove(setRef("cycle"), foreground)
	w.Create(ownership.Object{Kind: nodeKind, Name: "n", Owners: []ownership.Reference{absent("web")}})
	for range 3 {
		w.keys.Add("garbage", "detached", "leaving", "foreground", "cycle")
		w.settle()
	}
	if n := w.Count("") - w.Count("get"); n != 0 {
		t.Errorf("%d requests other than reads", n)
	}
	if len(events.lines) != 0 {
		t.Errorf("events = %q, want none", events.lines)
	}
	got := map[report.Action]int{}
	for _, r := range w.c.Records() {
		got[r.Action]++
		if r.Answer != report.AnswerNone {
			t.Errorf("record %+v, want one that was only observed", r)
		}
	}
	want := map[report.Action]int{"delete": 1, "detach": 1, "orphan": 1, "remove-finalizer": 1, "unblock": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if !w.c.Status().ObserveOnly {
		t.Error("the status does not say so")
	}
}

// The breaker: deletions stop, an Event says so, and they continue after Resume.
func TestBreakerPausesAndResumes(t *testing.T) {
	events := &eventLog{}
	w, clock := newTimedFixture(t, collector.Config{
		Events: events, Breaker: collector.Breaker{Share: 0.25, Window: time.Minute, Min: 5},
	})
	web := w.set("web")
	for i := range 40 {
		w.pod(fmt.Sprint("pod-", i), ownedBy(web))
	}
	w.Remove(setRef("web"), background)
	w.settle()
	if got := w.Count("delete"); got != 10 {
		t.Fatalf("%d deleted, want 10 of 40", got)
	}
	status := w.c.Status()
	want := []report.Pause{{Kind: "Pod", Since: noon, Deleted: 10, Objects: 40}}
	if diff := cmp.Diff(want, status.Paused); diff != "" {
		t.Errorf("paused (-want +got):\n%s", diff)
	}
	if status.Stats.Tripped != 1 || status.Stats.Paused != 30 {
		t.Errorf("stats = %+v, want tripped once, 30 paused", status.Stats)
	}
	if len(events.lines) != 1 || !strings.Contains(events.lines[0], "GarbageCollectionPaused: deletions of Pod are paused: 10 of 40") {
		t.Errorf("events = %q, want one", events.lines)
	}
	// It pauses nothing else, and does not end by itself.
	w.set("other", absent("never"))
	clock.Step(time.Hour)
	w.settle()
	w.mustBeGone(setRef("other"))

	if w.c.Resume(setKind) {
		t.Error("resumed what was not paused")
	}
	if !w.c.Resume(podKind) {
		t.Fatal("not resumed")
	}
	w.settle()
	if got := w.Len(); got != 0 {
		t.Errorf("%d objects are left after the resume", got)
	}
	if got := w.c.Status().Paused; len(got) != 0 {
		t.Errorf("paused = %+v", got)
	}
}

// A DELETE that is refused does not count for the breaker.
func TestBreakerDoesNotCountWhatIsRefused(t *testing.T) {
	w, _ := newTimedFixture(t, collector.Config{Breaker: collector.Breaker{Share: 0.9, Min: 1}})
	w.Inject(apimodel.Fault{Verb: "delete", Times: 20, Err: errForbidden})
	w.pod("pod", absent("web"))
	w.settle()
	w.mustBeGone(podRef("pod"))
}
