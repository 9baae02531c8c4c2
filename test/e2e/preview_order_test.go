package e2e

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// departures are the revisions at which the objects of a case were removed, as watches tell them.
type departures struct {
	changed chan struct{} // has an element when at has grown

	mu sync.Mutex
	at map[ownership.UID]uint64 // guarded by mu
}

// follow watches the objects of a case until ctx ends.
func (c *previewCluster) follow(t *testing.T, ctx context.Context, made madeCase) *departures {
	t.Helper()
	d := &departures{changed: make(chan struct{}, 1), at: map[ownership.UID]uint64{}}
	for _, r := range made.resources {
		if !r.Namespaced {
			continue
		}
		w, err := c.in(r, made.namespace).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatalf("watch %s: %v", r.Resource, err)
		}
		go d.note(w)
	}
	return d
}

func (d *departures) note(w watch.Interface) {
	defer w.Stop()
	for event := range w.ResultChan() {
		o, ok := event.Object.(*unstructured.Unstructured)
		if event.Type != watch.Deleted || !ok {
			continue
		}
		revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		if err != nil {
			continue // misses counts it
		}
		d.mu.Lock()
		d.at[ownership.UID(o.GetUID())] = revision
		d.mu.Unlock()
		select {
		case d.changed <- struct{}{}:
		default:
		}
	}
}

// misses returns the first of some objects whose departure is not known yet.
func (d *departures) misses(objects []*inventory.Object) *inventory.Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range objects {
		if d.at[o.UID] == 0 {
			return o
		}
	}
	return nil
}

// promise is that one object goes before another.
type promise struct{ first, second *inventory.Object }

// promises returns the order that a prediction promises for owners and dependents that the collector deletes
// after one request: a dependent that blocks the foreground deletion of its only owner goes before the owner,
// and in the background a dependent goes after all its owners. Any other order depends on races: between
// several requests, where a cycle is broken, and whether a dependent loses a reference before its other owners
// go.
func promises(before *inventory.Inventory, prediction preview.Prediction, w previewCase) []promise {
	outcomes := map[ownership.UID]preview.Outcome{}
	for _, o := range prediction.Outcomes {
		if o.Fate == preview.Deleted && !o.Race && o.Object.Namespace != "" {
			outcomes[o.Object.UID] = o
		}
	}
	if len(w.requests) != 1 || len(w.early) > 0 {
		return nil
	}
	asksForeground := w.requests[0].policy == metav1.DeletePropagationForeground
	var all []promise
	for _, dependent := range before.Objects {
		goes, deleted := outcomes[dependent.UID]
		if !deleted || goes.By != preview.ByCollector {
			continue
		}
		for _, r := range dependent.Owners {
			owner, ownerDeleted := outcomes[r.UID]
			switch {
			case !ownerDeleted || isBelow(before, owner.Object, dependent):
			case goes.Step < owner.Step && r.Blocking() && len(dependent.Owners) == 1:
				all = append(all, promise{dependent, owner.Object})
			case owner.Step < goes.Step && !asksForeground:
				all = append(all, promise{owner.Object, dependent})
			}
		}
	}
	return all
}

// isBelow reports whether an object is another one, or owned by it, directly or not.
func isBelow(inv *inventory.Inventory, o, above *inventory.Object) bool {
	seen := map[ownership.UID]bool{}
	for queue := []*inventory.Object{o}; len(queue) > 0; queue = queue[1:] {
		switch {
		case queue[0] == nil || seen[queue[0].UID]:
			continue
		case queue[0] == above:
			return true
		}
		seen[queue[0].UID] = true
		for _, r := range queue[0].Owners {
			queue = append(queue, inv.Object(r.UID))
		}
	}
	return false
}

// broken describes the first promise that was not kept.
func (d *departures) broken(t *testing.T, all []promise) string {
	t.Helper()
	var objects []*inventory.Object
	for _, p := range all {
		objects = append(objects, p.first, p.second)
	}
	until := time.After(patience / 6)
	for missing := d.misses(objects); missing != nil; missing = d.misses(objects) {
		select {
		case <-d.changed:
		case <-until:
			return fmt.Sprintf("no watch tells of the removal of %s %s", missing.Kind, missing.Name)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range all {
		if d.at[p.first.UID] >= d.at[p.second.UID] {
			return fmt.Sprintf("%s %s went at revision %d, and %s %s at %d; the prediction was the other order",
				p.first.Kind, p.first.Name, d.at[p.first.UID], p.second.Kind, p.second.Name, d.at[p.second.UID])
		}
	}
	return ""
}
