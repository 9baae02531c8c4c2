package collector_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// A group version that does not answer holds the owners that may have dependents there: those that are older than the
// outage. One that was never up holds only orphan deletions.
func TestR15_OutagesHoldOlderOwners(t *testing.T) {
	const group = "metrics.example.com/v1"
	began := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	broke, neverUp := apiservice.Outage{Since: began}, apiservice.Outage{Since: began, NeverUp: true}
	for name, test := range map[string]struct {
		outage  apiservice.Outage
		created time.Time // of the owner; zero: it cannot be read
		policy  verdict.Propagation
		held    bool
	}{
		"nothing is known":                         {apiservice.Outage{}, began.Add(time.Hour), foreground, true},
		"the owner is older":                       {broke, began.Add(-time.Hour), foreground, true},
		"the owner is older, orphan":               {broke, began.Add(-time.Hour), orphan, true},
		"the owner is younger":                     {broke, began.Add(2 * time.Minute), foreground, false},
		"the owner is younger, orphan":             {broke, began.Add(2 * time.Minute), orphan, false},
		"the owner is younger by the clocks' skew": {broke, began.Add(time.Minute), foreground, true},
		"the owner cannot be read":                 {broke, time.Time{}, foreground, true},
		"never up":                                 {neverUp, began.Add(-time.Hour), foreground, false},
		"never up, orphan":                         {neverUp, began.Add(-time.Hour), orphan, true},
		"never up, younger, orphan":                {neverUp, began.Add(time.Hour), orphan, false},
		"never up, the owner cannot be read":       {neverUp, time.Time{}, foreground, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.Break(group, test.outage)
			w.set("web")
			w.Date(setRef("web"), test.created)
			w.Remove(setRef("web"), test.policy)
			w.try(3)
			if !test.held {
				w.mustBeGone(setRef("web"))
				return
			}
			w.mustExist(setRef("web"))
			w.Undiscovered()
			w.settle()
			w.mustBeGone(setRef("web"))
		})
	}
}

// A dependent behind an APIService that answers holds as before, whatever else does not answer.
func TestR15_OutagesLoseNoDependents(t *testing.T) {
	w := newFixture(t)
	w.Break("metrics.example.com/v1", apiservice.Outage{Since: time.Unix(1000, 0), NeverUp: true})
	owner := w.set("web")
	w.pod("web-1", blocking(ownedBy(owner)))
	w.Remove(setRef("web"), foreground)
	w.settle()
	w.mustBeGone(setRef("web"))
	w.mustBeGone(podRef("web-1"))
}

// The hold says what ends it. An outage that cannot be read holds.
func TestR15_OutagesAreExplained(t *testing.T) {
	w := newFixture(t)
	w.Break("metrics.example.com/v1", apiservice.Outage{Since: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), Why: "service/metrics in \"ops\" is not present"})
	w.set("web")
	w.Date(setRef("web"), time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC))
	w.Remove(setRef("web"), foreground)
	w.try(3)
	status := w.c.Status().Barrier
	const want = `its discovery fails, so its resources are unknown; APIService v1.metrics.example.com has been unavailable since 2026-05-01T12:00:00Z ` +
		`(service/metrics in "ops" is not present): bring back its service, or delete the APIService if nothing needs it`
	if len(status) != 1 || len(status[0].Holds) != 1 || status[0].Holds[0].Why != want {
		t.Errorf("held by %+v", status)
	}

	failing := newFixture(t)
	failing.Break("metrics.example.com/v1", apiservice.Outage{Since: time.Unix(1000, 0), NeverUp: true})
	failing.Inject(apimodel.Fault{Verb: "outage", Err: errors.New("no route")})
	failing.set("web")
	failing.Remove(setRef("web"), foreground)
	failing.try(3)
	failing.mustExist(setRef("web"))
	if why := failing.c.Status().Barrier[0].Holds[0].Why; strings.Contains(why, "APIService") {
		t.Errorf("it is held: %s", why)
	}
}

// The age of an owner is read once, and only if an outage makes it matter.
func TestR15_AgesAreReadOnce(t *testing.T) {
	w := newFixture(t)
	w.set("web")
	w.Date(setRef("web"), time.Unix(1, 0))
	w.Remove(setRef("web"), foreground)
	w.Break("metrics.example.com/v1", apiservice.Outage{Since: time.Unix(1000, 0)})
	w.try(5)
	read := 0
	for _, r := range w.Requests() {
		if r.Verb == "created" {
			read++
		}
	}
	if read != 1 {
		t.Errorf("the age was read %d times, want once", read)
	}
}
