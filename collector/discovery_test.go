package collector

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/feed"
)

// old is a discovery client of client-go v0.36.
type old struct{}

var errOld = errors.New("asked")

func (old) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return nil, nil, errOld
}

func TestDiscoveryOfAnyClientGo(t *testing.T) {
	d := discoveryOf(old{})
	if _, _, err := d.ServerGroupsAndResourcesWithContext(t.Context()); !errors.Is(err, errOld) {
		t.Errorf("the client was not asked: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, _, err := d.ServerGroupsAndResourcesWithContext(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("asked after the end: %v", err)
	}
	if current := new(discovery.DiscoveryClient); discoveryOf(current) != any(current) {
		t.Error("a client that takes a context is not used as it is")
	}
}

// documents is a server with the two documents of discovery.
type documents struct {
	mu      sync.Mutex
	answers map[string]answer // by path
	asked   []string          // status and path of each answer, sorted within a call
}

type answer struct {
	status            int
	contentType, body string
}

const (
	aggregatedJSON = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	coreDocument   = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{},"versions":[{"version":"v1",` +
		`"freshness":"Current","resources":[{"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced",` +
		`"verbs":["delete","list","watch"]}]}]}]}`
	noGroups    = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`
	staleWidget = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"example.com"},` +
		`"versions":[{"version":"v1","freshness":"Stale"}]}]}`
)

func (s *documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.answers[r.URL.Path]
	tag := fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256([]byte(a.body))))
	if a.status == http.StatusOK && a.contentType == aggregatedJSON {
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			a.status, a.body = http.StatusNotModified, ""
		}
	}
	s.asked = append(s.asked, fmt.Sprint(a.status, " ", r.URL.Path))
	w.Header().Set("Content-Type", a.contentType)
	w.WriteHeader(a.status)
	fmt.Fprint(w, a.body)
}

// take returns the answers since the last call.
func (s *documents) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	slices.Sort(asked)
	return asked
}

func (s *documents) serve(path, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = answer{http.StatusOK, aggregatedJSON, body}
}

func (s *documents) fail(path string, status int, contentType, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = answer{status, contentType, body}
}

// discovering returns a server of both documents, and what asks it.
func discovering(t *testing.T) (*documents, feed.Discovery) {
	t.Helper()
	s := &documents{answers: map[string]answer{}}
	s.serve("/api", coreDocument)
	s.serve("/apis", noGroups)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return s, discoveryOf(client)
}

// discovered describes what a call returns: the group versions with resources, and the error.
func discovered(t *testing.T, d feed.Discovery) string {
	t.Helper()
	_, lists, err := d.ServerGroupsAndResourcesWithContext(t.Context())
	var found []string
	for _, list := range lists {
		found = append(found, list.GroupVersion)
	}
	slices.Sort(found)
	if failed, ok := discovery.GroupDiscoveryFailedErrorGroups(err); ok {
		return fmt.Sprint(found, " without ", slices.Collect(maps.Keys(failed)))
	}
	if err != nil && !errors.Is(err, feed.ErrUnchanged) {
		return "an error"
	}
	return fmt.Sprint(found, " ", err)
}

func expect(t *testing.T, when string, s *documents, d feed.Discovery, want string, asked ...string) {
	t.Helper()
	if got := discovered(t, d); got != want {
		t.Errorf("%s: discovery returned %s, want %s", when, got, want)
	}
	if got := s.take(); !slices.Equal(got, asked) {
		t.Errorf("%s: the server answered %q, want %q", when, got, asked)
	}
}

// TestUnchangedDiscoveryIsNotReadAgain: each document is read only when one of them has changed.
func TestUnchangedDiscoveryIsNotReadAgain(t *testing.T) {
	s, d := discovering(t)
	expect(t, "the first time", s, d, "[v1] <nil>", "200 /api", "200 /apis")
	for range 2 {
		expect(t, "unchanged", s, d, "[] "+feed.ErrUnchanged.Error(), "304 /api", "304 /apis")
	}
	s.serve("/apis", staleWidget)
	expect(t, "one has changed", s, d, "[v1] without [example.com/v1]", "200 /api", "200 /apis", "200 /apis", "304 /api")
	expect(t, "still stale", s, d, "[] "+feed.ErrUnchanged.Error(), "304 /api", "304 /apis")
	s.serve("/apis", noGroups)
	expect(t, "as at first", s, d, "[v1] <nil>", "200 /api", "200 /apis", "200 /apis", "304 /api")
}

// TestRefusedDiscoveryIsReadAgain: after an error nothing counts as read, also if the documents are the same as before.
func TestRefusedDiscoveryIsReadAgain(t *testing.T) {
	s, d := discovering(t)
	expect(t, "the first time", s, d, "[v1] <nil>", "200 /api", "200 /apis")
	s.fail("/apis", http.StatusForbidden, "text/plain", "no")
	expect(t, "refused", s, d, "an error", "200 /api", "304 /api", "403 /apis", "403 /apis")
	s.serve("/apis", noGroups)
	expect(t, "afterwards", s, d, "[v1] <nil>", "200 /api", "200 /apis")
}

// TestEmptyDiscoveryIsReadAgain: the feed does not accept an answer without resources, so it never becomes the last one.
func TestEmptyDiscoveryIsReadAgain(t *testing.T) {
	s, d := discovering(t)
	s.serve("/api", noGroups)
	for range 2 {
		expect(t, "empty", s, d, "[] <nil>", "200 /api", "200 /apis")
	}
}

// TestServersWithoutAggregatedDiscovery: the client of client-go asks them, from the second time on without a further request.
func TestServersWithoutAggregatedDiscovery(t *testing.T) {
	s, d := discovering(t)
	s.fail("/api", http.StatusOK, "application/json", `{"kind":"APIVersions","versions":["v1"]}`)
	s.fail("/apis", http.StatusOK, "application/json", `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	s.fail("/api/v1", http.StatusOK, "application/json", `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods","kind":"Pod","verbs":["list"]}]}`)
	expect(t, "the first time", s, d, "[v1] <nil>", "200 /api", "200 /api", "200 /api/v1", "200 /apis", "200 /apis")
	expect(t, "again", s, d, "[v1] <nil>", "200 /api", "200 /api/v1", "200 /apis")
}
