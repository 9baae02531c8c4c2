package barrier

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// The choice of the lists of a round, and the reading of a list.

const (
	pageSize = client.PageSize
	// objectsPerRequest is the number of additional objects in an answer that cost as much as one
	// more request. It decides between one list of a kind across all namespaces and one in each
	// namespace.
	objectsPerRequest = 50
	// listTries bounds how often a list that expired while it was read is started over.
	listTries = 3
	// slotsPerKind bounds the lists of one kind that are under way, so that a kind that
	// does not answer does not take all of Config.Lists.
	slotsPerKind = 4
)

// listPlan describes how a list is read.
type listPlan struct {
	kind ownership.Kind
	// probe requests one object on the first page. Only its resourceVersion matters: if the watch
	// has reached it, the rest of the list adds nothing.
	probe bool
	pages int // the list is given up after so many pages; 0: never
}

// sharedLists plans the lists across namespaces, for kinds where one costs less than a list in
// each namespace: kinds with no objects at all, the common case, with few, or with so many
// that their watch moves on by itself. count returns how many objects of a kind are known.
func sharedLists(batches []*batch, count func(ownership.Kind) int) []listPlan {
	demand := make(map[ownership.Kind]int)
	for _, batch := range batches {
		if batch.namespace == "" {
			continue // reads across namespaces anyway, and to the end
		}
		for _, kind := range batch.kinds {
			demand[kind]++
		}
	}
	var lists []listPlan
	for kind, namespaces := range demand {
		if namespaces < 2 {
			continue
		}
		objects := count(kind)
		l := listPlan{kind: kind, probe: objects > pageSize, pages: 1}
		if objects <= namespaces*objectsPerRequest {
			// The count may be too low; if it is far too low, the shared list costs too much.
			l.pages = 1 + 2*objects/pageSize
		}
		lists = append(lists, l)
	}
	slices.SortFunc(lists, func(a, b listPlan) int { return strings.Compare(a.kind.String(), b.kind.String()) })
	return lists
}

// listing is a list to be made.
type listing struct {
	listPlan
	namespace string // "" for all
	owners    map[ownership.UID]*waiter
}

// list reads a list to its end. If the list expires meanwhile, it starts over.
func (b *Barrier) list(ctx context.Context, l listing) reading {
	var r reading
	for range listTries {
		r = b.readPages(ctx, l)
		if !apierrors.IsResourceExpired(r.err) && !apierrors.IsGone(r.err) {
			break
		}
	}
	return r
}

// readPages reads a list page by page, and keeps the objects that refer to an owner in the
// round. It ends early when the watch has shown everything that the rest of the list could
// show. For a kind with many objects, and so many events, that is soon the case.
func (b *Barrier) readPages(ctx context.Context, l listing) reading {
	r := reading{found: make(map[ownership.UID][]ownership.Object)}
	newest, _ := client.Revision(b.config.Reader.Reached(l.kind))
	for after, n := "", 1; ; n++ {
		limit := int64(pageSize)
		if l.probe && n == 1 {
			limit = 1
		}
		page, err := b.page(ctx, l, limit, after)
		if err != nil {
			r.err = fmt.Errorf("cannot be listed: %w", err)
			return r
		}
		newest = max(newest, r.keep(page.Objects, l.owners))
		// The newest state is at least as new as every earlier observation. Otherwise the numbers
		// mean nothing: resourceVersions are opaque, and not every server counts.
		listed, ok := client.Revision(page.ResourceVersion)
		reached, _ := client.Revision(b.config.Reader.Reached(l.kind))
		switch {
		case page.Continue == "", ok && listed >= newest && reached >= listed:
			return r
		case n == l.pages:
			r.partial = true
			return r
		}
		after = page.Continue
	}
}

// page reads one page, once the limits on concurrent lists allow it.
func (b *Barrier) page(ctx context.Context, l listing, limit int64, after string) (client.Page, error) {
	for _, slots := range []chan struct{}{b.slotsOf(l.kind), b.slots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return client.Page{}, ctx.Err()
		}
	}
	return b.config.Reader.List(ctx, l.kind, l.namespace, limit, after)
}

// slotsOf returns the semaphore for lists of one kind.
func (b *Barrier) slotsOf(kind ownership.Kind) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kindSlots[kind] == nil {
		b.kindSlots[kind] = make(chan struct{}, slotsPerKind)
	}
	return b.kindSlots[kind]
}

// keep keeps the objects that refer to an owner in the round. It returns the
// highest resourceVersion of all objects, as far as they are numbers.
func (r *reading) keep(objects []ownership.Object, owners map[ownership.UID]*waiter) (newest uint64) {
	for i := range objects {
		o := &objects[i]
		version, _ := client.Revision(o.ResourceVersion)
		newest = max(newest, version)
		for j := range o.Owners {
			if w := owners[o.Owners[j].UID]; w != nil && w.isDependent(o, &o.Owners[j]) {
				r.found[w.owner.UID] = append(r.found[w.owner.UID], *o)
			}
		}
	}
	return newest
}
