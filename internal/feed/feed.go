// Package feed turns what an API server stores into observations.
//
// The main flow, in Feed.Run, which owns the set of monitors:
//
//  1. Discovery: which kinds are served, in which scope, under which resource
//     (discover). The sink learns the scope of every kind that can be read.
//  2. Every kind whose objects can be deleted, listed and watched has one
//     monitor: a list, then a watch, of metadata only (monitor). Each object
//     becomes an ownership.Object in one function (ObjectOf) and goes to the
//     sink (store). A DELETED watch event is the only thing that becomes
//     Sink.Forget, the evidence of absence of rule R3.
//  3. Kinds join and leave while this runs. The feed's own monitors of
//     CustomResourceDefinitions and APIServices tell when to ask discovery
//     again; it is asked in any case every 30 s.
//
// Every monitor has a state of its own: a kind that cannot be read is named in
// Status and holds up nothing else. A kind that left discovery keeps its
// monitor until the server refuses the list or the watch, so that the DELETED
// events of its last instances still arrive; then its objects vanish from the
// sink, which is no evidence that they are gone.
//
// The feed keeps no objects: the sink's graph is the store.
package feed

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// Sink takes in observations. It is called from many goroutines at once, and
// must not wait for anything slow: a call holds up the watch it comes from.
type Sink interface {
	// Observe takes in an object as a watch event, other than DELETED, shows it.
	Observe(o ownership.Object)
	// Forget takes in a DELETED watch event, and the revision of the deletion.
	Forget(uid ownership.UID, resourceVersion string)
	// Replace takes in a complete list of the objects of a kind.
	Replace(kind ownership.Kind, objects []ownership.Object)
	// SetScope takes in that a kind is served in a scope; ScopeUnknown that it is served no more.
	SetScope(kind ownership.Kind, scope ownership.Scope)
	// NewEpoch takes in that the server's history is not the one any more that
	// was told before (R4). What follows is of the new one.
	NewEpoch()
}

// Config of a feed. The zero value works.
type Config struct {
	// Ignore names the resources that are not watched. Nil means the Events of
	// both groups: there are many, and nothing is ever collected with them.
	Ignore []schema.GroupResource
	// Logger takes what the feed has to say. Default: none.
	Logger *slog.Logger
	// Clock times retries and refreshes. Default: the system's.
	Clock clock.WithTicker
}

// initialSyncTimeout bounds how long the slowest kind may delay the start.
const initialSyncTimeout = 10 * time.Second

// Feed observes all deletable objects of an API server. Make one with New.
type Feed struct {
	discovery Discovery
	client    metadata.Interface
	ignore    map[schema.GroupResource]bool
	log       *slog.Logger
	clock     clock.WithTicker

	changed chan struct{}   // holds one token when the set of served kinds may have changed
	surveys chan chan error // takes those who want discovery asked now
	synced  chan struct{}   // closed when the initial sync is over

	mu       sync.RWMutex
	served   catalog                            // guarded by mu; replaced by Run only, never changed in place
	watched  Watched                            // guarded by mu; derived from served
	monitors map[ownership.Kind]*monitor        // guarded by mu; written by Run only
	told     map[ownership.Kind]ownership.Scope // what the sink was last told; Run only
	readings readings                           // Run only
	history  *history
}

// New returns a feed that asks discovery which kinds there are and reads them with client.
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
		told:      make(map[ownership.Kind]ownership.Scope),
		readings:  make(readings),
		history:   newHistory(config.Logger),
	}
}

// Run feeds the sink until ctx ends, and returns when all its goroutines have ended.
// It may be called once.
func (f *Feed) Run(ctx context.Context, sink Sink) {
	var goroutines sync.WaitGroup
	defer goroutines.Wait()

	cadence := newCadence(f.clock)
	defer cadence.stop()
	for discovered := false; ; {
		select {
		case <-ctx.Done():
			f.stopAll()
			return
		case <-f.changed:
			cadence.soon()
		case <-f.history.broken:
			f.startAnew(ctx, sink, &goroutines)
		case answer := <-f.surveys:
			answer <- f.refresh(ctx, sink, &goroutines)
		case <-cadence.due():
			err := f.refresh(ctx, sink, &goroutines)
			if err == nil && !discovered {
				discovered = true
				// From here on the set is what the initial sync waits for: kinds
				// that join later do not prolong it.
				first := slices.Collect(maps.Values(f.monitors))
				goroutines.Go(func() { f.awaitInitialSync(ctx, first) })
			}
			cadence.next(discovered)
		}
	}
}

// refresh asks discovery and makes the set of monitors follow. On error all
// stays as it is: a discovery that fails says nothing about what is served.
func (f *Feed) refresh(ctx context.Context, sink Sink, goroutines *sync.WaitGroup) error {
	found, err := discover(ctx, f.discovery, f.ignore)
	if err != nil {
		if ctx.Err() == nil {
			f.log.WarnContext(ctx, "discovery failed", "error", err)
		}
		return err
	}
	served := found.after(f.served)

	unknown := f.readings.unknown(found)
	leaving := f.leave(served, sink)
	f.publish(served.with(leaving), unknown)
	f.tellScopes(sink)
	for _, kind := range served.kinds() {
		if r := served.resources[kind]; r.watched {
			f.join(ctx, r, sink, goroutines)
		}
	}
	return nil
}

// leave marks the monitors whose kind is not watched any more, stops those
// which the server has refused already, and returns the resources of the others:
// they stay mapped for as long as their monitor lives.
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

// join gives a kind its monitor, unless it has one that will do.
func (f *Feed) join(ctx context.Context, r resource, sink Sink, goroutines *sync.WaitGroup) {
	if m, ok := f.monitors[r.kind]; ok {
		switch {
		case m.resource.gvr == r.gvr && m.resource.namespaced == r.namespaced:
			return
		case m.resource.equivalent(r):
			// The same objects, in another version: the next list says which are still there.
			m.stop()
		default:
			// A kind made anew under another name or in another scope: other objects.
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

// start makes a monitor.
func (f *Feed) start(ctx context.Context, r resource, sink Sink, goroutines *sync.WaitGroup) {
	m := newMonitor(r, f.client, f.clock, f.changed)
	f.mu.Lock()
	f.monitors[r.kind] = m
	f.mu.Unlock()
	m.start(ctx, sink, f.history, goroutines)
}

// startAnew replaces all monitors: what the server's history was until now is of
// no use any more (history). Objects do not vanish in between; the lists say
// which are still there.
func (f *Feed) startAnew(ctx context.Context, sink Sink, goroutines *sync.WaitGroup) {
	for _, kind := range sortedKinds(f.monitors) {
		m := f.monitors[kind]
		m.stop()
		f.history.forget(kind)
		f.start(ctx, m.resource, sink, goroutines)
	}
}

// drop stops a monitor and lets the objects that it showed vanish: nobody
// watches them now, so nothing is known of them. That is no evidence of absence (R3).
func (f *Feed) drop(m *monitor, sink Sink) {
	m.stop()
	f.mu.Lock()
	delete(f.monitors, m.resource.kind)
	f.mu.Unlock()
	f.history.forget(m.resource.kind)
	sink.Replace(m.resource.kind, nil)
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

// tellScopes tells the sink of kinds whose scope it does not know rightly.
func (f *Feed) tellScopes(sink Sink) {
	for _, kind := range sortedKinds(f.told) {
		if _, ok := f.served.resources[kind]; !ok {
			delete(f.told, kind)
			sink.SetScope(kind, ownership.ScopeUnknown)
		}
	}
	for _, kind := range f.served.kinds() {
		scope := f.served.resources[kind].scope()
		if f.told[kind] != scope {
			f.told[kind] = scope
			sink.SetScope(kind, scope)
		}
	}
}

// awaitInitialSync ends the initial sync when each monitor has synced or has
// failed once. A kind that does neither delays it by the timeout at most.
func (f *Feed) awaitInitialSync(ctx context.Context, first []*monitor) {
	defer close(f.synced)
	timeout := f.clock.NewTimer(initialSyncTimeout)
	defer timeout.Stop()
	for _, m := range first {
		select {
		case <-m.settled:
		case <-timeout.C():
			f.log.WarnContext(ctx, "starting before all kinds are read", "kind", m.resource.kind.String())
			return
		case <-ctx.Done():
			return
		}
	}
}

// WaitForInitialSync waits until each kind of the first discovery has been
// listed or has failed once, or 10 s have passed since that discovery. Whoever
// acts on the graph waits for it: a graph that is half built makes much work.
func (f *Feed) WaitForInitialSync(ctx context.Context) error {
	select {
	case <-f.synced:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Synced tells whether the initial sync is over.
func (f *Feed) Synced() bool {
	select {
	case <-f.synced:
		return true
	default:
		return false
	}
}

// Mapping is where the objects of a kind are served. A kind that left discovery
// is mapped until its monitor ends.
func (f *Feed) Mapping(kind ownership.Kind) (gvr schema.GroupVersionResource, namespaced, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	r, ok := f.served.resources[kind]
	return r.gvr, r.namespaced, ok
}

// announcesKinds tells whether objects of a kind stand for other kinds.
func announcesKinds(kind ownership.Kind) bool {
	switch kind {
	case ownership.Kind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"},
		ownership.Kind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		return true
	}
	return false
}

func sortedKinds[V any](m map[ownership.Kind]V) []ownership.Kind {
	return slices.SortedFunc(maps.Keys(m), func(a, b ownership.Kind) int {
		return strings.Compare(a.String(), b.String())
	})
}
