package crowd

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Server answers the requests of clients.
type Server struct {
	store   *Store
	leases  *leases
	control *control

	mu       sync.Mutex
	requests map[string]int // guarded by mu
}

// NewServer returns the handler of a store. It authenticates nobody: Serve asks for a client certificate.
func NewServer(store *Store) *Server {
	s := &Server{store: store, leases: newLeases(store.now), requests: map[string]int{}}
	s.control = newControl(s)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Trim(r.URL.Path, "/")
	switch first, _, _ := strings.Cut(path, "/"); {
	case first == "control":
		s.control.ServeHTTP(w, r)
	case first == "healthz" || first == "readyz" || first == "livez":
		fmt.Fprint(w, "ok")
	case path == "version":
		writeJSON(w, http.StatusOK, versionInfo())
	case first != "api" && first != "apis":
		refuse(w, r, notFound(path))
	default:
		s.serveAPI(w, r, path)
	}
}

// serveAPI answers requests for discovery and for resources.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, path string) {
	if document := discovery(s.store.Population, path, r); document != nil {
		writeJSON(w, http.StatusOK, document)
		return
	}
	target, ok := parseTarget(path)
	if !ok {
		refuse(w, r, notFound(path))
		return
	}
	if handled := s.serveTyped(w, r, target); handled {
		return
	}
	kind := s.store.KindOf(target.gvr)
	if kind == nil || target.subresource != "" {
		refuse(w, r, notFound(path))
		return
	}
	request := request{Server: s, kind: kind, target: target, r: r}
	if err := request.serve(w); err != nil {
		refuse(w, r, err)
	}
}

// serveTyped answers the requests whose objects are more than metadata: Leases by name, and reviews and Events, which are
// not kept.
func (s *Server) serveTyped(w http.ResponseWriter, r *http.Request, t target) (handled bool) {
	isWrite := r.Method == http.MethodPost || r.Method == http.MethodPut
	switch {
	case t.gvr.Resource == "leases" && t.gvr.Group == "coordination.k8s.io" && (isWrite || t.name != ""):
		s.count("LEASE")
		s.leases.serve(w, r, t)
	case t.gvr.Resource == "events" && isWrite:
		s.count("EVENT")
		echo(w, r)
	case strings.HasSuffix(t.gvr.Resource, "accessreviews") && isWrite:
		writeObject(w, r, http.StatusCreated, allowed(t.gvr.Resource))
	default:
		return false
	}
	return true
}

// count counts a request.
func (s *Server) count(verb string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[verb]++
}

// target is the object or the collection that a path names.
type target struct {
	gvr                          schema.GroupVersionResource
	namespace, name, subresource string
}

func parseTarget(path string) (t target, ok bool) {
	parts := strings.Split(path, "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		t.gvr.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		t.gvr.Group, t.gvr.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return t, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.gvr.Resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}
	return t, len(parts) <= 3
}

// request is a request for objects of one kind.
type request struct {
	*Server
	kind   *Kind
	target target
	r      *http.Request
}

func (q request) serve(w http.ResponseWriter) error {
	query := q.r.URL.Query()
	isWatch := query.Get("watch") == "true" || query.Get("watch") == "1"
	switch {
	case q.target.name == "" && q.r.Method == http.MethodGet && isWatch:
		q.count("WATCH")
		return q.watch(w)
	case q.target.name == "" && q.r.Method == http.MethodGet:
		q.count("LIST")
		return q.list(w)
	case q.target.name == "":
		return apierrors.NewMethodNotSupported(q.kind.GroupResource(), q.r.Method)
	}
	n, ok := q.store.Find(q.kind, q.target.namespace, q.target.name)
	q.count(q.r.Method)
	switch {
	case !ok:
		return q.absent()
	case q.r.Method == http.MethodGet:
		return q.get(w, n)
	case q.r.Method == http.MethodDelete:
		return q.delete(w, n)
	case q.r.Method == http.MethodPatch:
		return q.patch(w, n)
	}
	return apierrors.NewMethodNotSupported(q.kind.GroupResource(), q.r.Method)
}

func (q request) absent() error { return apierrors.NewNotFound(q.kind.GroupResource(), q.target.name) }

func notFound(path string) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "the path /"+path+" is not served", 0, false)
}

// refuse answers with an error as a Status.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	if known, ok := errors.AsType[*apierrors.StatusError](err); ok {
		*status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	writeObject(w, r, int(status.Code), status)
}

// wantsProtobuf reports whether the first of the media types that a client accepts is protobuf.
func wantsProtobuf(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf)
}

// isPartial reports whether a client asks for metadata only.
func isPartial(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	return strings.Contains(first, "as=PartialObjectMetadata")
}
