package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
)

const (
	// newestTimeout bounds the time that a call waits for the watch of all keys to catch up.
	newestTimeout = time.Second
	// firstProgressRequest is how long a call waits before it requests the progress of that watch
	// from etcd. The interval doubles with each further request.
	firstProgressRequest = time.Millisecond
	// rewatchDelay is the delay before the watch is opened again after it ended.
	rewatchDelay = 100 * time.Millisecond
)

// Newest contains the last write of each resource.
type Newest struct {
	// History changes when this answer may not continue earlier ones.
	History string `json:"history"`
	// Now is the revision of the store.
	Now int64 `json:"now"`
	// Writes are the revisions of the last creation or update of each resource, by
	// GroupResource.String, or later revisions if those are unknown. Deletions do not count.
	Writes map[string]int64 `json:"writes"`
}

// Newest returns the last write of each resource, at a time after the call. With it, a watching
// client can verify that it has seen all writes (R15) without reading all objects again.
func (s *Store) Newest(ctx context.Context) (Newest, error) {
	ctx, cancel := context.WithTimeout(ctx, newestTimeout)
	defer cancel()
	s.newest.start(ctx)
	before := s.newest.knownRevision()
	now, err := s.Revision(ctx)
	switch {
	case err != nil:
		return Newest{}, err
	case now < before:
		s.newest.invalidate()
		return Newest{}, fmt.Errorf("the revision of etcd went backwards, from %d to %d", before, now)
	}
	return s.newest.at(ctx, now)
}

// AddResource makes Newest report the last write of a resource, whose keys begin with a prefix. Writes before the first
// call are unknown.
func (s *Store) AddResource(resource schema.GroupResource, prefix string) {
	s.newest.open(resource, prefix)
}

// newest keeps the revisions of the last writes, from one watch on the keys of all objects.
type newest struct {
	client *clientv3.Client
	prefix string // of the keys of all objects, with a slash at the end
	once   sync.Once
	stop   context.CancelFunc // set by start
	ended  sync.WaitGroup

	mu        sync.Mutex
	resources map[schema.GroupResource]string // guarded by mu, like all fields below; the part of their keys after prefix
	prefixes  map[string]schema.GroupResource // the reverse; the first one of several resources with the same keys
	writes    map[string]int64                // by prefix
	history   string                          // empty while there is no watch
	floor     int64                           // writes up to this revision are unknown
	reached   int64                           // writes after floor and up to this revision are known
	moved     chan struct{}                   // closed and replaced at each change
}

func newNewest(client *clientv3.Client, prefix string) *newest {
	return &newest{
		client: client, prefix: prefix + "/", moved: make(chan struct{}), stop: func() {},
		resources: make(map[schema.GroupResource]string), prefixes: make(map[string]schema.GroupResource), writes: make(map[string]int64),
	}
}

// start starts the watch, which runs until close. Later calls do nothing.
func (n *newest) start(ctx context.Context) {
	n.once.Do(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		n.stop = cancel
		n.ended.Go(func() { n.run(ctx) })
	})
}

// close ends the watch. It must not be called concurrently with start.
func (n *newest) close() {
	n.stop()
	n.ended.Wait()
}

// onOwnStream gives the watch its own stream, so that responses to its progress requests do not go
// to other watches.
func onOwnStream(ctx context.Context) context.Context {
	return withStream(ctx, "newest")
}

func (n *newest) run(ctx context.Context) {
	for ctx.Err() == nil {
		n.follow(ctx)
		select {
		case <-time.After(rewatchDelay):
		case <-ctx.Done():
		}
	}
}

// follow watches until the watch ends, or invalidate is called.
func (n *newest) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(onOwnStream(ctx))
	defer cancel()
	for response := range n.client.Watch(ctx, n.prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if response.Err() != nil || !n.take(response) {
			break
		}
	}
	n.invalidate()
}

// take records a response of the watch. It returns false if invalidate was called.
func (n *newest) take(response clientv3.WatchResponse) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	reached := response.Header.GetRevision()
	switch {
	case response.Created:
		n.history, n.floor, n.reached = rand.String(16), reached, reached
		clear(n.writes)
	case n.history == "":
		return false
	case len(response.Events) > 0:
		reached = response.Events[len(response.Events)-1].Kv.ModRevision
	}
	for _, event := range response.Events {
		if event.Type == clientv3.EventTypePut {
			n.wroteLocked(strings.TrimPrefix(string(event.Kv.Key), n.prefix), event.Kv.ModRevision)
		}
	}
	n.reached = max(n.reached, reached)
	close(n.moved)
	n.moved = make(chan struct{})
	return true
}

// wroteLocked records a write. Keys of resources that were never added are ignored.
func (n *newest) wroteLocked(key string, revision int64) {
	for _, prefix := range resourcePrefixes(key) {
		if _, ok := n.writes[prefix]; ok {
			n.writes[prefix] = revision
			return
		}
		if _, ok := n.prefixes[prefix]; ok {
			n.writes[prefix] = revision
			return
		}
	}
}

// resourcePrefixes returns what the prefix of the keys of a resource may be, given one of the keys: they begin with the
// name of the resource, or with two names, a group and a name.
func resourcePrefixes(key string) [2]string {
	first := strings.Index(key, "/") + 1
	second := first + strings.Index(key[first:], "/") + 1
	return [2]string{key[:first], key[:second]}
}

// resourceOf returns the resource of a key; the zero value if none of its prefixes is open.
func (n *newest) resourceOf(key string) schema.GroupResource {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, prefix := range resourcePrefixes(strings.TrimPrefix(key, n.prefix)) {
		if resource, ok := n.prefixes[prefix]; ok {
			return resource
		}
	}
	return schema.GroupResource{}
}

// open adds the prefix of a resource's keys. Earlier writes of these keys are unknown, unless the prefix is open already:
// each change of a definition opens the storage of its resource again.
func (n *newest) open(resource schema.GroupResource, prefix string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	prefix = strings.TrimPrefix(prefix, n.prefix)
	n.resources[resource] = prefix
	if _, isOpen := n.prefixes[prefix]; !isOpen {
		n.prefixes[prefix] = resource
		n.writes[prefix] = max(n.writes[prefix], n.reached)
	}
}

// prefixOf returns the prefix of the keys of a resource that is open.
func (n *newest) prefixOf(resource schema.GroupResource) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	prefix, ok := n.resources[resource]
	return n.prefix + prefix, ok
}

// at waits until all writes up to a revision are known.
func (n *newest) at(ctx context.Context, now int64) (Newest, error) {
	timer := time.NewTimer(firstProgressRequest)
	defer timer.Stop()
	for wait := firstProgressRequest; ; {
		answer, moved := n.read(now)
		if moved == nil {
			return answer, nil
		}
		select {
		case <-moved:
		case <-timer.C:
			wait *= 2
			timer.Reset(wait)
			// An error means that there is no watch yet, or no longer.
			_ = n.client.RequestProgress(onOwnStream(ctx))
		case <-ctx.Done():
			return Newest{}, fmt.Errorf("find out how far etcd's watch has come: %w", ctx.Err())
		}
	}
}

// read returns the answer if all writes up to a revision are known, or else a channel that is
// closed when more writes are known.
func (n *newest) read(now int64) (Newest, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.history == "" || n.reached < now {
		return Newest{}, n.moved
	}
	answer := Newest{History: n.history, Now: now, Writes: make(map[string]int64, len(n.resources))}
	for resource, prefix := range n.resources {
		answer.Writes[resource.String()] = max(n.floor, n.writes[prefix])
	}
	return answer, nil
}

// knownRevision returns the revision up to which all writes are known, or 0.
func (n *newest) knownRevision() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.history == "" {
		return 0
	}
	return n.reached
}

// invalidate ends this history: follow opens another watch.
func (n *newest) invalidate() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.history = ""
}
