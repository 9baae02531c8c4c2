package wireserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// RoundTrip implements http.RoundTripper; the body of a watch is a stream.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.URL.Query().Get("watch") == "" {
		recorder := httptest.NewRecorder()
		s.ServeHTTP(recorder, r)
		return recorder.Result(), nil
	}
	body, wire := io.Pipe()
	begun := make(chan *http.Response, 1)
	go func() {
		defer wire.Close()
		s.ServeHTTP(&streamed{header: http.Header{}, wire: wire, body: body, begun: begun}, r)
	}()
	select {
	case response := <-begun:
		return response, nil
	case <-r.Context().Done():
		_ = body.Close()
		return nil, r.Context().Err()
	}
}

// streamed is the response to a watch.
type streamed struct {
	header http.Header
	wire   *io.PipeWriter
	body   *io.PipeReader
	begun  chan *http.Response
}

// Header implements http.ResponseWriter.
func (w *streamed) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *streamed) WriteHeader(code int) {
	w.begun <- &http.Response{
		StatusCode: code, Status: http.StatusText(code), Header: w.header, Body: w.body, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

// Write implements http.ResponseWriter.
func (w *streamed) Write(data []byte) (int, error) { return w.wire.Write(data) }

// Flush implements http.Flusher.
func (w *streamed) Flush() {}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	isDown := s.isDown
	s.mu.Unlock()
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case isDown:
		answer(w, http.StatusServiceUnavailable, status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable))
		return
	case len(path) == 1:
		s.discover(w, path[0])
		return
	}
	if path[0] == "apis" {
		path = path[1:]
	}
	path = path[2:] // the group or "api", and the version
	namespace := ""
	if len(path) > 2 && path[0] == "namespaces" {
		namespace, path = path[1], path[2:]
	}
	query := r.URL.Query()
	switch {
	case s.resource(path[0]).Name == "":
		answer(w, http.StatusNotFound, status(http.StatusNotFound, metav1.StatusReasonNotFound))
	case r.Method == http.MethodGet && len(path) == 2:
		s.get(w, path[0], namespace, path[1])
	case r.Method == http.MethodDelete && len(path) == 2:
		s.remove(w, r, path[0], namespace)
	case r.Method == http.MethodPatch && len(path) == 2:
		s.patch(w, r, path[0], namespace, path[1])
	case query.Get("sendInitialEvents") == "true":
		answer(w, http.StatusUnprocessableEntity, status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid))
	case query.Get("watch") != "":
		s.watch(r.Context(), w, path[0], query.Get("resourceVersion"))
	default:
		s.list(w, path[0], query)
	}
}

func (s *Server) list(w http.ResponseWriter, resource string, query url.Values) {
	name, isSelected := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	limit := query.Get("limit")
	s.mu.Lock()
	if at, err := strconv.Atoi(query.Get("resourceVersion")); err == nil && query.Get("resourceVersionMatch") == "Exact" && at-s.resource(resource).Offset < s.compacted {
		s.mu.Unlock()
		answer(w, http.StatusGone, status(http.StatusGone, metav1.StatusReasonExpired))
		return
	}
	if limit == "1" {
		s.requests.Probes++
	} else {
		s.requests.Lists++
	}
	list := &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.state.revision + s.resource(resource).Offset)},
	}
	for _, o := range s.state.objects[resource] {
		if (!isSelected || o.Name == name) && (limit != "1" || len(list.Items) == 0) {
			list.Items = append(list.Items, *o)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list.Items, func(a, b metav1.PartialObjectMetadata) int { return strings.Compare(string(a.UID), string(b.UID)) })
	answer(w, http.StatusOK, list)
}

func (s *Server) watch(ctx context.Context, w http.ResponseWriter, resource, from string) {
	offset := s.resource(resource).Offset
	reached, _ := strconv.Atoi(from)
	reached -= offset
	s.mu.Lock()
	s.requests.Watches++
	isGone, restored := reached < s.compacted, s.restored
	s.mu.Unlock()
	if isGone {
		answer(w, http.StatusGone, status(http.StatusGone, metav1.StatusReasonExpired))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	encoder := json.NewEncoder(w)
	for {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		events, changed, now := s.after(reached, resource)
		if now != restored {
			return
		}
		for _, e := range events {
			if encoder.Encode(e) != nil {
				return
			}
			reached = e.revision
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// after returns the changes of a resource after a revision, a channel that is closed at the next change, and the
// number of restores.
func (s *Server) after(revision int, resource string) (events []event, changed <-chan struct{}, restored int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.history {
		if e.revision > revision && e.resource == resource {
			events = append(events, e)
		}
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return events, s.changed, s.restored
}

// findLocked returns an object by its name.
func (s *Server) findLocked(resource, namespace, name string) *metav1.PartialObjectMetadata {
	for _, o := range s.state.objects[resource] {
		if o.Name == name && o.Namespace == namespace {
			return o
		}
	}
	return nil
}

func (s *Server) get(w http.ResponseWriter, resource, namespace, name string) {
	s.mu.Lock()
	s.requests.Gets++
	o := s.findLocked(resource, namespace, name)
	s.mu.Unlock()
	if o == nil {
		s.notFound(w, resource, name)
		return
	}
	answer(w, http.StatusOK, o)
}

// remove executes a DELETE, with its preconditions.
func (s *Server) remove(w http.ResponseWriter, r *http.Request, resource, namespace string) {
	if r.Header.Get("Content-Type") != "application/json" {
		answer(w, http.StatusUnsupportedMediaType, status(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType))
		return
	}
	var options metav1.DeleteOptions
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &options)
	}
	if err != nil || options.Preconditions == nil || options.Preconditions.UID == nil || options.Preconditions.ResourceVersion == nil {
		answer(w, http.StatusBadRequest, status(http.StatusBadRequest, metav1.StatusReasonBadRequest))
		return
	}
	segments := strings.Split(r.URL.Path, "/")
	name := segments[len(segments)-1]
	s.mu.Lock()
	s.requests.Deletes++
	o := s.findLocked(resource, namespace, name)
	if o != nil && s.isOwnedLocked(o) {
		s.wrong = append(s.wrong, resource+" "+string(o.UID))
	}
	s.mu.Unlock()
	switch {
	case o == nil:
		s.notFound(w, resource, name)
	case o.UID != *options.Preconditions.UID || o.ResourceVersion != *options.Preconditions.ResourceVersion:
		answer(w, http.StatusConflict, status(http.StatusConflict, metav1.StatusReasonConflict))
	default:
		s.Remove(resource, o.UID)
		answer(w, http.StatusOK, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	}
}

// patch replaces the owner references of an object. Without finalizers the collector patches nothing else.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, resource, namespace, name string) {
	var patch metav1.PartialObjectMetadata
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		answer(w, http.StatusBadRequest, status(http.StatusBadRequest, metav1.StatusReasonBadRequest))
		return
	}
	s.mu.Lock()
	o := s.findLocked(resource, namespace, name)
	s.mu.Unlock()
	switch {
	case o == nil:
		s.notFound(w, resource, name)
	case o.UID != patch.UID || o.ResourceVersion != patch.ResourceVersion:
		answer(w, http.StatusConflict, status(http.StatusConflict, metav1.StatusReasonConflict))
	default:
		meta := o.ObjectMeta
		meta.OwnerReferences = patch.OwnerReferences
		s.Put(resource, meta)
		s.get(w, resource, namespace, name)
	}
}

func (s *Server) notFound(w http.ResponseWriter, resource, name string) {
	gone := status(http.StatusNotFound, metav1.StatusReasonNotFound)
	gone.Details = &metav1.StatusDetails{Name: name, Group: s.resource(resource).Group, Kind: resource}
	answer(w, http.StatusNotFound, gone)
}

func (s *Server) discover(w http.ResponseWriter, prefix string) {
	s.mu.Lock()
	s.requests.Discovery++
	s.mu.Unlock()
	groups := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{
		APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList",
	}}
	for _, r := range s.resources {
		if (r.Group == "") != (prefix == "api") {
			continue
		}
		i := slices.IndexFunc(groups.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == r.Group })
		if i < 0 {
			i = len(groups.Items)
			groups.Items = append(groups.Items, apidiscoveryv2.APIGroupDiscovery{
				ObjectMeta: metav1.ObjectMeta{Name: r.Group}, Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1"}},
			})
		}
		version := &groups.Items[i].Versions[0]
		version.Resources = append(version.Resources, r.discovered())
	}
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	answer(w, http.StatusOK, groups)
}

func (r Resource) discovered() apidiscoveryv2.APIResourceDiscovery {
	scope := apidiscoveryv2.ScopeNamespace
	if r.Cluster {
		scope = apidiscoveryv2.ScopeCluster
	}
	kind := metav1.GroupVersionKind(schema.GroupVersionKind{Group: r.Group, Version: "v1", Kind: r.Kind})
	return apidiscoveryv2.APIResourceDiscovery{
		Resource: r.Name, ResponseKind: &kind, Scope: scope, Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"},
	}
}

func status(code int32, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: string(reason),
	}
}

// answer writes a response.
func answer(w http.ResponseWriter, code int, body any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has gone
}

// Owned returns the metadata of an object, with an owner of kind ConfigMap, or none.
func Owned(name string, uid types.UID, owners ...types.UID) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}
	for _, owner := range owners {
		meta.OwnerReferences = append(meta.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: "owner-" + string(owner), UID: owner,
		})
	}
	return meta
}
