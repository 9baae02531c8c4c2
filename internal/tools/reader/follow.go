package reader

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

const (
	// mostFollowed bounds the watches of a Follower: the places with the most objects have one.
	mostFollowed = 16
	// rewatch is the time between two watches of a place.
	rewatch = time.Second
)

// Follower watches the removals of some objects. It tells when to read the cluster again; it does not replace the
// reading: places without a watch have to be read now and then. It keeps the UIDs of the objects only.
//
// No removal is lost: a watch begins at a version of its place, and Changed then asks for a reading, which has every
// removal before that version.
type Follower struct {
	client  metadata.Interface
	changed chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	left    map[ownership.UID]bool       // guarded by mu
	watches map[place]context.CancelFunc // guarded by mu
}

// NewFollower returns a Follower without objects.
func NewFollower(config *rest.Config) (*Follower, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for metadata: %w", err)
	}
	return &Follower{client: client, changed: make(chan struct{}, 1), watches: map[place]context.CancelFunc{}}, nil
}

// Follow watches other objects from now on, until ctx ends.
func (f *Follower) Follow(ctx context.Context, objects []*inventory.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = make(map[ownership.UID]bool, len(objects))
	places := map[place]int{}
	for _, o := range objects {
		f.left[o.UID] = true
		places[place{o.Resource, o.Namespace}]++
	}
	wanted := slices.SortedFunc(maps.Keys(places), func(a, b place) int {
		return cmp.Or(places[b]-places[a], a.resource.Compare(b.resource), cmp.Compare(a.namespace, b.namespace))
	})
	wanted = wanted[:min(len(wanted), mostFollowed)]
	for p, stop := range f.watches {
		if !slices.ContainsFunc(wanted, p.isLike) {
			stop()
			delete(f.watches, p)
		}
	}
	for _, p := range wanted {
		if slices.ContainsFunc(slices.Collect(maps.Keys(f.watches)), p.isLike) {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		f.watches[p] = stop
		f.running.Go(func() { f.follow(ctx, p) })
	}
}

// isLike reports whether both places are the same: each reading has its own resources.
func (p place) isLike(other place) bool {
	return p.resource.GroupVersionResource == other.resource.GroupVersionResource && p.namespace == other.namespace
}

// Changed receives a value when the cluster has to be read again.
func (f *Follower) Changed() <-chan struct{} { return f.changed }

// Left returns the number of objects of which no removal was observed.
func (f *Follower) Left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.left)
}

// Stop ends the watches.
func (f *Follower) Stop() {
	f.mu.Lock()
	for _, stop := range f.watches {
		stop()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// follow watches a place, and again when a watch ends. A place that may not be watched is left to the reading.
func (f *Follower) follow(ctx context.Context, p place) {
	for ctx.Err() == nil {
		err := f.watch(ctx, p)
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return
		}
		pause := time.NewTimer(rewatch)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

func (f *Follower) watch(ctx context.Context, p place) error {
	objects := f.client.Resource(p.resource.GroupVersionResource).Namespace(p.namespace)
	list, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	w, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	f.signal()
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Deleted:
			if o, err := meta.Accessor(e.Object); err == nil {
				f.removed(ownership.UID(o.GetUID()))
			}
		case watch.Error:
			return apierrors.FromObject(e.Object)
		case watch.Added, watch.Modified, watch.Bookmark:
		}
	}
	return nil
}

// removed records the removal of an object.
func (f *Follower) removed(uid ownership.UID) {
	f.mu.Lock()
	isFollowed := f.left[uid]
	delete(f.left, uid)
	f.mu.Unlock()
	if isFollowed {
		f.signal()
	}
}

func (f *Follower) signal() {
	select {
	case f.changed <- struct{}{}:
	default: // a reading was asked for already, and has not begun
	}
}
