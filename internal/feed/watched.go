package feed

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// Watched is what a feed watches, or would watch if the server let it: the kinds
// whose objects can be collected. Whoever must not overlook a dependent has to
// read all of them (R15). The slices are shared: read only.
type Watched struct {
	Namespaced []ownership.Kind // sorted by name
	Cluster    []ownership.Kind // sorted by name
	// Unknown are group versions of which it was never known what they serve,
	// because their discovery has failed from the beginning. What was known of
	// one that fails later stays in use.
	Unknown []string
}

// watched sorts out what a catalog has that is watched.
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

// readings keeps the account of which group versions could be discovered so far.
type readings map[schema.GroupVersion]bool

// unknown takes in a catalog, and returns the group versions that failed and were
// never read before.
func (r readings) unknown(c catalog) []string {
	for gv := range c.versions {
		r[gv] = true
	}
	var unknown []string
	for gv := range c.failed {
		if !r[gv] {
			unknown = append(unknown, gv.String())
		}
	}
	// What is not served any more may serve something else when it comes back.
	maps.DeleteFunc(r, func(gv schema.GroupVersion, _ bool) bool { return !c.versions[gv] && !c.failed[gv] })
	slices.Sort(unknown)
	return unknown
}

// Survey asks discovery and tells what is watched from now on. It has all that
// discovery names at the time of the call, and needs Run: it ends with ctx if Run
// does not run. An error says that discovery has failed.
func (f *Feed) Survey(ctx context.Context) (Watched, error) {
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

// Reached tells which resourceVersion the watch of a kind has come to: all up to
// there was given to the sink. Empty when there is no list yet.
func (f *Feed) Reached(kind ownership.Kind) string {
	f.mu.RLock()
	m := f.monitors[kind]
	f.mu.RUnlock()
	if m == nil {
		return ""
	}
	return m.reached()
}
