package storage

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
)

const (
	// listsWithoutCache is the number of objects that the lists of a resource read from etcd before its watch cache
	// begins. A list of that many takes a tenth of a second.
	listsWithoutCache = 10_000
	// listsAtATime is the number of concurrent lists of a resource that etcd serves. Another list begins the watch
	// cache, and waits for it.
	listsAtATime = 16
	// fillTime bounds the time that a watch, or a list beyond listsAtATime, waits until a new cache is filled. After
	// that the watch gets 429, as from k8s.io/apiserver for a cache that cannot be filled. The list is served from
	// etcd, like all other reads meanwhile.
	fillTime = 3 * time.Second
	// stopGrace bounds the time that the cache of a resource may take to stop. A cache that is stopped within
	// milliseconds of its start, after a hundred events, never stops: the goroutine that passes them on has ended, and
	// the goroutine that receives them waits for it (k8s.io/apiserver 1.37).
	stopGrace = 5 * time.Second
)

// onDemand is the storage of a resource whose watch cache begins when it is necessary: with the first watch of a
// client, with the second concurrent watch of this process, or when lists have read many objects from etcd or are too
// many at a time. Most resources of a small cluster never get a cache: the controllers in the process read metadata
// from the store (follow.go), and have one informer for each resource, which needs no other cache. A cache takes 17
// goroutines and keeps another copy of every object. It never ends before the storage.
//
// Until then etcd serves reads, so no read is older than with a cache. etcd also serves a watch from a revision before
// the cache's first state, because a client that has listed before the cache began must be able to watch from there.
// The watch fails if the revision is from before the store was opened, as with a cache that began with the server.
type onDemand struct {
	apistorage.Interface // etcd, without a cache

	open   func() (*watchCache, error)
	listed *listedObjects
	held   *atomic.Int64 // the bytes that all watches hold for their clients
	opened uint64        // the revision when the store was opened
	remote bool          // etcd is in other processes
	filled atomic.Pointer[watchCache]
	lists  atomic.Int64 // the lists that etcd serves now

	ended context.Context //nolint:containedctx // it ends when the storage is stopped
	end   context.CancelFunc

	mu      sync.Mutex
	cache   *watchCache // guarded by mu; nil until it begins
	err     error       // guarded by mu; the reason why it does not begin
	watched bool        // guarded by mu; this process has a watch without the cache
}

// newOnDemand returns the storage of a resource. open opens a cache; listed counts the objects that lists read.
func newOnDemand(direct apistorage.Interface, open func() (*watchCache, error), listed *listedObjects, in *Stack) *onDemand {
	s := &onDemand{Interface: direct, open: open, listed: listed, held: &in.heldForWatches, opened: uint64(in.store.Opened()), remote: in.store.Shared()}
	s.ended, s.end = context.WithCancel(context.Background()) //nolint:forbidigo // it ends with the storage
	return s
}

// stop ends the cache, if it has begun, and the watches that are served from etcd.
func (s *onDemand) stop() {
	s.end()
	s.mu.Lock()
	cache := s.cache
	s.mu.Unlock()
	if cache != nil {
		cache.stop()
	}
}

// begin begins the cache, unless it has begun, and returns it before it is filled.
func (s *onDemand) begin() (*watchCache, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cache != nil || s.err != nil {
		return s.cache, s.err
	}
	if s.ended.Err() != nil {
		return nil, apierrors.NewTooManyRequests("the storage has stopped", 1)
	}
	if s.cache, s.err = s.open(); s.err != nil {
		return nil, s.err
	}
	cache := s.cache
	go func() {
		defer close(cache.filled)
		if cache.fill(s.ended) {
			s.filled.Store(cache)
		}
	}()
	return cache, nil
}

// current returns the storage for all calls except watches.
func (s *onDemand) current() apistorage.Interface {
	if cache := s.filled.Load(); cache != nil {
		return cache
	}
	return s.Interface
}

// Watch implements storage.Interface.
func (s *onDemand) Watch(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	if inprocess.MayLag(ctx) && s.isFirst(ctx) {
		return s.watchDirectly(ctx, key, opts)
	}
	cache, err := s.begin()
	if err != nil {
		return nil, err
	}
	if err := cache.wait(ctx); err != nil {
		return nil, err
	}
	return watchFor(ctx, opts, s.held, func(ctx context.Context, opts apistorage.ListOptions) (watch.Interface, error) {
		if from := s.resumesAt(opts); s.opened <= from && from < cache.first {
			return s.watchDirectly(ctx, key, opts)
		}
		return cache.Watch(ctx, key, opts)
	})
}

// isFirst reports whether a watch, which ends with ctx, is the only one and there is no cache. Such a watch gets its
// first events late if there are writes when it begins: etcd looks every 100 ms for watches from the past. An etcd in
// other processes does not serve the informers of each server, to reduce its load.
func (s *onDemand) isFirst(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remote || s.watched || s.cache != nil {
		return false
	}
	s.watched = true
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watched = false
	})
	return true
}

// resumesAt returns the revision after which a watch gets events, or 0 if the watch begins with a state.
func (s *onDemand) resumesAt(opts apistorage.ListOptions) uint64 {
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		return 0
	}
	revision, err := s.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return 0 // the cache reports the error
	}
	return revision
}

// watchDirectly watches etcd until ctx, or the storage, ends. Its bookmarks are etcd's progress notifications.
func (s *onDemand) watchDirectly(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(s.ended, cancel) //nolint:contextcheck // it ends with the storage, too
	context.AfterFunc(ctx, func() { forget() })
	opts.ProgressNotify = opts.Predicate.AllowWatchBookmarks
	if opts.ProgressNotify && !opts.Predicate.Empty() {
		ctx = etcd.Selective(ctx)
	}
	if name, ok := requiredName(opts.Predicate); ok {
		ctx = etcd.OnlyNamed(ctx, name)
	}
	events, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		cancel()
		return nil, err
	}
	return directWatch{events, cancel}, nil
}

// requiredName returns the name that all selected objects have, if there is one. It is not the name of a single object,
// which would have a key of its own: the objects are in several namespaces.
func requiredName(selected apistorage.SelectionPredicate) (name string, ok bool) {
	if selected.Field == nil {
		return "", false
	}
	return selected.Field.RequiresExactMatch(metav1.ObjectNameField)
}

// directWatch is a watch of etcd whose context ends with it.
type directWatch struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop implements watch.Interface.
func (d directWatch) Stop() {
	d.Interface.Stop()
	d.cancel()
}

// Get implements storage.Interface.
func (s *onDemand) Get(ctx context.Context, key string, opts apistorage.GetOptions, out runtime.Object) error {
	return s.current().Get(ctx, key, opts, out)
}

// GetList implements storage.Interface.
func (s *onDemand) GetList(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	if s.filled.Load() == nil {
		defer s.lists.Add(-1)
		if s.lists.Add(1) > listsAtATime {
			if cache, err := s.begin(); err == nil {
				_ = cache.wait(ctx) // without it, the list is read from etcd
			}
		}
	}
	if cache := s.filled.Load(); cache != nil {
		return cache.GetList(ctx, key, opts, list)
	}
	if opts.ResourceVersion == "0" {
		opts.Predicate.Limit = 0 // as a cache does
	}
	err := s.Interface.GetList(ctx, key, opts, list)
	if s.listed.n.Load() >= listsWithoutCache {
		_, _ = s.begin() // the next watch gets the error
	}
	return err
}

// GuaranteedUpdate implements storage.Interface. A cache knows the object, which saves a read.
func (s *onDemand) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, tryUpdate apistorage.UpdateFunc, cached runtime.Object,
) error {
	return s.current().GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
}

// Delete implements storage.Interface. A cache knows the object, which saves a read.
func (s *onDemand) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, cached runtime.Object, opts apistorage.DeleteOptions,
) error {
	return s.current().Delete(ctx, key, out, preconditions, validate, cached, opts)
}

// ReadinessCheck implements storage.Interface.
func (s *onDemand) ReadinessCheck() error { return s.current().ReadinessCheck() }

// openStorages are the storages that are open. The zero value is empty. It is safe for concurrent use.
type openStorages struct {
	mu  sync.Mutex
	all map[*onDemand]schema.GroupResource // guarded by mu; a custom resource has a storage for each version
}

func (o *openStorages) add(resource schema.GroupResource, s *onDemand) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[*onDemand]schema.GroupResource{}
	}
	o.all[s] = resource
}

func (o *openStorages) remove(s *onDemand) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, s)
}

// Behind returns the resources whose watch caches are behind, given the resourceVersion that each cache has reached.
// Without a cache, a resource is read from etcd.
func (s *Stack) Behind(isBehind func(resource schema.GroupResource, resourceVersion string) bool) (behind []string) {
	s.opened.mu.Lock()
	defer s.opened.mu.Unlock()
	for storage, resource := range s.opened.all {
		cache := storage.filled.Load()
		if cache == nil {
			continue
		}
		if !cache.cached.Ready() { // it is being filled again
			behind = append(behind, resource.String())
			continue
		}
		if reached, err := cache.cached.LastSyncResourceVersion(); err != nil || isBehind(resource, strconv.FormatUint(reached, 10)) {
			behind = append(behind, resource.String())
		}
	}
	return behind
}

// watchCache is the watch cache of a resource, with the storage below it.
type watchCache struct {
	apistorage.Interface

	cached    *cacher.Cacher
	delegator *cacher.CacheDelegator
	stopped   func()        // called when it stops
	filled    chan struct{} // closed when it has its first state, or was stopped
	// first is a revision after which the cache has all events; 0 if unknown. It is set before filled is closed.
	first uint64
}

func newWatchCache(cached *cacher.Cacher, direct apistorage.Interface, corrupt *atomic.Bool, stopped func()) *watchCache {
	delegator := cacher.NewCacheDelegator(cached, direct)
	served := listFallback{Interface: delegator, direct: direct, cache: cached, corrupt: corrupt}
	return &watchCache{Interface: served, cached: cached, delegator: delegator, stopped: stopped, filled: make(chan struct{})}
}

// fill waits until the cache has its first state. It returns false if it was stopped before.
func (c *watchCache) fill(ctx context.Context) bool {
	if c.cached.Wait(ctx) != nil {
		return false
	}
	// The revision of the first state is not available, but a later one is sufficient.
	if revision, err := c.GetCurrentResourceVersion(ctx); err == nil {
		c.first = revision
	}
	return true
}

// wait waits until the cache is filled, or stopped.
func (c *watchCache) wait(ctx context.Context) error {
	patience := time.NewTimer(fillTime)
	defer patience.Stop()
	select {
	case <-c.filled:
		return nil
	case <-patience.C: // etcd does not answer, or there is an object that cannot be decoded
		return apierrors.NewTooManyRequests("the watch cache is being filled", 1)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *watchCache) stop() {
	c.stopped()
	within(stopGrace, func() {
		c.delegator.Stop()
		c.cached.Stop()
	})
}

// within calls a function, and returns when the function does, or after a limit.
func within(limit time.Duration, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-clock.RealClock{}.After(limit):
	}
}

// listedObjects is a decoder that counts the objects of lists, except objects of which it decodes only the metadata. It
// removes kind and version from the objects, which have the list's version, as in a watch cache; custom resources keep
// theirs.
type listedObjects struct {
	etcd3.Decoder

	n atomic.Int64
}

func countListed(decoder etcd3.Decoder) *listedObjects { return &listedObjects{Decoder: decoder} }

// DecodeListItem implements etcd3.Decoder.
func (l *listedObjects) DecodeListItem(ctx context.Context, data []byte, revision uint64, newItem func() runtime.Object) (runtime.Object, error) {
	if metadata, ok := metadataOf(ctx, data); ok {
		data = metadata // so small that it is not counted
	} else {
		l.n.Add(1)
	}
	item, err := l.Decoder.DecodeListItem(ctx, data, revision, newItem)
	if _, custom := item.(runtime.Unstructured); err == nil && !custom {
		item.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return item, err
}
