package deploy_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"sigs.k8s.io/yaml"
)

// expressions returns the expressions of the alerts, by name.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &rule); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			found[r.Alert] = r.Expr
		}
	}
	return found
}

// TestAlertsOfDeletions: the alerts fire for deletions that are stuck, and not for slow ones. Each case has
// the series of two hours, a sample each minute, in Prometheus' own notation.
func TestAlertsOfDeletions(t *testing.T) {
	t.Parallel()
	const (
		stuck  = "CoppiceDeletionStuck"
		owners = "CoppiceOwnerDeletionStuck"

		// What ages, and what is let go or not.
		ages    = " 0+60x120\n"
		rises   = " 0+1x120\n"
		stays   = " 7+0x120\n"
		young   = " 60+0x120\n"
		oldest  = "coppice_terminating_oldest_seconds"
		gone    = "coppice_terminated_total"
		held    = `{resource="widgets.example.com",finalizer="example.com/hold"}`
		owner   = `{resource="deployments.apps",finalizer="foregroundDeletion"}`
		space   = `{resource="namespaces",finalizer=""}`
		pods    = `{resource="pods",finalizer=""}`
		crd     = `{resource="customresourcedefinitions.apiextensions.k8s.io",finalizer="customresourcecleanup.apiextensions.k8s.io"}`
		deletes = `coppice_decisions_total{decision="delete"}`
	)
	for _, test := range []struct {
		name, series string
		want         []string
	}{
		{"a finalizer that nobody removes", oldest + held + ages + gone + held + stays, []string{stuck}},
		{"the first deletion since the start", oldest + held + ages + gone + held + " 0+0x120\n", []string{stuck}},
		{"one after the other is let go", oldest + held + ages + gone + held + rises, nil},
		{"others are let go, of another resource", oldest + held + ages + gone + held + stays + gone + pods + rises, []string{stuck}},
		{"it has just begun", oldest + held + young + gone + held + stays, nil},
		{"all are gone", oldest + held + " 0+0x120\n" + gone + held + stays, nil},
		{"a pod of a lost node", oldest + pods + ages + gone + pods + stays, []string{stuck}},
		{"an owner, and dependents that go", oldest + owner + ages + gone + owner + stays + gone + pods + rises, nil},
		{"an owner, and dependents that the collector deletes", oldest + owner + ages + gone + owner + stays + deletes + rises, nil},
		{"an owner, and nothing goes", oldest + owner + ages + gone + owner + stays + deletes + stays, []string{owners}},
		{
			"an owner of what is stuck", oldest + owner + ages + gone + owner + stays + oldest + held + ages + gone + held + stays,
			[]string{stuck, owners},
		},
		{"a namespace of much", oldest + space + ages + gone + space + stays + gone + pods + rises, nil},
		{"a namespace, and nothing goes", oldest + space + ages + gone + space + stays, []string{owners}},
		{"a namespace with a finalizer of its own", oldest + strings.Replace(space, `""`, `"example.com/x"`, 1) + ages, []string{stuck}},
		{"a definition, and nothing goes", oldest + crd + ages, []string{owners}},
		{
			"two replicas, and one of them has just started",
			oldest + `{instance="a",resource="pods",finalizer=""}` + ages + oldest + `{instance="b",resource="pods",finalizer=""}` + young +
				gone + `{instance="a",resource="pods",finalizer=""}` + stays + gone + `{instance="b",resource="pods",finalizer=""}` + " 0+0x120\n",
			[]string{stuck},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for alert, expr := range expressions(t) {
				if alert != stuck && alert != owners {
					continue
				}
				want := strings.Contains(" "+strings.Join(test.want, " ")+" ", " "+alert+" ")
				if got := fires(t, expr, test.series); got != want {
					t.Errorf("%s fires: %v, want %v", alert, got, want)
				}
			}
		})
	}
}

// fires reports whether an expression has a result at the end of two hours.
func fires(t *testing.T, expr, text string) bool {
	t.Helper()
	all := seriesOf(t, text)
	queryable := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return &selected{series: slices.DeleteFunc(slices.Clone(all), func(s storage.Series) bool {
				return slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) })
			})}
		},
	}}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	query, err := engine.NewInstantQuery(t.Context(), queryable, promql.NewPrometheusQueryOpts(false, 0), expr, time.Unix(0, 0).Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	if result.Err != nil {
		t.Fatal(result.Err)
	}
	vector, err := result.Vector()
	if err != nil {
		t.Fatal(err)
	}
	return len(vector) > 0
}

// seriesOf parses series, one a line, with a sample each minute.
func seriesOf(t *testing.T, text string) []storage.Series {
	t.Helper()
	var all []storage.Series
	for line := range strings.Lines(text) {
		named, values, err := parser.ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		var samples []chunks.Sample
		for n, v := range values {
			samples = append(samples, sample{int64(n) * time.Minute.Milliseconds(), v.Value})
		}
		all = append(all, storage.NewListSeries(named, samples))
	}
	return all
}

// selected implements storage.SeriesSet.
type selected struct {
	series []storage.Series
	next   int
}

func (s *selected) Next() bool                        { s.next++; return s.next <= len(s.series) }
func (s *selected) At() storage.Series                { return s.series[s.next-1] }
func (s *selected) Err() error                        { return nil }
func (s *selected) Warnings() annotations.Annotations { return nil }

// sample implements chunks.Sample.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// TestAlertsAreQueries: Prometheus can evaluate every alert.
func TestAlertsAreQueries(t *testing.T) {
	t.Parallel()
	all := expressions(t)
	if len(all) < 9 {
		t.Errorf("%d alerts", len(all))
	}
	for _, expr := range all {
		fires(t, expr, "coppice_synced 1\n")
	}
}
