// Package monitoring_test checks that the dashboard and the alerts in deploy/monitoring use
// existing metrics.
package monitoring_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
)

// TestMetricsExist: every metric that the dashboard and the alerts query is exposed.
func TestMetricsExist(t *testing.T) {
	known := scraped(t)
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join("../../deploy/monitoring", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, new(map[string]any)); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		names := regexp.MustCompile(`\bcoppice_[a-z_]+`).FindAllString(string(text), -1)
		if len(names) < 5 {
			t.Errorf("%s names %d metrics", file, len(names))
		}
		for _, name := range names {
			if !known[name] && !known[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s queries %s, which does not exist", file, name)
			}
		}
	}
}

// scraped returns the names of all metrics.
func scraped(t *testing.T) map[string]bool {
	t.Helper()
	set := metrics.New(func() report.Status {
		return report.Status{
			Resources: []report.ResourceStatus{{}},
			Barrier:   []report.BarrierWait{{Holds: []report.Hold{{}}}}, Paused: []report.Pause{{}}, Deletions: []report.DeletionStatus{{}},
		}
	})
	request := httptest.NewRequest(http.MethodGet, "http://server/api/v1/pods", http.NoBody)
	if _, err := set.Transport(answering{}).RoundTrip(request); err != nil {
		t.Fatal(err)
	}
	families, err := metrics.Gatherer(set).Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, family := range families {
		known[family.GetName()] = true
	}
	return known
}

type answering struct{}

func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}
