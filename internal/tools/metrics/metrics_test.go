package metrics_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
)

func set(s report.Status) *metrics.Set { return metrics.New(func() report.Status { return s }) }

// text returns some metrics of a scrape.
func text(t *testing.T, s *metrics.Set, names ...string) string {
	t.Helper()
	families, err := metrics.Gatherer(s).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, family := range families {
		for _, name := range names {
			if family.GetName() == "coppice_"+name {
				b.WriteString(family.String() + "\n")
			}
		}
	}
	return b.String()
}

// TestScrapeReportsTheReading compares a scrape with its Reading.
func TestScrapeReportsTheReading(t *testing.T) {
	s := set(report.Status{
		Synced: true,
		Resources: []report.ResourceStatus{
			{Kind: "ReplicaSet.apps", Resource: "replicasets.apps", Version: "v1", State: feed.Synced.String()},
			{Kind: "Pod", Resource: "pods", Version: "v1", State: feed.Failing.String()},
		},
		Kinds: []report.KindStatus{{Kind: "ReplicaSet.apps", Objects: 7}, {Kind: "Whatever.a.user.calls.it", Parked: 3}},
		Deletions: []report.DeletionStatus{
			{Kind: "Pod", Objects: 2, Gone: 9},
			{Kind: "ReplicaSet.apps", Finalizer: "foregroundDeletion", Gone: 4},
			{Kind: "Whatever.a.user.calls.it", Finalizer: "example.com/x", Objects: 1},
			{Finalizer: ownership.OtherFinalizers, Objects: 5},
		},
		Queue: report.QueueStatus{Length: 3, Oldest: 1500 * time.Millisecond},
		Barrier: []report.BarrierWait{
			{UID: "a", Holds: []report.Hold{{What: "Widget.example.com"}, {What: "gone.example.com/v1"}}},
			{UID: "b", Holds: []report.Hold{{What: "Widget.example.com"}}},
			{UID: "c"},
		},
		Paused:        []report.Pause{{Kind: "Pod"}},
		RefusedCounts: []report.RefusedCount{{Kind: "Pod", By: "policy", Objects: 2}, {Kind: "Pod", By: "webhook", Objects: 1}},
		Stats:         report.Stats{Delete: 5, Conflicts: 4},
		Latency:       report.Histogram{Bounds: []time.Duration{time.Millisecond, time.Second}, Counts: []int64{1, 2, 3}, Sum: 40 * time.Second, Count: 6},
	})
	want := `
# HELP coppice_barrier_held_owners Owners whose deletion cannot be completed, by the kind or group version that cannot be read.
# TYPE coppice_barrier_held_owners gauge
coppice_barrier_held_owners{by="Widget.example.com"} 2
coppice_barrier_held_owners{by="gone.example.com/v1"} 1
# HELP coppice_barrier_owners Owners whose deletion waits for the proof that no dependent was missed.
# TYPE coppice_barrier_owners gauge
coppice_barrier_owners 3
# HELP coppice_breaker_paused 1 for each kind whose deletions the breaker has paused.
# TYPE coppice_breaker_paused gauge
coppice_breaker_paused{kind="Pod"} 1
# HELP coppice_cascade_seconds Time from the evidence that the last owner of an object is gone to the response to the object's DELETE.
# TYPE coppice_cascade_seconds histogram
coppice_cascade_seconds_bucket{le="0.001"} 1
coppice_cascade_seconds_bucket{le="1"} 3
coppice_cascade_seconds_bucket{le="+Inf"} 6
coppice_cascade_seconds_sum 40
coppice_cascade_seconds_count 6
# HELP coppice_conflicts_total Writes refused because the object had changed since the decision.
# TYPE coppice_conflicts_total counter
coppice_conflicts_total 4
# HELP coppice_graph_objects Objects in the ownership graph.
# TYPE coppice_graph_objects gauge
coppice_graph_objects{resource="pods"} 0
coppice_graph_objects{resource="replicasets.apps"} 7
# HELP coppice_monitor_state 1 for the state that the monitor of a resource is in, 0 for the others.
# TYPE coppice_monitor_state gauge
coppice_monitor_state{resource="pods",state="failing"} 1
coppice_monitor_state{resource="pods",state="synced"} 0
coppice_monitor_state{resource="pods",state="waiting"} 0
coppice_monitor_state{resource="replicasets.apps",state="failing"} 0
coppice_monitor_state{resource="replicasets.apps",state="synced"} 1
coppice_monitor_state{resource="replicasets.apps",state="waiting"} 0
# HELP coppice_parked_kinds Kinds that owner references name and no API serves; objects wait for them.
# TYPE coppice_parked_kinds gauge
coppice_parked_kinds 1
# HELP coppice_parked_references Owner references that name such a kind.
# TYPE coppice_parked_references gauge
coppice_parked_references 3
# HELP coppice_queue_oldest_seconds How long the first of the waiting objects has waited.
# TYPE coppice_queue_oldest_seconds gauge
coppice_queue_oldest_seconds 1.5
# HELP coppice_refused_objects Objects that the server refuses to delete or to change, by the sort of refuser.
# TYPE coppice_refused_objects gauge
coppice_refused_objects{by="policy",controller="garbage-collector-controller",kind="Pod"} 2
coppice_refused_objects{by="webhook",controller="garbage-collector-controller",kind="Pod"} 1
# HELP coppice_synced Whether the controller has read the state of the server and works.
# TYPE coppice_synced gauge
coppice_synced{controller="garbage-collector-controller"} 1
# HELP coppice_terminated_total Objects that lost the finalizer while they were being deleted, or are gone.
# TYPE coppice_terminated_total counter
coppice_terminated_total{finalizer="",resource="pods"} 9
coppice_terminated_total{finalizer="foregroundDeletion",resource="replicasets.apps"} 4
coppice_terminated_total{finalizer="others",resource="others"} 0
# HELP coppice_terminating_objects Objects that are being deleted, by a finalizer that they still have, empty if they have none.
# TYPE coppice_terminating_objects gauge
coppice_terminating_objects{finalizer="",resource="pods"} 2
coppice_terminating_objects{finalizer="foregroundDeletion",resource="replicasets.apps"} 0
coppice_terminating_objects{finalizer="others",resource="others"} 5
`
	var names []string
	for line := range strings.Lines(want) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			names = append(names, strings.Fields(name)[0])
		}
	}
	if err := testutil.GatherAndCompare(metrics.Gatherer(s), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	families, err := metrics.Gatherer(s).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if text := family.String(); strings.Contains(text, "Whatever") {
			t.Errorf("a label has text that users choose: %s", text)
		}
	}
}

// TestMetricsFollowTheConventionsOfPrometheus checks every metric against the conventions of Prometheus.
func TestMetricsFollowTheConventionsOfPrometheus(t *testing.T) {
	s := set(report.Status{})
	problems, err := testutil.GatherAndLint(metrics.Gatherer(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if families, _ := prometheus.DefaultGatherer.Gather(); strings.Contains(familyNames(families), "coppice_") {
		t.Error("something was registered globally")
	}
}

func familyNames[T interface{ GetName() string }](families []T) string {
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return strings.Join(names, " ")
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRequestsAreCountedByVerb counts requests by the verbs of RBAC rules.
func TestRequestsAreCountedByVerb(t *testing.T) {
	for _, c := range []struct{ method, path, verb string }{
		{"GET", "/api/v1/pods", "list"},
		{"GET", "/api/v1/namespaces/shop/pods", "list"},
		{"GET", "/api/v1/namespaces/shop/pods/web", "get"},
		{"GET", "/api/v1/namespaces", "list"},
		{"GET", "/api/v1/namespaces/shop", "get"},
		{"GET", "/apis/apps/v1/replicasets?watch=true&resourceVersion=3", "watch"},
		{"GET", "/clusters/a/apis/apps/v1/namespaces/shop/replicasets/web", "get"},
		{"DELETE", "/apis/apps/v1/namespaces/shop/replicasets/web", "delete"},
		{"DELETE", "/apis/apps/v1/namespaces/shop/replicasets", "deletecollection"},
		{"PATCH", "/api/v1/nodes/one", "patch"},
		{"POST", "/api/v1/namespaces/default/events", "create"},
		{"PUT", "/api/v1/namespaces/shop/finalize", "update"},
		{"GET", "/api", "discover"},
		{"GET", "/api/v1", "discover"},
		{"GET", "/apis", "discover"},
		{"GET", "/apis/apps/v1", "discover"},
		{"GET", "/version", "discover"},
	} {
		s := set(report.Status{})
		next := s.Transport(transport(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusConflict, Body: http.NoBody}, nil
		}))
		if _, err := next.RoundTrip(httptest.NewRequest(c.method, "https://server"+c.path, http.NoBody)); err != nil {
			t.Fatal(err)
		}
		got := text(t, s, "requests_total")
		if !strings.Contains(got, `value:"`+c.verb+`"`) || !strings.Contains(got, `value:"409"`) {
			t.Errorf("%s %s is counted as %s, want %s and 409", c.method, c.path, got, c.verb)
		}
	}
	s := set(report.Status{})
	broken := errors.New("broken")
	_, err := s.Transport(transport(func(*http.Request) (*http.Response, error) { return nil, broken })).
		RoundTrip(httptest.NewRequest(http.MethodGet, "https://server/api/v1/pods", http.NoBody))
	if !errors.Is(err, broken) || !strings.Contains(text(t, s, "requests_total"), `value:"none"`) {
		t.Errorf("a request without a response: %v, %s", err, text(t, s, "requests_total"))
	}
}

// TestBothControllersShareARegistry registers the metrics of both controllers with one registry of the user's: a
// label distinguishes the families that both have.
func TestBothControllersShareARegistry(t *testing.T) {
	collector, namespaces := set(report.Status{Synced: true}), metrics.ForNamespaces(func() bool { return false }, func() []report.RefusedCount { return nil })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector, namespaces)
	for _, s := range []*metrics.Set{collector, namespaces, namespaces} {
		next := s.Transport(transport(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}))
		if _, err := next.RoundTrip(httptest.NewRequest(http.MethodGet, "https://server/api/v1/pods", http.NoBody)); err != nil {
			t.Fatal(err)
		}
	}
	want := `
# HELP coppice_requests_total Requests to the API server, by verb and HTTP status code; the code is "none" when there was no response.
# TYPE coppice_requests_total counter
coppice_requests_total{code="200",controller="garbage-collector-controller",verb="list"} 1
coppice_requests_total{code="200",controller="namespace-controller",verb="list"} 2
# HELP coppice_synced Whether the controller has read the state of the server and works.
# TYPE coppice_synced gauge
coppice_synced{controller="garbage-collector-controller"} 1
coppice_synced{controller="namespace-controller"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "coppice_requests_total", "coppice_synced"); err != nil {
		t.Error(err)
	}
}

// The age counts from the time when the object should have been gone, after its grace period.
func TestAgeOfADeletionBeginsAfterItsGracePeriod(t *testing.T) {
	now := time.Now()
	s := set(report.Status{
		Resources: []report.ResourceStatus{{Kind: "Pod", Resource: "pods", Version: "v1"}},
		Deletions: []report.DeletionStatus{
			{Kind: "Pod", Finalizer: "example.com/late", Objects: 1, Oldest: now.Add(-time.Hour)},
			{Kind: "Pod", Finalizer: "example.com/in-time", Objects: 1, Oldest: now.Add(time.Hour)},
		},
	})
	families, err := metrics.Gatherer(s).Gather()
	if err != nil {
		t.Fatal(err)
	}
	ages := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "coppice_terminating_oldest_seconds" {
				ages[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if late := ages["example.com/late"]; len(ages) != 2 || late < 3600 || late > 3660 || ages["example.com/in-time"] != 0 {
		t.Errorf("the ages are %v", ages)
	}
}
