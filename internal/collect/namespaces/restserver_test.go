package namespaces

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// restServer is an API server with namespaces of ConfigMaps, for the client of a rest.Config. It answers at once. It has no
// finalizers, pages and versions.
type restServer struct {
	mu         sync.Mutex
	contents   map[string]map[string]bool // names of ConfigMaps, by namespace; guarded by mu
	conditions map[string]any             // of the last namespace that was reported on; guarded by mu
	requests   map[string]int             // by method and path; guarded by mu
	isRestored bool                       // the namespaces are active; guarded by mu

	connect func(*http.Request)             // runs before the body of a request is sent; not under mu
	before  func(*http.Request) *restAnswer // its answer comes instead, if not nil; not under mu
}

// restAnswer is an answer, as a status code and an object.
type restAnswer struct {
	code       int
	object     any
	page       string // instead of object, as plain text
	retryAfter string
}

// newRestServer returns a server with terminating namespaces.
func newRestServer(contents map[string][]string) *restServer {
	s := &restServer{contents: map[string]map[string]bool{}, requests: map[string]int{}}
	s.connect, s.before = func(*http.Request) {}, func(*http.Request) *restAnswer { return nil }
	for namespace, names := range contents {
		s.contents[namespace] = map[string]bool{}
		for _, name := range names {
			s.contents[namespace][name] = true
		}
	}
	return s
}

// run starts a controller with a config for the server.
func (s *restServer) run(t *testing.T, config rest.Config) {
	t.Helper()
	config.Host, config.Transport = "http://server", s
	c, err := NewForConfig(&config, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		<-time.After(time.Minute) // timers of client-go
	})
}

// goneWithin waits until all namespaces are gone.
func (s *restServer) goneWithin(t *testing.T, limit time.Duration) {
	t.Helper()
	for start := time.Now(); ; <-time.After(100 * time.Millisecond) {
		s.mu.Lock()
		namespaces := len(s.contents)
		s.mu.Unlock()
		if namespaces == 0 {
			return
		}
		if time.Since(start) > limit {
			t.Fatalf("%d namespaces are there after %v: %v", namespaces, limit, s.left())
		}
	}
}

// left returns how many ConfigMaps there are in each namespace.
func (s *restServer) left() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := map[string]int{}
	for namespace, names := range s.contents {
		left[namespace] = len(names)
	}
	return left
}

// restore makes all namespaces active.
func (s *restServer) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isRestored = true
}

// count returns the number of requests.
func (s *restServer) count(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[request]
}

// reported returns the last reported conditions.
func (s *restServer) reported() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, _ := json.Marshal(s.conditions)
	return string(text)
}

type fields = map[string]any

func failure(code int, reason, message string) *restAnswer {
	return &restAnswer{code: code, object: fields{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}}
}

// RoundTrip implements http.RoundTripper.
func (s *restServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.connect(r)
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") == "" {
		events, end := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = end.Close() })
		return &http.Response{StatusCode: http.StatusOK, Body: events, Header: header, Request: r}, nil
	}
	answer := s.before(r)
	if answer == nil {
		answer = s.serve(r, body)
	}
	text, err := json.Marshal(answer.object)
	if answer.page != "" {
		text = []byte(answer.page)
		header.Set("Content-Type", "text/plain")
	}
	if answer.retryAfter != "" {
		header.Set("Retry-After", answer.retryAfter)
	}
	return &http.Response{StatusCode: answer.code, Body: io.NopCloser(bytes.NewReader(text)), Header: header, Request: r}, err
}

func (s *restServer) serve(r *http.Request, body []byte) *restAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[r.Method+" "+r.URL.Path]++
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Query().Get("watch") != "":
		return failure(http.StatusUnprocessableEntity, "Invalid", "no initial events")
	case len(path) <= 2:
		return discovered(r.URL.Path)
	case len(path) < 3 || path[2] != "namespaces":
		return failure(http.StatusNotFound, "NotFound", "")
	case len(path) == 3:
		var items []any
		for name := range s.contents {
			items = append(items, s.namespaceLocked(name))
		}
		return &restAnswer{code: http.StatusOK, object: fields{"kind": "NamespaceList", "apiVersion": "v1", "metadata": fields{"resourceVersion": "10"}, "items": items}}
	case s.contents[path[3]] == nil:
		gone := failure(http.StatusNotFound, "NotFound", "")
		gone.object.(fields)["details"] = fields{"name": path[3], "kind": "namespaces"}
		return gone
	case len(path) == 4:
		return &restAnswer{code: http.StatusOK, object: s.namespaceLocked(path[3])}
	}
	return s.serveInLocked(path[3], path[4:], r.Method, body)
}

// serveInLocked serves subresources of a namespace, and its contents.
func (s *restServer) serveInLocked(namespace string, path []string, method string, body []byte) *restAnswer {
	switch {
	case path[0] == "finalize":
		delete(s.contents, namespace)
	case path[0] == "status":
		_ = json.Unmarshal(body, &s.conditions)
	case method == http.MethodGet:
		var items []any
		for _, name := range slices.Sorted(maps.Keys(s.contents[namespace])) {
			items = append(items, fields{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": fields{"name": name, "namespace": namespace, "uid": name}})
		}
		return &restAnswer{code: http.StatusOK, object: fields{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": items}}
	case method == http.MethodDelete:
		delete(s.contents[namespace], path[1])
		return &restAnswer{code: http.StatusOK, object: fields{"kind": "Status", "apiVersion": "v1", "status": "Success"}}
	}
	return &restAnswer{code: http.StatusOK, object: s.namespaceLocked(namespace)}
}

func (s *restServer) namespaceLocked(name string) any {
	metadata, phase := fields{"name": name, "uid": name, "resourceVersion": "5"}, "Active"
	if !s.isRestored {
		metadata["deletionTimestamp"], phase = "2020-01-01T00:00:00Z", "Terminating"
	}
	return fields{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": fields{"finalizers": []string{"kubernetes"}}, "status": fields{"phase": phase}}
}

func discovered(path string) *restAnswer {
	objects := map[string]any{
		"/api":  fields{"kind": "APIVersions", "versions": []string{"v1"}},
		"/apis": fields{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}},
		"/api/v1": fields{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{
			fields{"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": []string{"list", "delete"}},
		}},
	}
	return &restAnswer{code: http.StatusOK, object: objects[path]}
}
