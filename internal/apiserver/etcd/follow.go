package etcd

import (
	"context"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Change is a write to the key of an object, or its deletion.
type Change struct {
	Key string
	// Value is the stored value. For a deletion, it is the last one, or nil if etcd has dropped it.
	Value    []byte
	Revision int64
	Created  bool
	Deleted  bool
}

// Subscriber receives the changes below a prefix, in the order of their revisions. Its methods are
// called one at a time. They must not wait, nor call the Follower.
type Subscriber interface {
	Changed(c Change)
	// Lost reports that changes were lost: etcd has dropped them, or a backup was restored. The
	// subscriber must read the stored objects again. It is the last call.
	Lost()
}

// Follower passes on the writes to all objects from one watch on all keys. A client that needs the
// metadata of all objects can use it in place of a watch cache for each resource.
type Follower struct {
	client   *clientv3.Client
	prefix   string // of the keys of all objects, with a slash at the end
	revision func(context.Context) (int64, error)
	newest   *newest

	starting sync.Mutex
	stop     context.CancelFunc // guarded by starting; nil before the first subscription
	ended    sync.WaitGroup

	mu          sync.Mutex
	subscribers map[string]map[Subscriber]struct{} // guarded by mu, like all fields below; by prefix
	reached     int64                              // changes up to this revision were passed on
	restart     context.CancelFunc                 // ends the watch, so that another one begins after reached
}

// Position is the revision at which a subscription begins, and the function that ends the
// subscription.
type Position struct {
	Revision int64
	Cancel   func()
}

func newFollower(s *Store) *Follower {
	return &Follower{
		client: s.client, prefix: s.prefix + "/", revision: s.Revision, newest: s.newest,
		subscribers: make(map[string]map[Subscriber]struct{}), restart: func() {},
	}
}

// Follower returns the one follower of this store.
func (s *Store) Follower() *Follower { return s.follower }

// PrefixOf returns the prefix of the keys of a resource whose storage was opened.
func (f *Follower) PrefixOf(resource schema.GroupResource) (prefix string, ok bool) {
	return f.newest.prefixOf(resource)
}

// CustomPrefix returns the prefix of the keys of custom resources. From now on, Newest reports
// their last write even if their storage was not opened.
func (f *Follower) CustomPrefix(resource schema.GroupResource) string {
	prefix := f.prefix + resource.Group + "/" + resource.Resource + "/"
	if _, ok := f.newest.prefixOf(resource); !ok {
		f.newest.open(resource, prefix)
	}
	return prefix
}

// Subscribe passes all changes below a prefix after the returned position to a subscriber, until it
// is cancelled. It must be the prefix of a resource.
func (f *Follower) Subscribe(ctx context.Context, prefix string, to Subscriber) (Position, error) {
	if err := f.start(ctx); err != nil {
		return Position{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subscribers[prefix] == nil {
		f.subscribers[prefix] = make(map[Subscriber]struct{})
	}
	f.subscribers[prefix][to] = struct{}{}
	return Position{f.reached, func() { f.unsubscribe(prefix, to) }}, nil
}

func (f *Follower) unsubscribe(prefix string, to Subscriber) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subscribers[prefix], to)
	if len(f.subscribers[prefix]) == 0 {
		delete(f.subscribers, prefix)
	}
}

// At calls a function with the revision up to which all changes were passed on. No change is passed
// on during the call.
func (f *Follower) At(do func(reached int64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.reached)
}

// Read compares the revision of a read with the revision reached, which At returned before the
// read. If it is lower, a backup was restored, and all subscriptions end.
func (f *Follower) Read(reached, revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if revision < reached && revision < f.reached {
		f.loseLocked(revision)
	}
}

// start starts the watch at the current revision. Later calls do nothing.
func (f *Follower) start(ctx context.Context) error {
	f.starting.Lock()
	defer f.starting.Unlock()
	if f.stop != nil {
		return nil
	}
	revision, err := f.revision(ctx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.reached = revision
	f.mu.Unlock()
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.ended.Go(func() { f.run(ctx) })
	return nil
}

// close ends the watch. After that, no change is passed on.
func (f *Follower) close() {
	f.starting.Lock()
	defer f.starting.Unlock()
	if f.stop == nil {
		f.stop = func() {} // start does nothing then
	}
	f.stop()
	f.ended.Wait()
}

func (f *Follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		f.follow(ctx)
		select {
		case <-time.After(rewatchDelay):
		case <-ctx.Done():
		}
	}
}

// follow watches until the watch ends.
func (f *Follower) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(withStream(ctx, "follower")))
	defer cancel()
	f.mu.Lock()
	from := f.reached + 1
	f.restart = cancel
	f.mu.Unlock()
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithPrevKV()}
	for response := range f.client.Watch(ctx, f.prefix, options...) {
		if ctx.Err() != nil || !f.take(response) {
			return
		}
	}
}

// take passes the changes of a response on. It returns false if the watch has failed.
func (f *Follower) take(response clientv3.WatchResponse) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if response.CompactRevision != 0 {
		f.loseLocked(response.CompactRevision)
		return false
	}
	if response.Err() != nil {
		return false
	}
	for _, event := range response.Events {
		change := changeOf(event)
		for to := range f.subscribers[f.resourcePrefixLocked(change.Key)] {
			to.Changed(change)
		}
		f.reached = change.Revision
	}
	return true
}

// resourcePrefixLocked returns the prefix of a key that has subscribers. The keys of a resource
// begin with its name, or with two names, a group and a name.
func (f *Follower) resourcePrefixLocked(key string) string {
	first := len(f.prefix) + strings.Index(key[len(f.prefix):], "/") + 1
	second := first + strings.Index(key[first:], "/") + 1
	if _, ok := f.subscribers[key[:second]]; ok {
		return key[:second]
	}
	return key[:first]
}

// loseLocked ends all subscriptions. New subscribers get the changes after a revision.
func (f *Follower) loseLocked(revision int64) {
	for _, subscribers := range f.subscribers {
		for to := range subscribers {
			to.Lost()
		}
	}
	clear(f.subscribers)
	f.reached = revision
	f.restart()
}

func changeOf(event *clientv3.Event) Change {
	c := Change{
		Key: string(event.Kv.Key), Value: event.Kv.Value, Revision: event.Kv.ModRevision,
		Created: event.IsCreate(), Deleted: event.Type == clientv3.EventTypeDelete,
	}
	if c.Deleted {
		c.Value = nil
		if event.PrevKv != nil {
			c.Value = event.PrevKv.Value
		}
	}
	return c
}
