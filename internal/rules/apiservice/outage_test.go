package apiservice_test

import (
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// R15: a group that does not answer holds the owners that may have dependents there.
func TestR15_OutageHoldsOwnersThatMayHaveDependents(t *testing.T) {
	broke, neverUp := apiservice.Outage{Since: began}, apiservice.Outage{Since: began, NeverUp: true}
	before, skewed, after := began.Add(-time.Hour), began.Add(30*time.Second), began.Add(2*time.Minute)
	for name, test := range map[string]struct {
		outage    apiservice.Outage
		created   time.Time
		finalizer string
		want      bool
	}{
		"nothing is known of the outage":             {apiservice.Outage{}, after, ownership.FinalizerForeground, true},
		"the owner is older":                         {broke, before, ownership.FinalizerForeground, true},
		"the owner is younger than a clock may show": {broke, skewed, ownership.FinalizerForeground, true},
		"the owner is younger":                       {broke, after, ownership.FinalizerForeground, false},
		"the owner is younger, orphan":               {broke, after, ownership.FinalizerOrphan, false},
		"the age of the owner is unknown":            {broke, time.Time{}, ownership.FinalizerForeground, true},
		"never up, foreground":                       {neverUp, before, ownership.FinalizerForeground, false},
		"never up, orphan":                           {neverUp, before, ownership.FinalizerOrphan, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.outage.Holds(test.created, test.finalizer); got != test.want {
				t.Errorf("held: %t, want %t", got, test.want)
			}
		})
	}
}

// R15: the condition Available of an APIService dates its outage.
func TestR15_OutageIsInTheCondition(t *testing.T) {
	condition := func(status, created string) string {
		return `{"metadata": {"creationTimestamp": "` + created + `"}, "status": {"conditions": [
			{"type": "Available", "status": "` + status + `", "lastTransitionTime": "2026-03-01T12:00:00Z", "message": "no endpoints"}]}}`
	}
	for body, want := range map[string]apiservice.Outage{
		condition("False", "2026-03-01T10:00:00Z"):   {Since: began, Why: "no endpoints"},
		condition("False", "2026-03-01T11:59:50Z"):   {Since: began, Why: "no endpoints", NeverUp: true},
		condition("Unknown", "2026-03-01T10:00:00Z"): {},
		condition("True", "2026-03-01T10:00:00Z"):    {},
		`{}`: {},
	} {
		got, err := apiservice.Read([]byte(body))
		if got.Since = got.Since.UTC(); err != nil || !got.Since.Equal(want.Since) || got.NeverUp != want.NeverUp || got.Why != want.Why {
			t.Errorf("%s: %+v, %v; want %+v", body, got, err, want)
		}
	}
	if _, err := apiservice.Read([]byte("<html>")); err == nil {
		t.Error("no error for a body that is no JSON")
	}
}
