package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Ledger remembers what a controller has done that its cache of dependents may not show
// yet: up to which resourceVersion it has created, and which it has asked to be deleted.
// It holds nothing about owners whose dependents are all in view. It is safe for
// concurrent use.
type Ledger struct {
	view view

	mu     sync.Mutex
	owners map[types.UID]*page // guarded by mu
}

// view is a cache that knows how far it has come.
type view interface {
	LastStoreSyncResourceVersion() string
}

// page is what is not in view yet of one owner's dependents.
type page struct {
	created string             // the highest resourceVersion that was written; may be empty
	deleted map[types.UID]bool // dependents
}

// NewLedger makes an empty ledger. The view is the cache of the dependents.
func NewLedger(view view) *Ledger {
	return &Ledger{view: view, owners: map[types.UID]*page{}}
}

// Created takes in that a dependent was created, adopted or released, which gave it that
// resourceVersion.
func (l *Ledger) Created(owner types.UID, resourceVersion string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.page(owner); older(p.created, resourceVersion) {
		p.created = resourceVersion
	}
}

// Deleted takes in that a dependent was asked to be deleted.
func (l *Ledger) Deleted(owner, dependent types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.page(owner).deleted[dependent] = true
}

func (l *Ledger) page(owner types.UID) *page {
	p := l.owners[owner]
	if p == nil {
		p = &page{deleted: map[types.UID]bool{}}
		l.owners[owner] = p
	}
	return p
}

// Behind tells whether the cache does not show yet what was created for an owner.
func (l *Ledger) Behind(owner types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.owners[owner]
	if p == nil || p.created == "" {
		return false
	}
	if older(l.view.LastStoreSyncResourceVersion(), p.created) {
		return true
	}
	p.created = ""
	l.tidy(owner, p)
	return false
}

// Leaving are the dependents whose deletion was asked for and that the cache still shows
// as they were before. shown are the owner's dependents in the cache, with true for those
// that are seen to be terminating.
func (l *Ledger) Leaving(owner types.UID, shown map[types.UID]bool) map[types.UID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.owners[owner]
	if p == nil {
		return nil
	}
	leaving := map[types.UID]bool{}
	for uid := range p.deleted {
		if terminating, there := shown[uid]; there && !terminating {
			leaving[uid] = true
		} else {
			delete(p.deleted, uid)
		}
	}
	l.tidy(owner, p)
	return leaving
}

// Forget drops what is known about an owner that is gone.
func (l *Ledger) Forget(owner types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.owners, owner)
}

func (l *Ledger) tidy(owner types.UID, p *page) {
	if p.created == "" && len(p.deleted) == 0 {
		delete(l.owners, owner)
	}
}

// older tells whether resourceVersion a is before b. Versions that cannot be compared
// count as equal: a server whose versions have no order must not stop its controllers.
func older(a, b string) bool {
	if a == "" {
		return b != ""
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
