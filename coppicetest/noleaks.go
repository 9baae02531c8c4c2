package coppicetest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/coppicetest/leaks"
)

// mark is the state of the plane at the beginning of a test.
type mark struct {
	time   time.Time       // of the last record before
	before map[string]bool // the UIDs of the objects that existed
}

// Mark limits Deletions and NoLeaks to objects and changes from now on. Start calls it, too; tests
// that share a plane call it when they begin.
func (p *Plane) Mark(t testing.TB) {
	t.Helper()
	p.Settled(t)
	if err := p.mark(t.Context()); err != nil {
		t.Fatalf("mark: %v", err)
	}
}

func (p *Plane) mark(ctx context.Context) error {
	p.mu.Lock()
	p.since, p.seen = mark{}, map[string]leaks.Object{}
	p.mu.Unlock()
	records, err := p.deletions(ctx)
	if err != nil {
		return err
	}
	objects, _, err := p.read(ctx)
	if err != nil {
		return err
	}
	since := mark{before: map[string]bool{}}
	for _, r := range records {
		since.time = r.Time
	}
	for _, o := range objects {
		since.before[o.UID] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = since
	return nil
}

// See records the objects that exist now. A test calls it after its operator has created everything
// and before it deletes: NoLeaks then knows which field managers set owners, and the names of the
// owners.
func (p *Plane) See(t testing.TB) {
	t.Helper()
	if _, _, err := p.read(t.Context()); err != nil {
		t.Fatalf("see: %v", err)
	}
}

// Leak is an object that the test has left behind.
type Leak = leaks.Leak

// NoLeaks waits until collection has come to rest, and fails the test for each leak since the start
// of the plane or the last Mark: an object that will never be collected, that stays in deletion, or
// that was collected by mistake. Objects of the ignored field managers are not reported if their
// only problem is a missing owner.
func (p *Plane) NoLeaks(t testing.TB, ignoredManagers ...string) {
	t.Helper()
	for _, leak := range p.Leaks(t, ignoredManagers...) {
		t.Errorf("leak: %s", leak)
	}
}

// Leaks returns the leaks that NoLeaks reports.
func (p *Plane) Leaks(t testing.TB, ignoredManagers ...string) []Leak {
	t.Helper()
	p.Settled(t)
	state, err := p.state(t.Context())
	if err != nil {
		t.Fatalf("look for leaks: %v", err)
	}
	state.Ignored = ignoredManagers
	return leaks.Find(state)
}

// state reads the state in which package leaks searches.
func (p *Plane) state(ctx context.Context) (leaks.State, error) {
	objects, kinds, err := p.read(ctx)
	if err != nil {
		return leaks.State{}, err
	}
	records, err := p.deletions(ctx)
	if err != nil {
		return leaks.State{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := maps.Clone(p.seen)
	state := leaks.State{Objects: objects, Kinds: kinds, Before: p.since.before}
	for _, r := range records {
		if r.Action != "delete" {
			continue
		}
		collected := p.collectedLocked(r)
		state.Collected = append(state.Collected, leaks.Collected{Object: collected, Time: r.Time})
		gone[collected.UID] = collected
		for _, owner := range r.Owners {
			if _, known := gone[owner.UID]; !known && owner.Evidence == "deleted event" {
				gone[owner.UID] = leaks.Object{Kind: kindOf(owner.Kind), Namespace: owner.Namespace, Name: owner.Name, UID: owner.UID}
			}
		}
	}
	for _, o := range objects {
		delete(gone, o.UID)
	}
	for _, uid := range slices.Sorted(maps.Keys(gone)) {
		state.Gone = append(state.Gone, gone[uid])
	}
	return state, nil
}

// collectedLocked returns the object of a record, with the metadata that was read before its
// deletion.
func (p *Plane) collectedLocked(d Deletion) leaks.Object {
	o := p.seen[d.UID]
	o.Kind, o.Namespace, o.Name, o.UID, o.Owners = kindOf(d.Kind), d.Namespace, d.Name, d.UID, nil
	for _, owner := range d.Owners {
		o.Owners = append(o.Owners, leaks.Owner{Kind: kindOf(owner.Kind), Name: owner.Name, UID: owner.UID})
	}
	return o
}

// kindOf returns the kind that a text such as "ReplicaSet.apps" stands for.
func kindOf(text string) leaks.Kind {
	kind, group, _ := strings.Cut(text, ".")
	return leaks.Kind{Group: group, Kind: kind}
}
