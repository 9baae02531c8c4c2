package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/web"
)

// fake is a Source with two objects.
type fake struct{ ready error }

func (f fake) Ready() error                             { return f.ready }
func (f fake) Status() report.Status                    { return report.Status{Synced: f.ready == nil} }
func (f fake) Records() []report.Record                 { return []report.Record{} }
func (f fake) Settle(context.Context) report.Settlement { return report.Settlement{Settled: true} }
func (f fake) Resume(kind string) bool                  { return kind == "Pod" }
func (f fake) Metrics() prometheus.Gatherer             { return prometheus.NewRegistry() }
func (f fake) Picture(uids ...ownership.UID) insight.Graph {
	g := ownership.New()
	g.SetScope(ownership.Kind{Kind: "Pod"}, ownership.Namespaced)
	g.Observe(ownership.Object{UID: "a", Kind: ownership.Kind{Kind: "Pod"}, Namespace: "ns", Name: "a"})
	g.Observe(ownership.Object{UID: "b", Kind: ownership.Kind{Kind: "Pod"}, Namespace: "ns", Name: "b", Owners: []ownership.Reference{{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "a"}}})
	g.Observe(ownership.Object{UID: "c", Kind: ownership.Kind{Kind: "Pod"}, Namespace: "ns", Name: "c"})
	view := func(read func(g *ownership.Graph)) { read(g) }
	if len(uids) == 0 {
		return insight.Whole(view)
	}
	return insight.Component(view, uids...)
}

func get(t *testing.T, h http.Handler, path string) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost:10270"+path, http.NoBody))
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPathsHaveTheirContentTypes(t *testing.T) {
	h := web.Handler(fake{})
	for path, contentType := range map[string]string{
		web.Healthz:                 "text/plain",
		web.Livez:                   "text/plain",
		web.Readyz:                  "text/plain",
		web.Metrics:                 "text/plain",
		web.Status:                  "application/json",
		web.Records:                 "application/json",
		web.Settled:                 "application/json",
		web.Settled + "?timeout=2s": "application/json",
		web.Graph:                   "text/vnd.graphviz",
		web.Graph + "?format=dot":   "text/vnd.graphviz",
		web.Graph + "?format=json":  "application/json",
		web.Graph + "?format=svg":   "image/svg+xml",
		"/":                         "text/plain",
	} {
		r := get(t, h, path)
		if r.StatusCode != http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Type"), contentType) || r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s %s", path, r.Status, r.Header)
		}
	}
	for path, code := range map[string]int{"/nowhere": http.StatusNotFound, web.Graph + "?format=png": http.StatusBadRequest, web.Settled + "?timeout=soon": http.StatusBadRequest} {
		if r := get(t, h, path); r.StatusCode != code {
			t.Errorf("%s: %s, want %d", path, r.Status, code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost"+web.Status, http.NoBody))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST of the status: %d", w.Code)
	}
}

func TestReadinessTellsWhatIsNotRead(t *testing.T) {
	r := get(t, web.Handler(fake{ready: errors.New("3 of 34 resources are not read yet")}), web.Readyz)
	if text := body(t, r); r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "3 of 34") {
		t.Errorf("%s %s", r.Status, text)
	}
	if r := get(t, web.Handler(fake{ready: errors.New("no")}), web.Healthz); r.StatusCode != http.StatusOK {
		t.Errorf("healthz of one that is not ready: %s", r.Status)
	}
}

// TestGraphIsLimitedToTheComponentsOfSomeObjects asks for the connected components of some objects (GB-09).
func TestGraphIsLimitedToTheComponentsOfSomeObjects(t *testing.T) {
	h := web.Handler(fake{})
	for query, want := range map[string]int{"": 2, "?uid=b": 2, "?uid=c": 1, "?uid=c&uid=a": 3, "?uid=nobody": 0} {
		separator := "?"
		if query != "" {
			separator = "&"
		}
		var g insight.Graph
		if err := json.Unmarshal([]byte(body(t, get(t, h, web.Graph+query+separator+"format=json"))), &g); err != nil {
			t.Fatal(err)
		}
		if len(g.Objects) != want {
			t.Errorf("%s: %d objects, want %d", query, len(g.Objects), want)
		}
	}
}

// TestResumeIsRefusedToPagesOfOtherSites resumes deletions, but not on behalf of a web page from elsewhere.
func TestResumeIsRefusedToPagesOfOtherSites(t *testing.T) {
	h := web.Handler(fake{})
	post := func(path, site string) int {
		r := httptest.NewRequest(http.MethodPost, "http://localhost:10270"+path, http.NoBody)
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct {
		path, site string
		code       int
	}{
		{"/resume?kind=Pod", "", http.StatusOK},
		{"/resume?kind=ReplicaSet.apps", "", http.StatusNotFound},
		{"/resume", "", http.StatusBadRequest},
		{"/resume?kind=Pod", "cross-site", http.StatusForbidden},
	} {
		if code := post(c.path, c.site); code != c.code {
			t.Errorf("POST %s from %q: %d, want %d", c.path, c.site, code, c.code)
		}
	}
	if r := get(t, h, "/resume?kind=Pod"); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET of resume: %s", r.Status)
	}
}

// TestProbesNameNoObject checks that the probes name no object.
func TestProbesNameNoObject(t *testing.T) {
	h := web.Probes(fake{})
	for path, code := range map[string]int{
		web.Healthz: http.StatusOK, web.Livez: http.StatusOK, web.Readyz: http.StatusOK, web.Metrics: http.StatusOK,
		web.Status: http.StatusNotFound, web.Records: http.StatusNotFound, web.Graph: http.StatusNotFound,
	} {
		if r := get(t, h, path); r.StatusCode != code {
			t.Errorf("%s: %s, want %d", path, r.Status, code)
		}
	}
}

// TestRequestsForOtherHostsAreRefused rejects the requests that a browser sends for a page whose own host name resolves
// to this address.
func TestRequestsForOtherHostsAreRefused(t *testing.T) {
	h := web.Local(web.Handler(fake{}))
	for host, code := range map[string]int{
		"localhost": http.StatusOK, "localhost:10270": http.StatusOK, "127.0.0.1:10270": http.StatusOK, "[::1]:10270": http.StatusOK, "127.1.2.3": http.StatusOK,
		"evil.example": http.StatusForbidden, "evil.example:10270": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden,
		"127.0.0.1.evil.example:80": http.StatusForbidden, "10.0.0.1:10270": http.StatusForbidden, "": http.StatusForbidden,
	} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost"+web.Status, http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("host %q: %d, want %d", host, w.Code, code)
		}
	}
}

// A process that stands by is healthy and ready, and answers with the name of the leader.
func TestReplicaThatStandsByIsReadyAndNamesTheLeader(t *testing.T) {
	var holder string
	var cold error
	handler := web.StandBy(func() (string, bool) { return holder, holder != "" }, func() error { return cold },
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for _, test := range []struct {
		holder, path string
		cold         error
		code         int
		text         string
	}{
		{"", web.Graph, nil, http.StatusTeapot, ""},
		{"other", web.Graph, nil, http.StatusServiceUnavailable, "other leads"},
		{"other", web.Readyz, nil, http.StatusOK, "other leads"},
		{"other", web.Readyz, errors.New("3 of 9 resources are not read yet"), http.StatusServiceUnavailable, "standing by: 3 of 9"},
		{"other", web.Metrics, nil, http.StatusTeapot, ""},
		{"other", web.Healthz, errors.New("not read"), http.StatusTeapot, ""},
		{"other", web.Livez, errors.New("not read"), http.StatusTeapot, ""},
	} {
		holder, cold = test.holder, test.cold
		r := get(t, handler, test.path)
		if text := body(t, r); r.StatusCode != test.code || !strings.Contains(text, test.text) {
			t.Errorf("%+v: %s %s", test, r.Status, text)
		}
	}
}

// A page of another origin cannot start the work of /settled through a browser.
func TestSettledIsNotForPagesFromElsewhere(t *testing.T) {
	for site, code := range map[string]int{"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden, "same-origin": http.StatusOK, "": http.StatusOK} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost"+web.Settled, http.NoBody)
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		w := httptest.NewRecorder()
		web.Handler(fake{}).ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("a page that is %q: %d, want %d", site, w.Code, code)
		}
	}
}

// large is a source whose graph has a long text in very many objects.
type large struct{ fake }

func (large) Picture(...ownership.UID) insight.Graph {
	name := strings.Repeat("n", 1000)
	g := insight.Graph{Objects: make([]insight.Object, 70_000)}
	for n := range g.Objects {
		g.Objects[n] = insight.Object{Kind: "Pod", Name: name}
	}
	return g
}

// A graph of more than 64 MiB is refused, before it is encoded.
func TestGraphIsBounded(t *testing.T) {
	for _, format := range []string{"dot", "json", "tree", "mermaid"} {
		r := get(t, web.Handler(large{}), web.Graph+"?format="+format)
		if text := body(t, r); r.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "?uid=UID") {
			t.Errorf("%s: %d %.200s", format, r.StatusCode, text)
		}
	}
}

// painting is a Source with texts that control a terminal.
type painting struct{ fake }

const hostile = "a\x1b]0;PWN\x07\u009b31m\x7f\u202eb\nc"

func (painting) Ready() error            { return errors.New(hostile) }
func (painting) Status() report.Status   { return report.Status{ProbeError: hostile} }
func (painting) Resume(kind string) bool { return strings.HasPrefix(kind, "a") }
func (painting) Records() []report.Record {
	return []report.Record{{Decision: hostile}}
}

func (painting) Settle(context.Context) report.Settlement {
	return report.Settlement{Unfinished: []string{hostile}}
}

// Text over HTTP controls no terminal of a user of curl. In JSON, names are what they are.
func TestTextOverHTTPControlsNoTerminal(t *testing.T) {
	inner := web.Handler(painting{})
	leads := func() (string, bool) { return hostile, true }
	standing := web.StandBy(leads, func() error { return nil }, inner)
	cold := web.StandBy(leads, func() error { return errors.New(hostile) }, inner)
	escaped := url.QueryEscape(hostile)
	for name, answer := range map[string]*http.Response{
		"not ready": get(t, inner, web.Readyz), "status": get(t, inner, web.Status), "records": get(t, inner, web.Records), "settled": get(t, inner, web.Settled),
		"no duration": get(t, inner, web.Settled+"?timeout="+escaped), "no format": get(t, inner, web.Graph+"?format="+escaped), "no object": get(t, inner, web.Graph+"?uid="+escaped),
		"standing by": get(t, standing, web.Readyz), "cold": get(t, cold, web.Readyz), "another leads": get(t, standing, web.Status),
		"resumed": post(t, inner, web.Resume+"?kind="+escaped), "not resumed": post(t, inner, web.Resume+"?kind=x"+escaped),
	} {
		text := body(t, answer)
		if text == "" || strings.ContainsFunc(text, escape.Controls) || strings.Contains(text, "\nc") || !strings.Contains(text, "PWN") && name != "no object" {
			t.Errorf("%s: %q", name, text)
		}
	}
	var records []report.Record
	if err := json.Unmarshal([]byte(body(t, get(t, inner, web.Records))), &records); err != nil || len(records) != 1 || records[0].Decision != hostile {
		t.Errorf("%+v %v", records, err)
	}
}

func post(t *testing.T, h http.Handler, path string) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost:10270"+path, http.NoBody))
	return w.Result()
}
