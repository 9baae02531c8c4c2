// Package feed turns the objects of an API server into observations.
//
// The main flow, in Feed.Run, which owns the set of monitors:
//
//  1. Discovery returns the served kinds with scope and resource (discover). The sink learns the
//     scope of every kind that can be read.
//  2. Every kind whose objects can be deleted, listed and watched has one monitor: a list, then a
//     watch, of metadata only (monitor). Each object becomes an ownership.Object in one function
//     (ObjectOf) and goes to the sink (store). Only a DELETED watch event becomes Sink.Forget, the
//     evidence of absence of rule R3.
//  3. Kinds join and leave while this runs. The feed's own monitors of
//     CustomResourceDefinitions and APIServices signal when to read discovery
//     again; it is read in any case every 30 s.
//
// Every monitor has a state of its own: a kind that cannot be read is named in Status and delays
// nothing else. A kind that left discovery keeps its monitor until the server refuses the list or
// the watch, so that the DELETED events of its last instances still arrive; then its objects vanish
// from the sink, which is not evidence that they are gone.
//
// Like the monitors of kube-controller-manager's GraphBuilder, a feed is a set of client-go
// Reflectors that follows discovery. There is no informer cache: only the sink's graph keeps the
// objects.
package feed

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Sink receives observations. It is called from many goroutines at once, and must not block on slow
// operations: a call delays its watch.
type Sink interface {
	// Observe reports an object as a watch event, other than DELETED, shows it.
	Observe(o ownership.Object)
	// Forget reports a DELETED watch event, and the revision of the deletion.
	Forget(uid ownership.UID, resourceVersion string)
	// StartList reports that a list of the objects of a kind begins. An earlier one that has not ended has failed.
	StartList(kind ownership.Kind)
	// Listed reports a part of the list of a kind that is under way. It must not keep the slice.
	Listed(kind ownership.Kind, objects []ownership.Object)
	// EndList reports that the list of a kind is complete. It lacks the objects of the kind that are gone.
	EndList(kind ownership.Kind)
	// SetScope reports that a kind is served in a scope; ScopeUnknown means that it is no longer
	// served.
	SetScope(kind ownership.Kind, scope ownership.Scope)
	// NewEpoch reports that the server's history has changed (R4). Later calls are part of the new
	// history.
	NewEpoch()
}

// Replace reports a list of the objects of a kind as a whole.
func Replace(sink Sink, kind ownership.Kind, objects []ownership.Object) {
	sink.StartList(kind)
	sink.Listed(kind, objects)
	sink.EndList(kind)
}

// Config of a feed. The zero value works.
type Config struct {
	// Ignore names the resources that are not watched. Nil means the Events of both groups: there
	// are many, and they take no part in garbage collection.
	Ignore []schema.GroupResource
	// Logger gets a line for each kind that joins, leaves or cannot be read. Default: none.
	Logger *slog.Logger
	// Clock times retries and refreshes. Default: the system's.
	Clock clock.WithTicker
}

// initialSyncTimeout bounds how long a kind may delay the start of which nothing comes.
const initialSyncTimeout = 10 * time.Second

// Feed observes all deletable objects of an API server. Make one with New.
type Feed struct {
	discovery Discovery
	client    metadata.Interface
	ignore    map[schema.GroupResource]bool
	log       *slog.Logger
	clock     clock.WithTicker

	changed chan struct{}   // has an element when the set of served kinds may have changed
	surveys chan chan error // the calls of Survey that wait for discovery
	synced  chan struct{}   // closed when the initial sync is over

	mu       sync.RWMutex
	served   catalog                            // guarded by mu; replaced by Run only, never changed in place
	watched  Watched                            // guarded by mu; derived from served
	monitors map[ownership.Kind]*monitor        // guarded by mu; written by Run only
	scopes   map[ownership.Kind]ownership.Scope // as the sink knows them; Run only
	versions readVersions                       // Run only
	epochs   *epochDetector
	surveyed time.Time // when discovery was read; Run only
	found    catalog   // what it returned, without what is kept of earlier answers; Run only
	idle     idle
}

// New returns a feed of the kinds that discovery returns; client reads their objects.
func New(discovery Discovery, client metadata.Interface, config Config) *Feed {
	if config.Ignore == nil {
		config.Ignore = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	ignore := make(map[schema.GroupResource]bool, len(config.Ignore))
	for _, resource := range config.Ignore {
		ignore[resource] = true
	}
	return &Feed{
		discovery: discovery,
		client:    client,
		ignore:    ignore,
		log:       config.Logger,
		clock:     config.Clock,
		changed:   make(chan struct{}, 1),
		surveys:   make(chan chan error),
		synced:    make(chan struct{}),
		monitors:  make(map[ownership.Kind]*monitor),
		scopes:    make(map[ownership.Kind]ownership.Scope),
		versions:  make(readVersions),
		epochs:    newEpochDetector(config.Logger, config.Clock),
	}
}

// Run reports to the sink until ctx ends, and returns when all its goroutines have ended. After a
// return that followed the initial sync, it may be called again: the watches continue from their
// last revision.
func (f *Feed) Run(ctx context.Context, sink Sink) {
	var goroutines sync.WaitGroup
	defer goroutines.Wait()

	cadence := newCadence(f.clock)
	defer cadence.stop()
	discovered := f.Synced()
	if discovered {
		cadence.resume(f.surveyed)
		f.resumeAll(ctx, sink, &goroutines)
	}
	for {
		select {
		case <-ctx.Done():
			f.stopAll()
			return
		case <-f.changed:
			cadence.hint()
		case <-f.epochs.relist:
			f.restartAll(ctx, sink, &goroutines)
		case answer := <-f.surveys:
			answer <- f.refresh(ctx, sink, &goroutines)
		case <-cadence.due():
			err := f.refresh(ctx, sink, &goroutines)
			if err == nil && !discovered {
				discovered = true
				// The initial sync waits for these: kinds that join later do not
				// prolong it.
				first := slices.Collect(maps.Values(f.monitors))
				goroutines.Go(func() { f.awaitInitialSync(ctx, first) })
			}
			cadence.next(discovered)
		}
	}
}

// refresh reads discovery and starts and stops monitors accordingly. On error everything stays as
// it is: a failed discovery does not show which kinds are served.
func (f *Feed) refresh(ctx context.Context, sink Sink, goroutines *sync.WaitGroup) error {
	found, err := discover(ctx, f.discovery, f.ignore)
	if err == nil && found.lacksCoreOf(f.served) {
		err = errNoCore
	}
	switch {
	case errors.Is(err, ErrUnchanged):
		found = f.found.clone()
	case err != nil:
		if ctx.Err() == nil && !pace.IsUnreachable(err) { // that is logged once, for all requests
			f.log.WarnContext(ctx, "discovery failed", "error", pace.Brief(err))
		}
		return err
	default:
		f.found = found.clone()
	}
	served := found.after(f.served)

	f.surveyed = f.clock.Now()
	unknown := f.versions.unknown(found)
	leaving := f.leave(served, sink)
	f.publish(served.with(leaving), unknown)
	f.setScopes(sink)
	for _, kind := range served.kinds() {
		if r := served.resources[kind]; r.watched {
			f.join(ctx, r, sink, goroutines)
		}
	}
	f.warnOfRefused(ctx)
	return nil
}

// warnOfRefused logs the kinds that discovery includes, and that the server has refused since the last refresh but one.
func (f *Feed) warnOfRefused(ctx context.Context) {
	for _, kind := range sortedKinds(f.monitors) {
		if err := f.monitors[kind].refusedFor(refreshPeriod); err != nil {
			warnOfUnread(ctx, f.log, kind, err)
		}
	}
}

// leave marks the monitors whose kind is no longer watched, stops the ones whose requests the
// server has already refused, and returns the resources of the others: they stay mapped for as long
// as their monitor runs.
func (f *Feed) leave(served catalog, sink Sink) []resource {
	var leaving []resource
	for _, kind := range sortedKinds(f.monitors) {
		m := f.monitors[kind]
		if served.resources[kind].watched {
			m.setLeaving(false)
			continue
		}
		m.setLeaving(true)
		if !m.refused() {
			leaving = append(leaving, m.resource)
			continue
		}
		f.drop(m, sink)
		f.log.Info("kind left", "kind", kind.String())
	}
	return leaving
}

// join starts the monitor of a kind, unless the present one still fits.
func (f *Feed) join(ctx context.Context, r resource, sink Sink, goroutines *sync.WaitGroup) {
	if m, ok := f.monitors[r.kind]; ok {
		switch {
		case m.resource.gvr == r.gvr && m.resource.namespaced == r.namespaced:
			return
		case m.resource.equivalent(r):
			// The same objects, in another version: the next list shows which still exist.
			m.stop()
		default:
			// The kind was deleted and defined again under another resource name or in another
			// scope: these are other objects.
			f.drop(m, sink)
		}
	}
	level := slog.LevelInfo
	if !f.Synced() {
		level = slog.LevelDebug // all of them join at the start
	}
	f.log.Log(ctx, level, "kind joined", "kind", r.kind.String(), "resource", r.gvr.String())
	f.start(ctx, r, sink, goroutines)
}

func (f *Feed) start(ctx context.Context, r resource, sink Sink, goroutines *sync.WaitGroup) {
	m := newMonitor(r, f.client, f.clock, f.changed)
	f.mu.Lock()
	f.monitors[r.kind] = m
	f.mu.Unlock()
	m.start(ctx, sink, f.epochs, goroutines)
}

// restartAll replaces all monitors, because the server's history is another one
// (epochDetector). Objects do not vanish in between; the lists show which still exist.
func (f *Feed) restartAll(ctx context.Context, sink Sink, goroutines *sync.WaitGroup) {
	for _, kind := range sortedKinds(f.monitors) {
		m := f.monitors[kind]
		m.stop()
		f.epochs.forget(kind)
		f.start(ctx, m.resource, sink, goroutines)
	}
}

// drop stops a monitor and removes its objects from the sink: they are no longer watched, so their
// state is unknown. That is not evidence of absence (R3).
func (f *Feed) drop(m *monitor, sink Sink) {
	m.stop()
	f.mu.Lock()
	delete(f.monitors, m.resource.kind)
	f.mu.Unlock()
	f.epochs.forget(m.resource.kind)
	Replace(sink, m.resource.kind, nil)
}

func (f *Feed) stopAll() {
	for _, m := range f.monitors {
		m.stop()
	}
}

func (f *Feed) publish(served catalog, unknown []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.served = served
	f.watched = served.watched(unknown)
}

// setScopes reports the kinds whose scope has changed to the sink.
func (f *Feed) setScopes(sink Sink) {
	for _, kind := range sortedKinds(f.scopes) {
		if _, ok := f.served.resources[kind]; !ok {
			delete(f.scopes, kind)
			sink.SetScope(kind, ownership.ScopeUnknown)
		}
	}
	for _, kind := range f.served.kinds() {
		scope := f.served.resources[kind].scope()
		if f.scopes[kind] != scope {
			f.scopes[kind] = scope
			sink.SetScope(kind, scope)
		}
	}
}

// awaitInitialSync ends the initial sync when each monitor has synced or has failed once. A kind
// that does neither delays the end by the timeout at most, from the last part of its list on.
func (f *Feed) awaitInitialSync(ctx context.Context, first []*monitor) {
	defer close(f.synced)
	timeout := f.clock.NewTimer(initialSyncTimeout)
	defer timeout.Stop()
	for len(first) > 0 {
		m := first[0]
		select {
		case <-m.settled:
			first = first[1:]
		case <-timeout.C():
			if left := initialSyncTimeout - m.silence(); left > 0 {
				timeout.Reset(left)
				continue
			}
			f.log.WarnContext(ctx, "starting before all kinds are read", "kind", m.resource.kind.String())
			return
		case <-ctx.Done():
			return
		}
	}
}

// WaitForInitialSync waits until each kind of the first discovery has been listed or has failed
// once, or 10 s have passed since that discovery and since the last part of its list. The collector waits for it: in an
// incomplete graph, most owners seem to be missing.
func (f *Feed) WaitForInitialSync(ctx context.Context) error {
	select {
	case <-f.synced:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Synced reports whether the initial sync is over.
func (f *Feed) Synced() bool {
	select {
	case <-f.synced:
		return true
	default:
		return false
	}
}

// Mapping returns the resource that serves a kind. A kind that left discovery is mapped until
// its monitor ends.
func (f *Feed) Mapping(kind ownership.Kind) (gvr schema.GroupVersionResource, namespaced, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	r, ok := f.served.resources[kind]
	return r.gvr, r.namespaced, ok
}

// Resource is a resource of the server, in the version that the feed reads.
type Resource struct {
	schema.GroupVersionResource

	Kind       ownership.Kind
	Namespaced bool
	// Versions are all versions in which it is served.
	Versions []string
	// ShortNames are other names for it.
	ShortNames []string
	// Watched resources are those whose objects are observed.
	Watched bool
}

// Resources returns the resources of all kinds that are served, or still watched, sorted by kind.
func (f *Feed) Resources() []Resource {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := make([]Resource, 0, len(f.served.resources))
	for _, kind := range f.served.kinds() {
		r := f.served.resources[kind]
		all = append(all, Resource{
			GroupVersionResource: r.gvr, Kind: kind, Namespaced: r.namespaced,
			Versions: slices.Clone(r.versions), ShortNames: r.shortNames, Watched: r.watched,
		})
	}
	return all
}

// definesKinds reports whether objects of a kind define other kinds.
func definesKinds(kind ownership.Kind) bool {
	switch kind {
	case ownership.Kind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"},
		ownership.Kind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		return true
	}
	return false
}

func sortedKinds[V any](m map[ownership.Kind]V) []ownership.Kind {
	return slices.SortedFunc(maps.Keys(m), func(a, b ownership.Kind) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Group, b.Group))
	})
}
