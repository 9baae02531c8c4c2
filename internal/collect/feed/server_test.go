package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/feed"
)

// fakeServer is an API server with discovery, and lists and watches of metadata. Requests
// reach it without a socket, so that tests run on the clock of testing/synctest.
type fakeServer struct {
	mu       sync.Mutex
	revision int
	prefix   string // of revisions: with one they are no numbers
	served   []kind
	stale    map[string]bool           // groups whose discovery fails
	down     bool                      // everything is answered with 503
	noStream bool                      // lists by watch are refused, as by an older server
	refusal  map[string]int            // status codes by resource, or by path
	refuses  func(r *http.Request) int // replaces refusal for resources: the status code of one request; 0: it is answered
	words    string                    // of the Status in refusals of resources; without them, refusals are pages, as of a load balancer
	objects  map[string]map[types.UID]*metav1.PartialObjectMetadata
	watches  map[string][]chan event // closed to end the watch
	requests map[string]int          // by path
}

// kind is a kind as the server serves it.
type kind struct {
	group, version, resource, kind string
	cluster                        bool
	verbs                          []string // nil: all
}

type event struct {
	Type   string                        `json:"type"`
	Object *metav1.PartialObjectMetadata `json:"object"`
}

func newServer(served ...kind) *fakeServer {
	return &fakeServer{
		revision: 100,
		served:   served,
		stale:    make(map[string]bool),
		refusal:  make(map[string]int),
		objects:  make(map[string]map[types.UID]*metav1.PartialObjectMetadata),
		watches:  make(map[string][]chan event),
		requests: make(map[string]int),
	}
}

// feed returns a feed that reads this server.
func (s *fakeServer) feed(t *testing.T, config feed.Config) *feed.Feed {
	t.Helper()
	restConfig := &rest.Config{Host: "http://server", QPS: -1, Transport: s}
	d, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := feed.NewClient(restConfig)
	if err != nil {
		t.Fatal(err)
	}
	return feed.New(&sparing{Discovery: d}, client, config)
}

// sparing returns each answer of discovery once, until it changes.
type sparing struct {
	feed.Discovery

	groups []*metav1.APIGroup
	lists  []*metav1.APIResourceList
	err    error
}

func (d *sparing) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, err := d.Discovery.ServerGroupsAndResourcesWithContext(ctx)
	if len(lists) > 0 && reflect.DeepEqual(groups, d.groups) && reflect.DeepEqual(lists, d.lists) && fmt.Sprint(err) == fmt.Sprint(d.err) {
		return nil, nil, feed.ErrUnchanged
	}
	d.groups, d.lists, d.err = groups, lists, err
	return groups, lists, err
}

func (s *fakeServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *fakeServer) serve(k kind) { s.change(func() { s.served = append(s.served, k) }) }

// withdraw stops serving a resource: its watches end, its objects are lost.
func (s *fakeServer) withdraw(resource string) {
	s.change(func() {
		s.served = slices.DeleteFunc(s.served, func(k kind) bool { return k.resource == resource })
		delete(s.objects, resource)
		s.hangUp(resource)
	})
}

// hangUp ends the watches of a resource. It is called within change.
func (s *fakeServer) hangUp(resource string) {
	for _, w := range s.watches[resource] {
		close(w)
	}
	delete(s.watches, resource)
}

// put creates or updates an object.
func (s *fakeServer) put(resource string, meta metav1.ObjectMeta) {
	s.change(func() {
		s.revision++
		meta.ResourceVersion = s.prefix + strconv.Itoa(s.revision)
		object := &metav1.PartialObjectMetadata{TypeMeta: partial, ObjectMeta: meta}
		if s.objects[resource] == nil {
			s.objects[resource] = make(map[types.UID]*metav1.PartialObjectMetadata)
		}
		e := event{"ADDED", object}
		if s.objects[resource][meta.UID] != nil {
			e.Type = "MODIFIED"
		}
		s.objects[resource][meta.UID] = object
		s.send(resource, e)
	})
}

// remove removes an object, with a DELETED event.
func (s *fakeServer) remove(resource string, uid types.UID) {
	s.change(func() {
		s.revision++
		last := *s.objects[resource][uid]
		last.ResourceVersion = s.prefix + strconv.Itoa(s.revision)
		delete(s.objects[resource], uid)
		s.send(resource, event{"DELETED", &last})
	})
}

func (s *fakeServer) send(resource string, e event) {
	for _, w := range s.watches[resource] {
		w <- e
	}
}

var partial = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}

// RoundTrip answers a request; the body of a watch is a stream.
func (s *fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[r.URL.Path]++
	switch {
	case s.down:
		return answer(http.StatusServiceUnavailable, nil), nil
	case s.refusal[r.URL.Path] != 0:
		return answer(s.refusal[r.URL.Path], nil), nil
	case r.URL.Path == "/api" || r.URL.Path == "/apis":
		return s.discovery(r.URL.Path == "/api"), nil
	}
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource, version := segments[len(segments)-1], segments[len(segments)-2]
	i := slices.IndexFunc(s.served, func(k kind) bool { return k.resource == resource && k.version == version })
	switch {
	case i < 0 && slices.ContainsFunc(s.served, func(k kind) bool { return k.resource == version }):
		return gone(resource), nil // there are no single objects
	case i < 0:
		return answer(http.StatusNotFound, nil), nil
	}
	code := s.refusal[resource]
	if s.refuses != nil {
		code = s.refuses(r)
	}
	if code != 0 {
		return s.refuse(code), nil
	}
	query := r.URL.Query()
	switch {
	case query.Get("watch") == "":
		return answer(http.StatusOK, s.list(resource)), nil
	case query.Get("sendInitialEvents") == "true" && s.noStream:
		return answer(http.StatusUnprocessableEntity, nil), nil
	default:
		return s.watch(r, resource, query.Get("sendInitialEvents") == "true"), nil
	}
}

func (s *fakeServer) list(resource string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: s.prefix + strconv.Itoa(s.revision)},
	}
	for _, uid := range slices.Sorted(maps.Keys(s.objects[resource])) {
		list.Items = append(list.Items, *s.objects[resource][uid])
	}
	return list
}

func (s *fakeServer) watch(r *http.Request, resource string, initial bool) *http.Response {
	events := make(chan event, 1000)
	s.watches[resource] = append(s.watches[resource], events)
	if initial {
		list := s.list(resource)
		for i := range list.Items {
			events <- event{"ADDED", &list.Items[i]}
		}
		events <- event{"BOOKMARK", &metav1.PartialObjectMetadata{TypeMeta: partial, ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: s.prefix + strconv.Itoa(s.revision),
			Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}}
	}
	body, wire := io.Pipe()
	go func() {
		defer wire.Close()
		for {
			select {
			case e, ok := <-events:
				if !ok || json.NewEncoder(wire).Encode(e) != nil {
					return
				}
			case <-r.Context().Done():
				return
			}
		}
	}()
	response := answer(http.StatusOK, nil)
	response.Body = body
	return response
}

func (s *fakeServer) discovery(core bool) *http.Response {
	groups := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{
		APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList",
	}}
	for _, k := range s.served {
		if (k.group == "") != core {
			continue
		}
		i := slices.IndexFunc(groups.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == k.group })
		if i < 0 {
			i = len(groups.Items)
			groups.Items = append(groups.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: k.group}})
		}
		group := &groups.Items[i]
		j := slices.IndexFunc(group.Versions, func(v apidiscoveryv2.APIVersionDiscovery) bool { return v.Version == k.version })
		if j < 0 {
			j = len(group.Versions)
			group.Versions = append(group.Versions, apidiscoveryv2.APIVersionDiscovery{Version: k.version})
		}
		group.Versions[j].Resources = append(group.Versions[j].Resources, k.discovered())
		if s.stale[k.group] {
			group.Versions[j] = apidiscoveryv2.APIVersionDiscovery{Version: k.version, Freshness: apidiscoveryv2.DiscoveryFreshnessStale}
		}
	}
	response := answer(http.StatusOK, groups)
	response.Header.Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	return response
}

func (k kind) discovered() apidiscoveryv2.APIResourceDiscovery {
	scope, verbs := apidiscoveryv2.ScopeNamespace, k.verbs
	if k.cluster {
		scope = apidiscoveryv2.ScopeCluster
	}
	if verbs == nil {
		verbs = []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	}
	gvk := schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.kind}
	responseKind := metav1.GroupVersionKind(gvk)
	return apidiscoveryv2.APIResourceDiscovery{
		Resource: k.resource, ResponseKind: &responseKind, Scope: scope, Verbs: verbs,
		Subresources: []apidiscoveryv2.APISubresourceDiscovery{{
			Subresource: "status", ResponseKind: &responseKind, Verbs: []string{"get", "patch", "update"},
		}},
	}
}

// gone returns the answer for an object that does not exist.
func gone(name string) *http.Response {
	response := answer(http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Name: name},
	})
	response.StatusCode = http.StatusNotFound
	return response
}

// refuse returns the answer to a list that is refused.
func (s *fakeServer) refuse(code int) *http.Response {
	if s.words == "" {
		return answer(code, nil)
	}
	response := answer(http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Message: s.words,
	})
	response.StatusCode = code
	return response
}

func answer(code int, body any) *http.Response {
	text := fmt.Sprintf("%d %s", code, http.StatusText(code))
	response := &http.Response{
		StatusCode: code, Status: text, Header: http.Header{"Content-Type": {"text/plain"}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if code == http.StatusOK {
		raw, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		text = string(raw)
		response.Header.Set("Content-Type", "application/json")
	}
	response.Body = io.NopCloser(strings.NewReader(text))
	return response
}
