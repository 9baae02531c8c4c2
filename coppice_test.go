package coppice_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// runner is the common interface of the controllers.
type runner interface {
	Run(ctx context.Context) error
	Synced() bool
	WaitForSync(ctx context.Context) error
	Ready() error
}

// newControllers returns both controllers for a server.
func newControllers(t *testing.T, url string) coppice.Controllers {
	t.Helper()
	config := &rest.Config{Host: url}
	collector, err := coppice.New(config, coppice.Options{})
	if err != nil {
		t.Fatal(err)
	}
	namespaces, err := coppice.NewNamespaceController(config, coppice.NamespaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if config.UserAgent != "" || config.QPS != 0 || config.WrapTransport != nil {
		t.Errorf("the caller's config was changed: %+v", config)
	}
	return coppice.Controllers{Collector: collector, Namespaces: namespaces}
}

// Run waits for a server that cannot be reached and ends with its context, and a second Run is an
// error.
func TestRunWithoutServer(t *testing.T) {
	both := newControllers(t, "http://127.0.0.1:1")
	alone := newControllers(t, "http://127.0.0.1:1")
	for name, c := range map[string]runner{"both": both, "collector": alone.Collector, "namespace controller": alone.Namespaces} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("Run = %v, want no error at the end of its context", err)
				}
			case <-time.After(eventually.Patience):
				t.Fatal("Run did not return when its context ended")
			}
			if c.Synced() {
				t.Error("Synced without a server")
			}
			if err := c.Ready(); !errors.Is(err, coppice.ErrNotSynced) {
				t.Errorf("Ready = %v, want ErrNotSynced", err)
			}
			if err := c.WaitForSync(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("WaitForSync = %v, want the error of the context", err)
			}
			if err := c.Run(t.Context()); !errors.Is(err, coppice.ErrAlreadyStarted) {
				t.Errorf("a second Run = %v, want ErrAlreadyStarted", err)
			}
		})
	}
	if err := (coppice.Controllers{}).Run(t.Context()); err == nil {
		t.Error("no controller runs, and that is no error")
	}
}

func TestNewRefusesBadConfig(t *testing.T) {
	config := &rest.Config{Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}
	if _, err := coppice.New(config, coppice.Options{}); err == nil {
		t.Error("New accepts a CA file that does not exist")
	}
	if _, err := coppice.NewNamespaceController(config, coppice.NamespaceOptions{}); err == nil {
		t.Error("NewNamespaceController accepts a CA file that does not exist")
	}
	incomplete := coppice.NamespaceOptions{DeletionOrder: coppice.DeletionOrder{{{Resource: "pods"}}}}
	if _, err := coppice.NewNamespaceController(&rest.Config{Host: "https://x"}, incomplete); err == nil || !strings.Contains(err.Error(), "DeletionOrder") {
		t.Errorf("NewNamespaceController accepts an order without everything else: %v", err)
	}
}

// WriteGraph supports each of the formats, and no other.
func TestWriteGraph(t *testing.T) {
	c := newControllers(t, "http://127.0.0.1:1").Collector
	for format, check := range map[coppice.GraphFormat]func([]byte) error{
		coppice.GraphDOT: func(text []byte) error {
			if !bytes.HasPrefix(text, []byte("strict digraph")) {
				return errors.New("no digraph")
			}
			return nil
		},
		coppice.GraphJSON: func(text []byte) error { return json.Unmarshal(text, &map[string][]any{}) },
		coppice.GraphSVG: func(text []byte) error {
			return xml.Unmarshal(text, new(struct {
				XMLName xml.Name `xml:"svg"`
			}))
		},
		coppice.GraphTree: func([]byte) error { return nil }, // text, of an empty graph
		coppice.GraphMermaid: func(text []byte) error {
			if !bytes.HasPrefix(text, []byte("flowchart")) {
				return errors.New("no flowchart")
			}
			return nil
		},
	} {
		for _, uids := range [][]coppice.UID{nil, {"a", "b"}} {
			var text bytes.Buffer
			if err := c.WriteGraph(&text, format, uids...); err != nil {
				t.Fatal(err)
			}
			if err := check(text.Bytes()); err != nil {
				t.Errorf("%s around %v: %v: %s", format, uids, err, text.String())
			}
		}
	}
	if err := c.WriteGraph(io.Discard, "png"); err == nil || !strings.Contains(err.Error(), "choose one of") {
		t.Errorf("WriteGraph as png = %v", err)
	}
}

// The metrics of both controllers can be registered with one registry of the caller's, and are
// served together.
func TestMetricsOfBoth(t *testing.T) {
	c := newControllers(t, "http://127.0.0.1:1")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Collector.Metrics(), c.Namespaces.Metrics())
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
	for name, test := range map[string]struct {
		handler http.Handler
		want    []string
	}{
		"both":                 {c.Handler(), []string{`coppice_synced{controller="garbage-collector-controller"} 0`, `coppice_synced{controller="namespace-controller"} 0`, "coppice_queue_depth 0", "go_goroutines"}},
		"collector":            {c.Collector.ProbeHandler(), []string{`coppice_synced{controller="garbage-collector-controller"} 0`}},
		"namespace controller": {c.Namespaces.ProbeHandler(), []string{`coppice_synced{controller="namespace-controller"} 0`}},
	} {
		_, text := get(t, test.handler, "/metrics")
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the metrics lack %s", name, want)
			}
		}
	}
}

// The diagnostics also work without a collector.
func TestDiagnosticsWithoutCollector(t *testing.T) {
	c := newControllers(t, "http://127.0.0.1:1")
	c.Collector = nil
	for path, want := range map[string]struct {
		code int
		says string
	}{
		"/healthz": {http.StatusOK, "ok"},
		"/readyz":  {http.StatusServiceUnavailable, "the namespaces are not listed yet"},
		"/status":  {http.StatusOK, `"kinds": []`},
		"/records": {http.StatusOK, "[]"},
		"/debug/controllers/garbagecollector/graph?uid=a": {http.StatusOK, "digraph"},
	} {
		if code, text := get(t, c.Handler(), path); code != want.code || !strings.Contains(text, want.says) {
			t.Errorf("%s: %d %s, want %d and %s", path, code, text, want.code, want.says)
		}
	}
}

// Nothing is paused, so nothing is resumed.
func TestResume(t *testing.T) {
	c := newControllers(t, "http://127.0.0.1:1").Collector
	if c.Resume(schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}) {
		t.Error("a kind was paused")
	}
}

func get(t *testing.T, h http.Handler, path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

func TestDeletionOrder(t *testing.T) {
	for _, text := range []string{"", "pods;*", "*", "pods,secrets;*;roles.rbac.authorization.k8s.io"} {
		order, err := coppice.ParseDeletionOrder(text)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := coppice.ParseDeletionOrder(order.String()); err != nil || !cmp.Equal(order, again) {
			t.Errorf("%q is written as %q, which is read as %v (%v)", text, order, again, err)
		}
	}
	if got := coppice.DefaultDeletionOrder().String(); got != "pods;*;roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io,networkpolicies.networking.k8s.io" {
		t.Errorf("the default order is %s", got)
	}
}
