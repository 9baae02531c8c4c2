package aggregation

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/coppice-dev/coppice/internal/apiserver/discovery"
)

// routes are the backends by group version. Readers take a snapshot, which never changes.
type routes struct {
	mu       sync.Mutex // held by writers
	snapshot atomic.Pointer[map[schema.GroupVersion]*backend]
}

func (r *routes) all() map[schema.GroupVersion]*backend {
	if all := r.snapshot.Load(); all != nil {
		return *all
	}
	return nil
}

// set adds or replaces the backend of a group version, or removes it if it is nil.
func (r *routes) set(version schema.GroupVersion, b *backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := maps.Clone(r.all())
	if next == nil {
		next = map[schema.GroupVersion]*backend{}
	}
	if b == nil {
		delete(next, version)
	} else {
		next[version] = b
	}
	r.snapshot.Store(&next)
}

// listed returns the group versions for the unaggregated list of groups.
func (r *routes) listed() []discovery.Remote {
	var remotes []discovery.Remote
	for version, b := range r.all() {
		remotes = append(remotes, discovery.Remote{GroupVersion: version, Priority: b.spec.VersionPriority})
	}
	slices.SortFunc(remotes, func(a, b discovery.Remote) int { return strings.Compare(a.String(), b.String()) })
	return remotes
}

// Filter is an HTTP filter that sends the requests for aggregated group versions to their servers, and
// answers requests that concern several servers. It comes after authentication and authorization.
func (a *Aggregator) Filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all := a.routes.all()
		if len(all) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if path, ok := strings.CutPrefix(r.URL.Path, "/openapi/v3"); ok {
			a.serveOpenAPI(w, r, next, path)
			return
		}
		path, ok := strings.CutPrefix(r.URL.Path, "/apis/")
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		group, rest, _ := strings.Cut(path, "/")
		if rest == "" {
			a.serveGroup(w, r, next, group)
			return
		}
		version, _, _ := strings.Cut(rest, "/")
		if b := all[schema.GroupVersion{Group: group, Version: version}]; b != nil {
			a.proxy(w, r, b)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serveGroup serves /apis/GROUP if other servers serve versions of the group.
func (a *Aggregator) serveGroup(w http.ResponseWriter, r *http.Request, next http.Handler, name string) {
	group, ok := a.config.Groups().Aggregated(name)
	if !ok || r.Method != http.MethodGet {
		next.ServeHTTP(w, r)
		return
	}
	responsewriters.WriteObjectNegotiated(a.config.Codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, r, http.StatusOK, &group, false)
}
