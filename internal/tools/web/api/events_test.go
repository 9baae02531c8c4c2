package api_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// changing is a cluster whose second record is made, and whose objects disappear, during a watch.
type changing struct {
	cluster
	changed atomic.Bool
}

func (c *changing) View(read func(g *ownership.Graph)) {
	if c.changed.Load() {
		read(ownership.New())
		return
	}
	c.cluster.View(read)
}

func (c *changing) Records(after uint64) []report.Record {
	records := c.cluster.Records(after)
	if len(records) > 0 && !c.changed.Load() {
		return records[:max(0, len(records)-1)]
	}
	return records
}

// A watch begins with the current state, and continues with changes, only of objects that the caller may list.
func TestWatchHasTheStateAndThenTheChanges(t *testing.T) {
	object := report.RecordedObject{Kind: "ConfigMap", Namespace: "shop", Name: "copy", UID: "copy"}
	source := &changing{cluster: cluster{records: []report.Record{
		{Number: 1, Action: report.ActionDelete, Object: object},
		{Number: 2, Action: report.ActionDelete, Object: report.RecordedObject{Kind: "Secret", Namespace: "shop", Name: "password", UID: "password"}},
		{Number: 3, Action: report.ActionDetach, Object: object},
		{Number: 4, Action: report.ActionDelete, Object: object},
	}}}
	server := httptest.NewServer(api.Handler(source, access))
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+api.Watch+"?object=cm/shop/copy&uid=password&after=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+noSecrets)
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("it is %s", got)
	}
	var events []string
	for lines := bufio.NewScanner(response.Body); len(events) < 5 && lines.Scan(); {
		if strings.Contains(lines.Text(), `"name":"password"`) {
			t.Errorf("names a secret: %s", lines.Text())
		}
		if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			events = append(events, event)
		}
		if len(events) == 3 { // the events of the current state
			source.changed.Store(true)
		}
	}
	// For a caller without the right to list it, the Secret is gone from the beginning.
	if got := strings.Join(events, " "); got != "record object gone record gone" {
		t.Errorf("events: %s", got)
	}
}

// The document describes every path, and every field of the answers.
func TestOpenAPI(t *testing.T) {
	code, body := ask(t, cluster{}, everything, api.OpenAPI)
	var document struct {
		OpenAPI    string
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(body), &document); code != http.StatusOK || err != nil {
		t.Fatalf("%d %v", code, err)
	}
	for _, path := range api.Paths() {
		if method := map[bool]string{true: "post", false: "get"}[path == api.Resume]; document.Paths[path][method] == nil {
			t.Errorf("%s is not described", path)
		}
	}
	for _, name := range []string{"Graph", "Object", "Reference", "RecordList", "Record", "Owner"} {
		if len(document.Components.Schemas[name].Properties) == 0 {
			t.Errorf("%s has no schema", name)
		}
	}
	if got := len(document.Components.Schemas["Record"].Properties); got != reflect.TypeFor[report.Record]().NumField() {
		t.Errorf("the schema of a record has %d properties", got)
	}
	if graph := document.Components.Schemas["Graph"].Properties; graph["objects"] == nil || graph["unread"] == nil {
		t.Errorf("the schema of a graph has %v", graph)
	}
}
