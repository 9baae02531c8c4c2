package protected

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

const (
	// catchUp bounds the time that a deletion waits for the graph to have the objects that were written before it.
	catchUp = 2 * time.Second
	// firstLook is the time between the first two looks; it doubles with each look.
	firstLook = 100 * time.Microsecond
)

// Closures finds the objects that deletions would delete (R32), in an ownership graph of its own: every server needs one, and
// a collector runs in only one of them, or in another process. It is safe for concurrent use.
type Closures struct {
	feed *feed.Feed

	mu         sync.RWMutex
	graph      *ownership.Graph         // guarded by mu
	namespaces map[string]ownership.UID // guarded by mu
	// unserved are the resources that discovery did not have after a write, with its revision; guarded by mu.
	unserved map[string]int64
}

// NewClosures returns closures of the objects that discovery and a client show. They are empty before Run.
func NewClosures(discovery feed.Discovery, client metadata.Interface, log *slog.Logger) *Closures {
	return &Closures{
		feed: feed.New(discovery, client, feed.Config{Logger: log}), graph: ownership.New(), namespaces: map[string]ownership.UID{},
		unserved: map[string]int64{},
	}
}

// Run observes the objects until ctx ends.
func (c *Closures) Run(ctx context.Context) { c.feed.Run(ctx, (*closuresSink)(c)) }

// WaitForInitialSync waits until all objects were observed that can be read.
func (c *Closures) WaitForInitialSync(ctx context.Context) error {
	return c.feed.WaitForInitialSync(ctx)
}

// CatchUp waits until the writes of resources up to these revisions were observed; the keys are
// schema.GroupResource.String. It returns a 429 if that takes too long, or if discovery fails.
func (c *Closures) CatchUp(ctx context.Context, writes map[string]int64) error {
	if err := c.discover(ctx, writes); err != nil {
		return err
	}
	real, deadline := clock.RealClock{}, time.Duration(0)
	for wait := firstLook; ; wait *= 2 {
		behind := c.behind(writes)
		if c.feed.Synced() && behind == "" {
			return nil
		}
		if deadline += wait; deadline > catchUp {
			return apierrors.NewTooManyRequests("what this deletion would delete is not known yet: the latest objects of "+behind+" were not counted", 1)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-real.After(wait):
		}
	}
}

// discover makes the feed observe the resources that were written and that it does not know: they may be newer than its
// last look at discovery, as custom resources are for a moment after the creation of their definition.
func (c *Closures) discover(ctx context.Context, writes map[string]int64) error {
	if len(c.unknown(writes)) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if _, err := c.feed.Survey(ctx); err != nil {
		return apierrors.NewTooManyRequests("what this deletion would delete is not known yet: "+err.Error(), 1)
	}
	unserved := c.unknown(writes)
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.unserved, unserved)
	return nil
}

// unknown returns the writes of resources that the feed does not know, and that discovery may have.
func (c *Closures) unknown(writes map[string]int64) map[string]int64 {
	unknown := maps.Clone(writes)
	for _, r := range c.feed.Resources() {
		delete(unknown, r.GroupResource().String())
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	maps.DeleteFunc(unknown, func(resource string, written int64) bool {
		seen, isUnserved := c.unserved[resource]
		return isUnserved && seen >= written
	})
	return unknown
}

// behind returns a resource of which not all writes were observed, or an empty text.
func (c *Closures) behind(writes map[string]int64) string {
	for _, r := range c.feed.Resources() {
		if !r.Watched {
			continue
		}
		written, isStored := writes[r.GroupResource().String()]
		if !isStored {
			continue
		}
		if reached, err := strconv.ParseInt(c.feed.Reached(r.Kind), 10, 64); err != nil || reached < written {
			return r.GroupResource().String()
		}
	}
	return ""
}

// KindOf returns the kind of a resource. It reads discovery if the resource is not known.
func (c *Closures) KindOf(ctx context.Context, resource schema.GroupResource) (kind ownership.Kind, isServed bool) {
	find := func() bool {
		i := slices.IndexFunc(c.feed.Resources(), func(r feed.Resource) bool { return r.GroupResource() == resource })
		if i >= 0 {
			kind = c.feed.Resources()[i].Kind
		}
		return i >= 0
	}
	if find() {
		return kind, true
	}
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	_, _ = c.feed.Survey(ctx) // a resource that stays unknown is not served
	return kind, find()
}

// Of returns the closure of a deletion as far as limits need it: all of one that needs a confirmation, and otherwise only the
// number of its objects.
func (c *Closures) Of(roots ownership.Roots, limits protection.Limits) protection.Closure {
	c.mu.RLock()
	defer c.mu.RUnlock()
	look := c.newLook(limits)
	for uid, kind := range c.graph.Closure(look.with(roots)) {
		look.add(uid, kind)
	}
	return look.closure()
}

// Exceeds reports whether a deletion needs a confirmation. It looks at no more objects than it must.
func (c *Closures) Exceeds(roots ownership.Roots, limits protection.Limits) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	look := c.newLook(limits)
	for uid, kind := range c.graph.Closure(look.with(roots)) {
		look.add(uid, kind)
		if limits.Exceeded(look.found) {
			return true
		}
	}
	return limits.Exceeded(look.found)
}

// UIDs returns the closure of a deletion.
func (c *Closures) UIDs(roots ownership.Roots) (uids []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for uid := range c.graph.Closure(c.newLook(protection.Limits{}).with(roots)) {
		uids = append(uids, string(uid))
	}
	return uids
}

// Gone returns the given owners that are absent, or are being deleted.
func (c *Closures) Gone(owners []ownership.UID) []ownership.UID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(owners), func(uid ownership.UID) bool {
		o, isObserved := c.graph.Object(uid)
		return isObserved && o.Phase == ownership.Active
	})
}

// IsTerminating reports whether a namespace is being deleted.
func (c *Closures) IsTerminating(namespace string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	o, isObserved := c.graph.Object(c.namespaces[namespace])
	return namespace != "" && isObserved && o.Phase != ownership.Active
}

// lookAtClosure adds up a closure.
type lookAtClosure struct {
	closures *Closures
	limits   protection.Limits

	uids    []string
	limited map[ownership.Kind]string // the resource of each kind that was found, empty for those without a limit
	found   protection.Closure
}

func (c *Closures) newLook(limits protection.Limits) *lookAtClosure {
	return &lookAtClosure{closures: c, limits: limits, limited: map[ownership.Kind]string{}}
}

// with adds the kinds whose objects contain others.
func (l *lookAtClosure) with(roots ownership.Roots) ownership.Roots {
	roots.Contents = map[ownership.Kind]func(string) (string, ownership.Kind){
		{Kind: "Namespace"}: func(name string) (string, ownership.Kind) { return name, ownership.Kind{} },
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: func(name string) (string, ownership.Kind) { return "", l.instances(name) },
	}
	return roots
}

// instances returns the kind that a definition defines. The instances of one that is not served cannot be observed, but go
// with it.
func (l *lookAtClosure) instances(definition string) ownership.Kind {
	resource := schema.ParseGroupResource(definition)
	served := l.closures.feed.Resources()
	if i := slices.IndexFunc(served, func(r feed.Resource) bool { return r.GroupResource() == resource }); i >= 0 {
		return served[i].Kind
	}
	if l.limits.MoreThan > 0 || l.limits.Limited(resource) {
		l.found.Uncounted = append(l.found.Uncounted, definition)
	}
	return ownership.Kind{}
}

func (l *lookAtClosure) add(uid ownership.UID, kind ownership.Kind) {
	l.found.Objects++
	l.uids = append(l.uids, string(uid))
	if _, seen := l.limited[kind]; seen {
		return
	}
	l.limited[kind] = ""
	if gvr, _, ok := l.closures.feed.Mapping(kind); ok && l.limits.Limited(gvr.GroupResource()) {
		l.limited[kind] = gvr.GroupResource().String()
		l.found.Limited = append(l.found.Limited, l.limited[kind])
	}
}

func (l *lookAtClosure) closure() protection.Closure {
	slices.Sort(l.found.Limited)
	slices.Sort(l.found.Uncounted)
	if l.limits.Exceeded(l.found) {
		l.found.Digest = protection.DigestOf(l.uids)
	}
	return l.found
}

// closuresSink receives the observations of Closures.
type closuresSink Closures

var _ feed.Sink = (*closuresSink)(nil)

func (s *closuresSink) change(change func(g *ownership.Graph)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.graph)
}

func isNamespace(kind ownership.Kind) bool { return kind == ownership.Kind{Kind: "Namespace"} }

// Observe implements feed.Sink.
func (s *closuresSink) Observe(o ownership.Object) {
	s.change(func(g *ownership.Graph) {
		g.Observe(o)
		if isNamespace(o.Kind) {
			s.namespaces[o.Name] = o.UID
		}
	})
}

// Forget implements feed.Sink.
func (s *closuresSink) Forget(uid ownership.UID, resourceVersion string) {
	s.change(func(g *ownership.Graph) {
		if o, isObserved := g.Object(uid); isObserved && isNamespace(o.Kind) && s.namespaces[o.Name] == uid {
			delete(s.namespaces, o.Name)
		}
		g.Forget(uid, resourceVersion)
	})
}

// StartList implements feed.Sink.
func (s *closuresSink) StartList(kind ownership.Kind) {
	s.change(func(g *ownership.Graph) { g.StartList(kind) })
}

// Listed implements feed.Sink.
func (s *closuresSink) Listed(kind ownership.Kind, objects []ownership.Object) {
	s.change(func(g *ownership.Graph) {
		g.Load(objects)
		for i := range objects {
			if isNamespace(kind) {
				s.namespaces[objects[i].Name] = objects[i].UID
			}
		}
	})
}

// EndList implements feed.Sink.
func (s *closuresSink) EndList(kind ownership.Kind) {
	s.change(func(g *ownership.Graph) {
		g.EndList(kind)
		if isNamespace(kind) {
			maps.DeleteFunc(s.namespaces, func(_ string, uid ownership.UID) bool { _, isThere := g.Object(uid); return !isThere })
		}
	})
}

// SetScope implements feed.Sink.
func (s *closuresSink) SetScope(kind ownership.Kind, scope ownership.Scope) {
	s.change(func(g *ownership.Graph) { g.SetScope(kind, scope) })
}

// NewEpoch implements feed.Sink.
func (s *closuresSink) NewEpoch() {
	s.change(func(g *ownership.Graph) { g.NewEpoch() })
}
