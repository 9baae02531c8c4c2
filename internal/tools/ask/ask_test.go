package ask

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// server is an API server whose cluster cannot be read. answers are those of its collector, by path.
type server struct {
	version string
	answers map[string]any
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/version" {
		_ = json.NewEncoder(w).Encode(map[string]string{"gitVersion": s.version})
		return
	}
	answer, ok := s.answers[r.URL.Path]
	if !ok {
		http.Error(w, "refused", http.StatusForbidden)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// pod targets one pod.
type pod struct{}

func (pod) Args() []string { return []string{"pod/p"} }

func (pod) AreNamed() bool { return true }

func (pod) Choose(*inventory.Inventory, io.Writer) ([]ownership.UID, error) { return nil, nil }

func (pod) Find(io.Writer) ([]string, error) { return nil, nil }

const (
	ours     = "v1.37.2+coppice-0.1.0"
	upstream = "v1.37.2"
)

// A question goes to the collector if there is one. The cluster is read if there is none, or if it cannot answer and
// the user has not named it.
func TestSourceOfAnswers(t *testing.T) {
	t.Parallel()
	paused := []explain.Wait{{On: explain.OnBreaker}}
	answers := map[string]any{
		api.Preview:   preview.Report{Digest: "d"},
		api.Explain:   api.Explanations{Items: []explain.Explanation{{Object: explain.Ref{Kind: "Pod", Name: "p"}}}},
		api.Deletions: api.DeletionList{},
		api.Owners:    api.Graph{},
	}
	previews := func(ctx context.Context, s *Sources) error {
		_, err := s.Preview(ctx, Deletion{Targets: pod{}})
		return err
	}
	explains := func(ctx context.Context, s *Sources) error {
		_, err := s.Explain(ctx, Existence{Objects: Objects{Args: []string{"pod/p"}}})
		return err
	}
	explainsAll := func(ctx context.Context, s *Sources) error {
		_, err := s.Explain(ctx, Existence{All: true})
		return err
	}
	draws := func(ctx context.Context, s *Sources) error {
		_, err := s.Graph(ctx, Ownership{Objects: Objects{Args: []string{"pod/p"}}, Part: Owners})
		return err
	}
	const collector, cluster, refused = "", "read http://", "http://" // begins the error of the source that answers last
	for _, test := range []struct {
		name      string
		version   string
		address   string // "SERVER" for its URL
		answers   map[string]any
		ask       func(context.Context, *Sources) error
		wantError string
	}{
		{"preview by coppice up", ours, "", answers, previews, collector},
		{"preview by a named collector", upstream, "SERVER", answers, previews, collector},
		{"preview without a collector", upstream, "", answers, previews, cluster},
		{"preview from the cluster", ours, NoCollector, answers, previews, cluster},
		{"preview that coppice up refuses", ours, "", nil, previews, cluster},
		{"preview that a named collector refuses", upstream, "SERVER", nil, previews, refused},
		{"explain by coppice up", ours, "", answers, explains, collector},
		{"explain that coppice up refuses", ours, "", nil, explains, cluster},
		{"explain that a named collector refuses", upstream, "SERVER", nil, explains, cluster},
		{"explain from the cluster", ours, NoCollector, answers, explains, cluster},
		{"explain of paused deletions", ours, "", map[string]any{api.Explain: api.Explanations{Items: []explain.Explanation{{Waits: paused}}}}, explains, cluster},
		{"explain --all by coppice up", ours, "", answers, explainsAll, collector},
		{"explain --all of paused deletions", ours, "", map[string]any{api.Deletions: api.DeletionList{Items: []explain.Group{{Leaf: paused[0]}}}}, explainsAll, cluster},
		{"graph by coppice up", ours, "", answers, draws, collector},
		{"graph that coppice up refuses", ours, "", nil, draws, cluster},
		{"graph that a named collector refuses", upstream, "SERVER", nil, draws, refused},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(&server{version: test.version, answers: test.answers})
			defer s.Close()
			sources := &Sources{
				Config: &rest.Config{Host: s.URL}, Namespace: "default", Now: time.Now,
				Address: strings.ReplaceAll(test.address, "SERVER", s.URL),
			}
			err := test.ask(t.Context(), sources)
			switch {
			case test.wantError == "" && err != nil:
				t.Errorf("the collector does not answer: %v", err)
			case test.wantError != "" && (err == nil || !strings.HasPrefix(err.Error(), test.wantError)):
				t.Errorf("error %v, want %q", err, test.wantError)
			}
		})
	}
}

// The diagnostics of a collector serve the graph to callers without a token, and identify objects by UID.
func TestGraphWithoutToken(t *testing.T) {
	t.Parallel()
	answers := map[string]any{"/debug/controllers/garbagecollector/graph": map[string]any{"objects": []map[string]string{{"uid": "p", "kind": "Pod", "name": "p"}}}}
	handler := &server{answers: answers}
	s := httptest.NewServer(handler)
	defer s.Close()
	sources := &Sources{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Address: s.URL, Now: time.Now}
	graph, err := sources.Graph(t.Context(), Ownership{Objects: Objects{UIDs: []string{"p"}}, Part: Component})
	if err != nil || len(graph.Objects) != 1 || graph.Objects[0].Name != "p" {
		t.Errorf("the graph is %+v, %v", graph, err)
	}
	handler.answers = nil
	if _, err := sources.Graph(t.Context(), Ownership{Part: Component}); err == nil || err.Error() != s.URL+": refused" {
		t.Errorf("a refused graph: %v", err)
	}
	s.Close()
	if _, err := sources.Graph(t.Context(), Ownership{Part: Component}); err == nil || !strings.Contains(err.Error(), "--bind-address") {
		t.Errorf("a graph of a collector that does not run: %v", err)
	}
}

// A token is sent only to addresses where the network cannot read it.
func TestAddressOfCollector(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"":                          "",
		"http://127.0.0.1:10270":    "",
		"http://localhost:10270/":   "",
		"https://collector.example": "",
		"http://collector.example":  "in the clear",
		"http://127.0.0.1":          "in the clear",
		"127.0.0.1:10270":           "is not a URL",
		"ftp://127.0.0.1:10270":     "is not a URL",
	} {
		_, err := newCollector(&rest.Config{Host: "https://127.0.0.1:6443"}, address, "default")
		_, isInvalid := errors.AsType[InvalidError](err)
		if want == "" && err != nil || want != "" && (!isInvalid || !strings.Contains(err.Error(), want)) {
			t.Errorf("--address %q: %v, want %q", address, err, want)
		}
	}
}
