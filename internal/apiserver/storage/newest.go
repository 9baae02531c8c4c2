package storage

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
)

const (
	// newestTimeout is how long the watch of all keys may lag behind before nobody
	// waits for it any more.
	newestTimeout = time.Second
	// firstQuestion is after what time etcd is asked how far that watch has come; then
	// it is asked again, after twice the time.
	firstQuestion = time.Millisecond
	// watchAgain is when the watch is opened again that has ended.
	watchAgain = 100 * time.Millisecond
)

// Newest is what was written last.
type Newest struct {
	// History is another one when it is not certain any more that what is told now
	// continues what was told before.
	History string `json:"history"`
	// Now is the revision of the store.
	Now int64 `json:"now"`
	// Writes are the revisions of the last creation or update of each resource, or later
	// ones where that is not known, by GroupResource.String. Deletions do not count.
	Writes map[string]int64 `json:"writes"`
}

// Newest tells what was written last, as of a moment after the call. It is how somebody
// who watches finds out that he has seen everything (R15), without reading it all again.
func (s *Store) Newest(ctx context.Context) (Newest, error) {
	ctx, cancel := context.WithTimeout(ctx, newestTimeout)
	defer cancel()
	s.newest.start(ctx)
	before := s.newest.upTo()
	now, err := s.Revision(ctx)
	switch {
	case err != nil:
		return Newest{}, err
	case now < before:
		s.newest.doubt()
		return Newest{}, fmt.Errorf("the revision of etcd went backwards, from %d to %d", before, now)
	}
	return s.newest.at(ctx, now)
}

// newest keeps the account of the newest writes, from one watch on the keys of all
// objects.
type newest struct {
	client *clientv3.Client
	prefix string // of the keys of all objects, with a slash at the end
	once   sync.Once
	stop   context.CancelFunc // set by start
	ended  sync.WaitGroup

	mu        sync.Mutex
	resources map[schema.GroupResource]string // guarded by mu, and so is all below; what follows prefix in their keys
	writes    map[string]int64                // by that
	history   string                          // empty while nothing is watched
	floor     int64                           // what was written up to that revision is not known
	reached   int64                           // what was written up to that revision, and after floor, is
	moved     chan struct{}                   // closed, and replaced, when there is something new
}

func newNewest(client *clientv3.Client, prefix string) *newest {
	return &newest{
		client: client, prefix: prefix + "/", moved: make(chan struct{}), stop: func() {},
		resources: make(map[schema.GroupResource]string), writes: make(map[string]int64),
	}
}

// start begins to watch, until close, unless that was begun before.
func (n *newest) start(ctx context.Context) {
	n.once.Do(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		n.stop = cancel
		n.ended.Go(func() { n.run(ctx) })
	})
}

// close ends the watch. It may not be called at the same time as start.
func (n *newest) close() {
	n.stop()
	n.ended.Wait()
}

// own gives the watch a stream of its own, so that nobody else's watches hear of the
// questions for its progress.
func own(ctx context.Context) context.Context {
	return stream(ctx, "newest")
}

func (n *newest) run(ctx context.Context) {
	for ctx.Err() == nil {
		n.follow(ctx)
		select {
		case <-time.After(watchAgain): //nolint:forbidigo // nothing depends on how long it is
		case <-ctx.Done():
		}
	}
}

// follow watches until the watch ends, or turns out to be of another history.
func (n *newest) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(own(ctx))
	defer cancel()
	for response := range n.client.Watch(ctx, n.prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if response.Err() != nil || !n.take(response) {
			break
		}
	}
	n.doubt()
}

// take takes in what the watch says. It returns false when somebody has found that the
// watch cannot be believed.
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

// wroteLocked takes note of a write. The keys of a resource begin with its name, or with
// two names: a group and a name. Of others nobody has asked for the storage.
func (n *newest) wroteLocked(key string, revision int64) {
	first := strings.Index(key, "/") + 1
	second := first + strings.Index(key[first:], "/") + 1
	for _, prefix := range []string{key[:first], key[:second]} {
		if _, ok := n.writes[prefix]; ok || n.isOpenLocked(prefix) {
			n.writes[prefix] = revision
			return
		}
	}
}

func (n *newest) isOpenLocked(prefix string) bool {
	for _, open := range n.resources {
		if open == prefix {
			return true
		}
	}
	return false
}

// open takes in where the objects of a resource are kept. What was written there up to
// now is not known.
func (n *newest) open(resource schema.GroupResource, prefix string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	prefix = strings.TrimPrefix(prefix, n.prefix)
	n.resources[resource] = prefix
	n.writes[prefix] = max(n.writes[prefix], n.reached)
}

// at waits until all is known that was written up to a revision.
func (n *newest) at(ctx context.Context, now int64) (Newest, error) {
	question := time.NewTimer(firstQuestion)
	defer question.Stop()
	for wait := firstQuestion; ; {
		answer, moved := n.look(now)
		if moved == nil {
			return answer, nil
		}
		select {
		case <-moved:
		case <-question.C:
			wait *= 2
			question.Reset(wait)
			// An error says that there is no watch yet, or that there is none any more.
			_ = n.client.RequestProgress(own(ctx))
		case <-ctx.Done():
			return Newest{}, fmt.Errorf("find out how far etcd's watch has come: %w", ctx.Err())
		}
	}
}

// look answers when what is known goes up to a revision, and else with a channel that is
// closed when more is known.
func (n *newest) look(now int64) (Newest, <-chan struct{}) {
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

// upTo tells up to which revision all is known; 0 if nothing is.
func (n *newest) upTo() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.history == "" {
		return 0
	}
	return n.reached
}

// doubt has the watch begun anew.
func (n *newest) doubt() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.history = ""
}

// keysOf is what the keys of a resource begin with.
func keysOf(prefix, resourcePrefix string) string {
	return path.Join("/", prefix, resourcePrefix) + "/"
}
