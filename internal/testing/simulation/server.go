package simulation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// server is an API server that keeps every version of every object, so that the oracle can look
// back.
type apiServer struct {
	revision  int
	resources []*resource
	objects   map[client.Ref]*life
	lives     []*life // of all objects that ever existed, in the order of creation
	byUID     map[ownership.UID]*life
	restored  int // number of times that a backup was restored

	// admission: new references to an owner in foreground or orphan deletion are
	// refused, as our own server does (R15).
	admission bool
	// beforeWrite is called for every write of the collector that is accepted, even if it changes
	// nothing; afterWrite for every change, by any client.
	beforeWrite func(before, after *version, by *call)
	afterWrite  func(after *version)
}

// resource is a kind as the server serves it.
type resource struct {
	short   string // its name in a schedule
	kind    ownership.Kind
	scope   ownership.Scope
	watched bool
	served  bool
	broken  bool       // every request is answered with 500
	log     []*version // its watch events, in the order of revisions
	epoch   int        // the number of times that the watches were cut for good
}

// The names of the resources in a schedule.
const (
	pod    = "Pod"
	set    = "Set"    // ReplicaSet.apps
	node   = "Node"   // cluster-scoped
	zone   = "Zone"   // cluster-scoped too
	widget = "Widget" // a custom resource, which can be withdrawn
	gadget = "Gadget" // a custom resource that cannot be watched
	ghost  = "Ghost"  // a kind that is never served
)

func newAPIServer() *apiServer {
	custom := func(kind string) ownership.Kind { return ownership.Kind{Group: "example.com", Kind: kind} }
	return &apiServer{
		revision: 1,
		resources: []*resource{
			{short: pod, kind: ownership.Kind{Kind: pod}, scope: ownership.Namespaced, watched: true, served: true},
			{short: set, kind: ownership.Kind{Group: "apps", Kind: "ReplicaSet"}, scope: ownership.Namespaced, watched: true, served: true},
			{short: node, kind: ownership.Kind{Kind: node}, scope: ownership.Cluster, watched: true, served: true},
			{short: zone, kind: custom(zone), scope: ownership.Cluster, watched: true, served: true},
			{short: widget, kind: custom(widget), scope: ownership.Namespaced, watched: true, served: true},
			{short: gadget, kind: custom(gadget), scope: ownership.Namespaced, served: true},
			{short: ghost, kind: custom(ghost)},
		},
		objects: make(map[client.Ref]*life),
		byUID:   make(map[ownership.UID]*life),
	}
}

// resource finds a resource of newServer by its kind.
func (s *apiServer) resource(kind ownership.Kind) *resource {
	return s.resources[s.index(kind)]
}

func (s *apiServer) index(kind ownership.Kind) int {
	for i, r := range s.resources {
		if r.kind == kind {
			return i
		}
	}
	return len(s.resources) - 1 // any kind without a resource counts as the one that is never served
}

// lookup returns the current state of an object, or nil if it does not exist.
func (s *apiServer) lookup(ref client.Ref) *version { return s.objects[ref].now() }

// standing returns all current objects, in the order of their creation.
func (s *apiServer) standing() []*version {
	var all []*version
	for _, l := range s.lives {
		if v := l.now(); v != nil {
			all = append(all, v)
		}
	}
	return all
}

// create stores an object, unless one of that name exists.
func (s *apiServer) create(o ownership.Object) bool {
	r := s.resource(o.Kind)
	if s.lookup(client.RefOf(o)) != nil || s.byUID[o.UID] != nil || !r.served || r.broken ||
		(r.scope == ownership.Namespaced) != (o.Namespace != "") || !s.admits(o, nil) {
		return false
	}
	l := &life{uid: o.UID}
	s.lives = append(s.lives, l)
	s.byUID[o.UID] = l
	s.write(nil, &version{Object: o, life: l})
	return true
}

// change performs an update by a user who ignores resourceVersions. Once an object is being deleted,
// finalizers can only be removed.
func (s *apiServer) change(ref client.Ref, update func(o *ownership.Object)) bool {
	before := s.lookup(ref)
	if before == nil || s.resource(ref.Kind).broken {
		return false
	}
	after := before.next()
	update(&after.Object)
	if before.deleting {
		after.Finalizers = slices.DeleteFunc(after.Finalizers, func(f string) bool { return !slices.Contains(before.Finalizers, f) })
	}
	if !s.admits(after.Object, before.Owners) {
		return false
	}
	return s.write(before, after) != before
}

// remove performs a DELETE by a user who ignores resourceVersions.
func (s *apiServer) remove(ref client.Ref, policy verdict.Propagation) bool {
	before := s.lookup(ref)
	if before == nil || s.resource(ref.Kind).broken {
		return false
	}
	return s.write(before, deleted(before, policy)) != before
}

// admits reports whether the references of an object pass admission.
func (s *apiServer) admits(o ownership.Object, before []ownership.Reference) bool {
	if !s.admission {
		return true
	}
	for _, r := range o.Owners {
		owner := s.byUID[r.UID].now()
		isNew := !slices.ContainsFunc(before, func(old ownership.Reference) bool { return old.UID == r.UID })
		if isNew && owner != nil && (owner.Phase == ownership.Foreground || owner.Phase == ownership.Orphaning) {
			return false
		}
	}
	return true
}

// deleted returns an object after a DELETE (R17, R19): an explicit policy overrides the existing
// finalizers; on an object that is being deleted it can only remove them. Without a policy they stay
// unchanged.
func deleted(before *version, policy verdict.Propagation) *version {
	after := before.next()
	after.deleting = true
	wanted := ""
	switch policy {
	case verdict.Foreground:
		wanted = ownership.FinalizerForeground
	case verdict.Orphan:
		wanted = ownership.FinalizerOrphan
	case verdict.Background:
	default:
		return after
	}
	if before.deleting && policy == verdict.Orphan && before.Phase != ownership.Orphaning {
		return after // refused: it can no longer be honoured
	}
	after.Finalizers = slices.DeleteFunc(after.Finalizers, func(f string) bool { return isOurs(f) && f != wanted })
	if wanted != "" && !before.deleting && !slices.Contains(after.Finalizers, wanted) {
		after.Finalizers = append(after.Finalizers, wanted)
	}
	return after
}

// isOurs reports whether a finalizer is one of the collector's.
func isOurs(finalizer string) bool {
	return finalizer == ownership.FinalizerOrphan || finalizer == ownership.FinalizerForeground
}

// write stores a version at the next revision and returns it. A write that changes nothing
// returns the version before. An object that is being deleted and has no finalizers is removed by
// the write (R18).
func (s *apiServer) write(before, after *version) *version {
	after.Phase = phaseOf(after)
	if before != nil && before.deleting == after.deleting &&
		slices.Equal(before.Finalizers, after.Finalizers) && slices.Equal(before.Owners, after.Owners) {
		return before
	}
	after.gone = after.deleting && len(after.Finalizers) == 0
	s.revision++
	after.revision = s.revision
	after.ResourceVersion = strconv.Itoa(s.revision)
	l := after.life
	l.versions = append(l.versions, after)
	if after.deleting && l.marked == 0 {
		l.marked = s.revision
	}
	l.wasForeground = l.wasForeground || after.Phase == ownership.Foreground
	l.wasOrphaning = l.wasOrphaning || after.Phase == ownership.Orphaning
	ref := client.RefOf(after.Object)
	if after.gone {
		delete(s.objects, ref)
	} else {
		s.objects[ref] = l
	}
	if r := s.resource(after.Kind); r.watched {
		r.log = append(r.log, after)
	}
	s.afterWrite(after)
	return after
}

// withdraw stops serving a resource. Its objects are lost, without watch events.
func (s *apiServer) withdraw(r *resource) {
	r.served, r.broken = false, false
	r.epoch++
	r.log = nil
	for _, v := range s.standing() {
		if v.Kind == r.kind {
			s.revision++
			last := &version{Object: v.Object, deleting: true, gone: true, revision: s.revision, life: v.life}
			v.life.versions = append(v.life.versions, last)
			delete(s.objects, client.RefOf(v.Object))
		}
	}
}

// newest returns the revision at which each kind was last written to, other than by a removal.
func (s *apiServer) newest() client.Newest {
	answer := client.Newest{
		History: strconv.Itoa(s.restored + 1), Now: uint64(s.revision), Writes: make(map[ownership.Kind]uint64),
	}
	for _, r := range s.resources {
		if r.served && r.watched {
			answer.Writes[r.kind] = 1
		}
	}
	for _, l := range s.lives {
		for _, v := range l.versions {
			if n, ok := answer.Writes[v.Kind]; ok && !v.gone {
				answer.Writes[v.Kind] = max(n, uint64(v.revision))
			}
		}
	}
	return answer
}

// pageSize is the number of objects on a page, regardless of the limit in the request.
const pageSize = 2

// page returns one page of a list. All pages show the state at the first one.
func (s *apiServer) page(r *resource, namespace, after string) client.Page {
	revision, offset := s.revision, 0
	if after != "" {
		_, _ = fmt.Sscanf(after, "%d:%d", &revision, &offset)
	}
	var objects []ownership.Object
	for _, l := range s.lives {
		v := l.at(revision)
		if v != nil && v.Kind == r.kind && (namespace == "" || v.Namespace == namespace) {
			objects = append(objects, v.Object)
		}
	}
	page := client.Page{ResourceVersion: strconv.Itoa(revision), Objects: objects[min(offset, len(objects)):]}
	if len(page.Objects) > pageSize {
		page.Objects = page.Objects[:pageSize]
		page.Continue = fmt.Sprintf("%d:%d", revision, offset+pageSize)
	}
	return page
}

// execute carries out a request, in one transaction.
func (s *apiServer) execute(c *call) (ownership.Object, error) {
	r := s.resource(c.ref.Kind)
	group := schema.GroupResource{Group: r.kind.Group, Resource: strings.ToLower(r.kind.Kind)}
	switch {
	case !r.served:
		return ownership.Object{}, apierrors.NewServiceUnavailable(r.short + " is not served")
	case r.broken:
		return ownership.Object{}, apierrors.NewInternalError(errors.New("conversion webhook failed"))
	}
	if c.verb == list {
		c.page = s.page(r, c.ref.Namespace, c.after)
		return ownership.Object{}, nil
	}
	before := s.lookup(c.ref)
	switch {
	case before == nil:
		return ownership.Object{}, apierrors.NewNotFound(group, c.ref.Name)
	case c.verb == get:
		return before.Object, nil
	case c.uid != "" && c.uid != before.UID || c.version != "" && c.version != before.ResourceVersion:
		return ownership.Object{}, apierrors.NewConflict(group, c.ref.Name, errors.New("precondition failed"))
	}
	after := before.next()
	switch c.verb {
	case patchOwners:
		after.Owners = slices.Clone(c.owners)
	case patchFinalizers:
		after.Finalizers = slices.Clone(c.finalizers)
	case remove:
		after = deleted(before, c.propagation)
	}
	s.beforeWrite(before, after, c)
	return s.write(before, after).Object, nil
}
