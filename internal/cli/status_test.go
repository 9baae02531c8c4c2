package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// A watch of the status as YAML separates its documents, and prints no document twice.
func TestStatusesAreSeparateDocuments(t *testing.T) {
	objects := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.SeenStatus{Status: report.Status{Graph: report.GraphStatus{Objects: objects}}})
	}))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	collector := &ask.Collector{Server: address, Client: server.Client()}
	for format, separators := range map[string]int{"yaml": 1, "json": 0, "table": 0} {
		var out strings.Builder
		before := ""
		for _, objects = range []int{1, 1, 2, 2} {
			if before, err = statusOnce(t.Context(), collector, format, before, Streams{Out: &out, Err: &out}); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Count(out.String(), "---\n"); got != separators || strings.HasPrefix(out.String(), "---") || strings.Count(strings.ToLower(out.String()), "references") != 2 {
			t.Errorf("%s: %d separators, want %d\n%s", format, got, separators, out.String())
		}
	}
}
