package ask

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// TestCollectorState: the state of a collector is parsed from its diagnostics. A collector that only observes
// collects nothing.
func TestCollectorState(t *testing.T) {
	const both = "# HELP x\ncoppice_synced{controller=\"garbage-collector-controller\"} 1\ncoppice_synced{controller=\"namespace-controller\"} 1\n"
	for _, test := range []struct {
		name, metrics     string
		observes          bool
		collects, empties bool
	}{
		{"both", both, false, true, true},
		{"observes", both, true, false, true},
		{"not synced", strings.ReplaceAll(both, " 1\n", " 0\n"), false, false, false},
		{"the collector alone", strings.ReplaceAll(both, "namespace-", "other-"), false, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			status := report.Status{
				ObserveOnly: test.observes,
				Barrier:     []report.BarrierWait{{UID: "u", Since: since, Holds: []report.Hold{{What: "Widget.acme.io", Why: "forbidden"}}}},
				Paused:      []report.Pause{{Kind: "ReplicaSet.apps", Since: since}},
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method != http.MethodGet:
					t.Errorf("a %s was sent", r.Method)
				case r.URL.Path == "/status":
					_ = json.NewEncoder(w).Encode(status)
				case r.URL.Path == "/metrics":
					_, _ = io.WriteString(w, test.metrics)
				default:
					http.NotFound(w, r)
				}
			}))
			defer server.Close()
			collector, err := (&Sources{Address: server.URL}).diagnostics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s, err := collector.state(t.Context())
			if err != nil || s.Collects != test.collects || s.Empties != test.empties || !s.Paused[ownership.Kind{Group: "apps", Kind: "ReplicaSet"}].Equal(since) {
				t.Errorf("%+v, %v", s, err)
			}
			if held := s.Held["u"]; !held.Since.Equal(since) || !slices.Equal(held.Unread, []explain.HeldBy{{What: "Widget.acme.io", Why: "forbidden"}}) {
				t.Errorf("held: %+v", held)
			}
			if _, err := collector.records(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") {
				t.Errorf("a collector that the user has named, and that has no records: %v", err)
			}
		})
	}
}
