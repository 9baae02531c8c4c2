package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// LostEventPeriod is the time after which an owner is reconciled whose last writes the cache does not show. Their events
// enqueue its key earlier, unless there are none: a cache never shows an object that is created and deleted while its watch
// is down, but afterwards it is current.
const LostEventPeriod = time.Minute

// Expectations record the writes of a controller that its cache of dependents may not show yet:
// the highest resourceVersion it has written, and the dependents whose deletion it has requested
// (R25). They differ from the expectations of kube-controller-manager, which count events and
// expire: a resourceVersion is either reached or not, so expectations never expire here.
//
// They keep no entry for an owner once the cache shows all writes to its dependents. They are
// safe for concurrent use.
type Expectations struct {
	cache versioned

	mu     sync.Mutex
	owners map[types.UID]*expectation // guarded by mu
}

// versioned is a cache that knows up to which resourceVersion it is current.
type versioned interface {
	LastStoreSyncResourceVersion() string
}

// expectation has the writes to one owner's dependents that the cache does not show yet.
type expectation struct {
	version string             // the highest resourceVersion that was written; may be empty
	deleted map[types.UID]bool // dependents
	unknown outcomes
	stale   bool // the current decision was begun while an outcome was unknown
}

// outcomes are requests whose outcome is unknown because no response arrived.
type outcomes struct {
	creations int                  // how many
	deletions map[types.UID]string // names by uid
}

func (o outcomes) none() bool { return o.creations == 0 && len(o.deletions) == 0 }

// NewExpectations returns empty Expectations about a cache of dependents.
func NewExpectations(cache versioned) *Expectations {
	return &Expectations{cache: cache, owners: map[types.UID]*expectation{}}
}

// ExpectVersion records that a dependent got that resourceVersion because it was created,
// changed, adopted or released.
func (e *Expectations) ExpectVersion(owner types.UID, resourceVersion string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.ofLocked(owner); older(x.version, resourceVersion) {
		x.version = resourceVersion
	}
}

// ExpectDeletion records that the deletion of a dependent was requested.
func (e *Expectations) ExpectDeletion(owner, dependent types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ofLocked(owner).deleted[dependent] = true
}

func (e *Expectations) ofLocked(owner types.UID) *expectation {
	x := e.owners[owner]
	if x == nil {
		x = &expectation{deleted: map[types.UID]bool{}, unknown: outcomes{deletions: map[types.UID]string{}}}
		e.owners[owner] = x
	}
	return x
}

// Satisfied reports whether the cache shows all writes for an owner. A decision about the
// dependents begins with this call.
func (e *Expectations) Satisfied(owner types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.owners[owner]
	if x == nil {
		return true
	}
	x.stale = !x.unknown.none()
	if x.version == "" {
		e.tidyLocked(owner, x)
		return true
	}
	if older(e.cache.LastStoreSyncResourceVersion(), x.version) {
		return false
	}
	x.version = ""
	e.tidyLocked(owner, x)
	return true
}

// RequeueAfter returns LostEventPeriod if a cache of dependents does not show all writes for an owner, and 0 otherwise. It is
// for the end of a reconciliation that may leave the status as it was: otherwise the event of the owner follows.
func RequeueAfter(owner types.UID, expectations ...*Expectations) time.Duration {
	if slices.ContainsFunc(expectations, func(e *Expectations) bool { return e.awaits(owner) }) {
		return LostEventPeriod
	}
	return 0
}

func (e *Expectations) awaits(owner types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.owners[owner]
	return x != nil && older(e.cache.LastStoreSyncResourceVersion(), x.version)
}

// PendingDeletions returns the dependents whose deletion was requested and which the cache does
// not show as terminating yet. shown are the owner's dependents in the cache, true for the
// terminating ones.
func (e *Expectations) PendingDeletions(owner types.UID, shown map[types.UID]bool) map[types.UID]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.owners[owner]
	if x == nil {
		return nil
	}
	pending := map[types.UID]bool{}
	for uid := range x.deleted {
		if terminating, exists := shown[uid]; exists && !terminating {
			pending[uid] = true
		} else {
			delete(x.deleted, uid)
		}
	}
	e.tidyLocked(owner, x)
	return pending
}

// Forget drops the expectations of an owner that is gone.
func (e *Expectations) Forget(owner types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.owners, owner)
}

// creationUnknown records that a creation got no response.
func (e *Expectations) creationUnknown(owner types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ofLocked(owner).unknown.creations++
}

// deletionUnknown records that the deletion of a dependent got no response.
func (e *Expectations) deletionUnknown(owner, dependent types.UID, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ofLocked(owner).unknown.deletions[dependent] = name
}

// unknown returns the requests for an owner whose outcomes are unknown.
func (e *Expectations) unknown(owner types.UID) outcomes {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.owners[owner]
	if x == nil {
		return outcomes{}
	}
	return outcomes{x.unknown.creations, maps.Clone(x.unknown.deletions)}
}

// isStale reports whether the outcome of a request for the owner is unknown, or was when the
// current decision began.
func (e *Expectations) isStale(owner types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.owners[owner]
	return x != nil && (x.stale || !x.unknown.none())
}

// creationsKnown records that the outcomes of that many creations have become known. If there
// are more by now, the read was too early for them, and all stay unknown.
func (e *Expectations) creationsKnown(owner types.UID, asked int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.owners[owner]; x != nil && x.unknown.creations == asked {
		x.unknown.creations = 0
		e.tidyLocked(owner, x)
	}
}

// deletionKnown records that the outcome of a deletion has become known.
func (e *Expectations) deletionKnown(owner, dependent types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.owners[owner]; x != nil {
		delete(x.unknown.deletions, dependent)
		e.tidyLocked(owner, x)
	}
}

func (e *Expectations) tidyLocked(owner types.UID, x *expectation) {
	if x.version == "" && len(x.deleted) == 0 && x.unknown.none() && !x.stale {
		delete(e.owners, owner)
	}
}

// older reports whether resourceVersion a is before b. Versions that cannot be compared count as
// equal: a server whose versions have no order must not block the controllers.
func older(a, b string) bool {
	if a == "" {
		return b != ""
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
