package collector

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// How the barrier lists: which lists a round makes, and how one is read.

const (
	// pageSize is how many objects are read at once.
	pageSize = 500
	// objectsPerRequest is how many objects more in an answer cost as much as one
	// more request. It decides between one list of a kind across all namespaces
	// and one in each namespace.
	objectsPerRequest = 50
	// listTries bounds how often a list is begun anew that grew too old on the way.
	listTries = 3
	// slotsPerKind bounds the lists of one kind that are under way, so that a kind
	// that does not answer leaves room for others.
	slotsPerKind = 4
)

// listPlan says how a list is read.
type listPlan struct {
	kind ownership.Kind
	// probe: the first page has one object. What counts is its resourceVersion: when
	// the watch has shown as much, there is nothing to be learned from the rest.
	probe bool
	pages int // after so many it is given up; 0: never
}

// sharedLists plans the lists that are made once, because that costs less than
// one in each namespace: a kind may have no objects at all, which is the common
// case, or few; or so many that its watch gets along by itself. count tells how
// many objects of a kind are known.
func sharedLists(turns []*turn, count func(ownership.Kind) int) []listPlan {
	demand := make(map[ownership.Kind]int)
	for _, t := range turns {
		if t.namespace == "" {
			continue // reads across namespaces anyway, and to the end
		}
		for _, kind := range t.kinds {
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
			// What was counted may be wrong, but not by much, or it is not worth the trouble.
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
	interest  map[ownership.UID]*wait
}

// list reads a list to its end. One that grows too old on the way is begun anew.
func (b *barrier) list(ctx context.Context, l listing) reading {
	var r reading
	for range listTries {
		r = b.readPages(ctx, l)
		if !apierrors.IsResourceExpired(r.err) && !apierrors.IsGone(r.err) {
			break
		}
	}
	return r
}

// readPages reads a list page by page, and keeps what refers to an owner in the
// round. It ends early when the watch has shown all that the rest of the list
// could: a kind with many objects has many events, so that this comes soon.
func (b *barrier) readPages(ctx context.Context, l listing) reading {
	r := reading{found: make(map[ownership.UID][]ownership.Object)}
	newest, _ := revisionOf(b.api.Reached(l.kind))
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
		newest = max(newest, r.take(page.Objects, l.interest))
		// The newest state is at least as new as all that was seen before. If it is
		// not, the numbers say nothing: not every server counts as it should.
		listed, ok := revisionOf(page.ResourceVersion)
		shown, _ := revisionOf(b.api.Reached(l.kind))
		switch {
		case page.Continue == "", ok && listed >= newest && shown >= listed:
			return r
		case n == l.pages:
			r.partial = true
			return r
		}
		after = page.Continue
	}
}

// page reads one page, when there is room for it.
func (b *barrier) page(ctx context.Context, l listing, limit int64, after string) (Page, error) {
	for _, slots := range []chan struct{}{b.slotsOf(l.kind), b.slots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return Page{}, ctx.Err()
		}
	}
	return b.api.List(ctx, l.kind, l.namespace, limit, after)
}

// take keeps the objects that refer to an owner in the round. It returns the
// highest resourceVersion of all objects, as far as they are numbers.
func (r *reading) take(objects []ownership.Object, interest map[ownership.UID]*wait) (newest uint64) {
	for i := range objects {
		o := &objects[i]
		version, _ := revisionOf(o.ResourceVersion)
		newest = max(newest, version)
		for j := range o.Owners {
			if w := interest[o.Owners[j].UID]; w != nil && w.isDependent(o, &o.Owners[j]) {
				r.found[w.owner.UID] = append(r.found[w.owner.UID], *o)
			}
		}
	}
	return newest
}

// revisionOf reads a resourceVersion as a number, where it is one.
func revisionOf(resourceVersion string) (uint64, bool) {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	return n, err == nil && n > 0
}
