// Package apimodel is a small model of an API server that is easy to reason about. Tests and
// simulations run a collector against it.
//
// It holds the metadata of objects and one revision that counts all writes. A
// request goes through four steps:
//
//  1. Before hooks: a test changes the objects between the collector's decision
//     and its request.
//  2. Faults: a fault replaces or drops the normal answer.
//  3. The rules (rules.go): preconditions, finalizers, the three propagation
//     policies, in one atomic step.
//  4. A watch event for each write, delivered to the sink in the order of revisions within a kind,
//     at a time that the test chooses (watch.go).
//
// For the barrier (R15) it lists, page by page and from one state (list.go), and reports the
// watched kinds (Survey, Undiscovered), the progress of their watches (Reached, Bookmark), and, if
// enabled, the last write of each kind (TellNewest). Lists pass through hooks and faults like all
// requests: their Verb is "list", and their Ref has no name and, across namespaces, no namespace;
// Fault.Kind affects all requests for one kind. For epochs (R4) it can be restored to an earlier
// state (Backup, Restore).
//
// It starts no goroutine and reads no clock, so the same calls in the same order give the same
// result. It is safe for concurrent use. Mistakes of the test, such as the update of an object that
// does not exist, panic.
package apimodel

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// Server is a model of an API server. Make one with New.
type Server struct {
	mu          sync.Mutex
	revision    int                                // guarded by mu, and so is all below
	scopes      map[ownership.Kind]ownership.Scope // the kinds that are served
	objects     map[client.Ref]stored              // by coordinates
	pending     map[ownership.Kind][]event         // committed, not delivered
	held        map[ownership.Kind]bool            // kinds whose events are not delivered
	reached     map[ownership.Kind]int             // the revisions that the watches have reached
	wrote       map[ownership.Kind]int             // the last creation or update of each kind
	history     string                             // for Newest
	unknown     []string                           // group versions that discovery cannot read
	outages     map[string]apiservice.Outage       // of these group versions
	created     map[client.Ref]time.Time           // of objects; the zero time for all others
	lists       map[string]*snapshot               // unfinished lists, by continue token
	faults      []*Fault
	keepsOwners atomic.Bool
	before      []func(Request)
	requests    []Request

	delivery sync.Mutex // held while events are delivered, so that they stay in order
	sink     feed.Sink  // guarded by delivery
	manual   bool       // set by Manual before use
}

// stored is an object in the server.
type stored struct {
	ownership.Object
	deleting bool // has a deletionTimestamp
}

// Request is a request that reached the server.
type Request struct {
	Verb            string        // "get", "list", "delete", "patch owners", "patch finalizers"
	Ref             client.Ref    // for a list without a name, and across all namespaces without a namespace
	UID             ownership.UID // of the precondition
	ResourceVersion string        // of the precondition
	Propagation     verdict.Propagation
}

// New returns a server that serves no kind. Watch events are delivered immediately after the write.
func New() *Server {
	return &Server{
		revision: 1,
		scopes:   make(map[ownership.Kind]ownership.Scope),
		objects:  make(map[client.Ref]stored),
		pending:  make(map[ownership.Kind][]event),
		held:     make(map[ownership.Kind]bool),
		reached:  make(map[ownership.Kind]int),
		wrote:    make(map[ownership.Kind]int),
		lists:    make(map[string]*snapshot),
	}
}

// Create stores an object. It generates a UID if the object has none.
func (s *Server) Create(o ownership.Object) ownership.Object {
	defer s.deliver()
	s.mu.Lock()
	defer s.mu.Unlock()
	ref := client.RefOf(o)
	if _, ok := s.objects[ref]; ok {
		panic(fmt.Sprintf("apimodel: %s exists", ref))
	}
	if s.scopes[o.Kind] == ownership.ScopeUnknown {
		panic(fmt.Sprintf("apimodel: %s is not served", o.Kind))
	}
	if o.UID == "" {
		o.UID = ownership.UID(fmt.Sprintf("uid-%d", s.revision+1))
	}
	return s.commitLocked(stored{Object: clone(o)}).Object
}

// Update changes the finalizers and owners of an object, without a precondition on the
// resourceVersion. An object that loses its last finalizer this way is removed.
func (s *Server) Update(ref client.Ref, change func(o *ownership.Object)) ownership.Object {
	defer s.deliver()
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.mustFindLocked(ref)
	change(&object.Object)
	return s.commitLocked(object).Object
}

// Remove deletes an object, without a precondition on the resourceVersion.
func (s *Server) Remove(ref client.Ref, propagation verdict.Propagation) {
	defer s.deliver()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commitLocked(deleted(s.mustFindLocked(ref), propagation))
}

// Lookup returns the current state of an object.
func (s *Server) Lookup(ref client.Ref) (ownership.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object, ok := s.objects[ref]
	return clone(object.Object), ok
}

// Len returns the number of objects.
func (s *Server) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}

// Revision counts the writes.
func (s *Server) Revision() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// Requests returns the requests of the collector so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Count returns the number of requests so far with that verb, or of all requests for "".
func (s *Server) Count(verb string) int {
	n := 0
	for _, r := range s.Requests() {
		if verb == "" || r.Verb == verb {
			n++
		}
	}
	return n
}

func (s *Server) mustFindLocked(ref client.Ref) stored {
	object, ok := s.objects[ref]
	if !ok {
		panic(fmt.Sprintf("apimodel: %s does not exist", ref))
	}
	object.Object = clone(object.Object)
	return object
}

// commitLocked writes an object at the next revision, and records the watch event. A write that
// changes nothing does neither. An object that is being deleted and has no finalizers is removed
// by the write (R18).
func (s *Server) commitLocked(object stored) stored {
	ref := client.RefOf(object.Object)
	object.Phase = object.phase()
	if before, ok := s.objects[ref]; ok && before.equal(object) {
		return object
	}
	s.revision++
	object.ResourceVersion = strconv.Itoa(s.revision)
	gone := object.deleting && len(object.Finalizers) == 0
	if gone {
		delete(s.objects, ref)
	} else {
		s.objects[ref] = object
		s.wrote[object.Kind] = s.revision
	}
	s.pending[object.Kind] = append(s.pending[object.Kind], event{object: clone(object.Object), gone: gone, revision: s.revision})
	object.Object = clone(object.Object)
	return object
}

// phase returns the phase of an object. It is stated here a second time so that a bug in
// ownership.PhaseOf shows. If an object carries both finalizers, orphan wins (TR-04).
func (o stored) phase() ownership.Phase {
	switch {
	case !o.deleting:
		return ownership.Active
	case slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents):
		return ownership.Orphaning
	case slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents):
		return ownership.Foreground
	default:
		return ownership.Terminating
	}
}

func (o stored) equal(other stored) bool {
	return o.UID == other.UID && o.deleting == other.deleting &&
		slices.Equal(o.Finalizers, other.Finalizers) && slices.Equal(o.Owners, other.Owners)
}

func clone(o ownership.Object) ownership.Object {
	o.Finalizers = slices.Clone(o.Finalizers)
	o.Owners = slices.Clone(o.Owners)
	return o
}
