package storemetadata

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

// definitions has the served custom resources, from their CustomResourceDefinitions in the store.
// It changes in the order of the store's revisions, as the custom resources do: when a definition
// is removed, all of its objects have been removed.
type definitions struct {
	changed func(schema.GroupResource) // called when the scope or the served versions of a resource change

	mu     sync.Mutex
	served map[schema.GroupResource]definition // guarded by mu
	known  map[string]int64                    // guarded by mu; the revision of each definition, by key, until all were read
	lost   bool                                // guarded by mu
}

var _ etcd.Subscriber = (*definitions)(nil)

func newDefinitions(changed func(schema.GroupResource)) *definitions {
	return &definitions{changed: changed, served: make(map[schema.GroupResource]definition), known: make(map[string]int64)}
}

// read reads all definitions. The subscription to changes must begin before.
func (d *definitions) read(ctx context.Context, follower *etcd.Follower, prefix string) error {
	err := follower.ReadAll(ctx, prefix, "", 0, func(object etcd.Stored) bool {
		d.Changed(etcd.Change{Key: object.Key, Value: object.Value, Revision: object.Revision})
		return true
	})
	if err != nil {
		return fmt.Errorf("read the CustomResourceDefinitions: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = nil // from now on, changes arrive in order
	return nil
}

// Changed implements etcd.Subscriber.
func (d *definitions) Changed(c etcd.Change) {
	name := c.Key[strings.LastIndex(c.Key, "/")+1:]
	plural, group, _ := strings.Cut(name, ".")
	resource := schema.GroupResource{Group: group, Resource: plural}
	d.mu.Lock()
	if c.Revision <= d.known[c.Key] {
		d.mu.Unlock()
		return
	}
	if d.known != nil {
		d.known[c.Key] = c.Revision
	}
	before, was := d.served[resource]
	now, is := definition{}, false
	if !c.Deleted {
		now, is = definitionOf(c.Value)
	}
	delete(d.served, resource)
	if is {
		d.served[resource] = now
	}
	d.mu.Unlock()
	if was && (!is || before.namespaced != now.namespaced || !slices.Equal(before.versions, now.versions)) {
		d.changed(resource)
	}
}

// Lost implements etcd.Subscriber.
func (d *definitions) Lost() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = true
}

func (d *definitions) isLost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

// serves reports whether a version of a custom resource is served, and in which scope.
func (d *definitions) serves(resource schema.GroupVersionResource) (namespaced, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found, ok := d.served[resource.GroupResource()]
	return found.namespaced, ok && slices.Contains(found.versions, resource.Version)
}
