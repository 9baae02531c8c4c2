// Package wireserver is an in-memory API server over HTTP, for tests of many clusters in one process. It
// serves metadata: discovery, lists, watches that continue from a revision, live reads, deletions and patches.
// It has one revision for all resources, as etcd has, can compact old revisions, and can be restored from a
// backup. It has no rules of deletion: objects have no finalizers.
//
// Server is an http.Handler, and also a transport without a socket, so that tests run on fake time.
package wireserver

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Resource is a resource of a server, in version v1.
type Resource struct {
	Group, Name, Kind string
	Cluster           bool // its objects have no namespace
	// Offset is added to its revisions, as if the resource had its own store.
	Offset int
}

// Server is an API server. Make one with New. It is safe for concurrent use.
type Server struct {
	resources []Resource

	mu        sync.Mutex
	state     state         // guarded by mu, and so is all below
	history   []event       // after compacted
	compacted int           // the last compacted revision
	changed   chan struct{} // closed at the next change; made by the waiting goroutine, so that it belongs to its synctest bubble
	isDown    bool
	restored  int      // how often
	wrong     []string // deletions of objects that had an owner
	requests  Requests
}

// state holds the server's objects at a revision.
type state struct {
	revision int
	objects  map[string]map[types.UID]*metav1.PartialObjectMetadata // by resource
}

// event is a change.
type event struct {
	revision int
	resource string
	Type     string                        `json:"type"`
	Object   *metav1.PartialObjectMetadata `json:"object"`
}

// Requests counts requests by type.
type Requests struct{ Discovery, Lists, Probes, Watches, Gets, Deletes int }

// New returns a server with these resources, and with namespaces. The namespace kube-system exists.
func New(resources ...Resource) *Server {
	s := &Server{
		resources: append([]Resource{{Name: "namespaces", Kind: "Namespace", Cluster: true}}, resources...),
		state:     state{revision: 100, objects: make(map[string]map[types.UID]*metav1.PartialObjectMetadata)},
	}
	for _, r := range s.resources {
		s.state.objects[r.Name] = make(map[types.UID]*metav1.PartialObjectMetadata)
	}
	s.Put("namespaces", metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "kube-system"})
	return s
}

// Config returns the configuration of clients of the server, without a socket.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: "http://server", Transport: s} }

// change makes a change and tells the watches.
func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Put creates or updates an object.
func (s *Server) Put(resource string, meta metav1.ObjectMeta) {
	s.change(func() {
		kind := "ADDED"
		if s.state.objects[resource][meta.UID] != nil {
			kind = "MODIFIED"
		}
		s.recordLocked(resource, kind, &metav1.PartialObjectMetadata{TypeMeta: partial(), ObjectMeta: meta})
	})
}

// Remove removes an object. It reports whether there was one.
func (s *Server) Remove(resource string, uid types.UID) (removed bool) {
	s.change(func() {
		if o := s.state.objects[resource][uid]; o != nil {
			last := *o
			s.recordLocked(resource, "DELETED", &last)
			removed = true
		}
	})
	return removed
}

func (s *Server) recordLocked(resource, kind string, o *metav1.PartialObjectMetadata) {
	s.state.revision++
	o.ResourceVersion = strconv.Itoa(s.state.revision + s.resource(resource).Offset)
	if kind == "DELETED" {
		delete(s.state.objects[resource], o.UID)
	} else {
		s.state.objects[resource][o.UID] = o
	}
	s.history = append(s.history, event{s.state.revision, resource, kind, o})
}

// Tick increments the revision, as a write to a resource without watches does.
func (s *Server) Tick() { s.change(func() { s.state.revision++ }) }

// Compact removes the history.
func (s *Server) Compact() {
	s.change(func() { s.history, s.compacted = nil, s.state.revision })
}

// SetDown makes the server refuse all requests, or serve them again. Open watches stay open.
func (s *Server) SetDown(isDown bool) { s.change(func() { s.isDown = isDown }) }

// Backup saves the state of the server and returns a function that restores it.
func (s *Server) Backup() (restore func()) {
	s.mu.Lock()
	saved := s.state.clone()
	s.mu.Unlock()
	return func() {
		s.change(func() {
			s.state = saved.clone()
			s.restored++ // which ends the watches
			s.history, s.compacted = nil, s.state.revision
		})
	}
}

// Become copies the state of another server, without watch events.
func (s *Server) Become(other *Server) {
	other.mu.Lock()
	now := other.state.clone()
	other.mu.Unlock()
	s.change(func() {
		s.state, s.history = now, nil
		s.restored++
	})
}

func (s state) clone() state {
	c := state{s.revision, make(map[string]map[types.UID]*metav1.PartialObjectMetadata)}
	for resource, objects := range s.objects {
		c.objects[resource] = maps.Clone(objects)
	}
	return c
}

// Wrong returns the objects that a request deleted although an owner, a ConfigMap, existed.
func (s *Server) Wrong() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wrong)
}

// Garbage returns the UIDs of a resource's objects that have owners, but no existing one.
func (s *Server) Garbage(resource string) (garbage []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, o := range s.state.objects[resource] {
		if len(o.OwnerReferences) > 0 && !s.isOwnedLocked(o) {
			garbage = append(garbage, uid)
		}
	}
	return garbage
}

func (s *Server) isOwnedLocked(o *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return s.state.objects["configmaps"][r.UID] != nil })
}

// UIDs returns the UIDs of a resource's objects, sorted.
func (s *Server) UIDs(resource string) []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.state.objects[resource]))
}

// Requests returns the counts of requests since the last call.
func (s *Server) Requests() Requests {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests
	s.requests = Requests{}
	return r
}

func (s *Server) resource(name string) Resource {
	for _, r := range s.resources {
		if r.Name == name {
			return r
		}
	}
	return Resource{}
}

func partial() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
}
