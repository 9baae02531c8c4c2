package feed

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Watched lists what a feed watches, or would watch if the server let it: the kinds whose objects
// can be collected. The barrier has to read all of them in order not to miss a dependent (R15).
// The slices are shared and must not be changed.
type Watched struct {
	Namespaced []ownership.Kind // sorted by name
	Cluster    []ownership.Kind // sorted by name
	// Unknown are group versions whose resources were never known, because their discovery has failed from
	// the beginning. If the discovery of a group version fails later, its known resources stay in use.
	Unknown []string
}

// watched returns the kinds of a catalog that are watched.
func (c catalog) watched(unknown []string) Watched {
	w := Watched{Unknown: unknown}
	for _, kind := range c.kinds() {
		switch r := c.resources[kind]; {
		case !r.watched:
		case r.namespaced:
			w.Namespaced = append(w.Namespaced, kind)
		default:
			w.Cluster = append(w.Cluster, kind)
		}
	}
	return w
}

// readVersions records the group versions that could be discovered so far.
type readVersions map[schema.GroupVersion]bool

// unknown records a catalog, and returns the group versions that failed and were never read
// before.
func (r readVersions) unknown(c catalog) []string {
	for gv := range c.versions {
		r[gv] = true
	}
	var unknown []string
	for gv := range c.failed {
		if !r[gv] {
			unknown = append(unknown, gv.String())
		}
	}
	// A group version that is no longer served may have other resources when it comes back.
	maps.DeleteFunc(r, func(gv schema.GroupVersion, _ bool) bool { return !c.versions[gv] && !c.failed[gv] })
	slices.Sort(unknown)
	return unknown
}

// Survey reads discovery and returns the kinds that are watched from now on. That includes everything that
// discovery names at the time of the call. It needs Run; without, it waits until ctx ends. It returns an
// error if discovery has failed.
func (f *Feed) Survey(ctx context.Context) (Watched, error) {
	if err := ctx.Err(); err != nil {
		return Watched{}, err // a select may choose the other case
	}
	answer := make(chan error, 1)
	select {
	case f.surveys <- answer:
	case <-ctx.Done():
		return Watched{}, ctx.Err()
	}
	select {
	case err := <-answer:
		if err != nil {
			return Watched{}, err
		}
	case <-ctx.Done():
		return Watched{}, ctx.Err()
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.watched, nil
}

// Unanswered returns the group versions that failed in the last discovery, sorted.
func (f *Feed) Unanswered() []schema.GroupVersion {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(f.served.failed), func(a, b schema.GroupVersion) int {
		return strings.Compare(a.String(), b.String())
	})
}

// Reached returns the resourceVersion that the watch of a kind has reached: all events up to it were
// passed to the sink. It is empty before the first list.
func (f *Feed) Reached(kind ownership.Kind) string {
	f.mu.RLock()
	m := f.monitors[kind]
	f.mu.RUnlock()
	if m == nil {
		return ""
	}
	return m.reached()
}
