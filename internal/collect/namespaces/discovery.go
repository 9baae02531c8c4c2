package namespaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
)

// Catalogue returns the resource types that may have objects in a namespace. With an error of type
// *Incomplete the returned types are valid; with any other error none are known.
type Catalogue interface {
	Resources(ctx context.Context) ([]Resource, error)
}

// definitions returns the resource of CustomResourceDefinitions.
func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// unservedFor is how long discovery may lag behind a CustomResourceDefinition. A definition that is
// not served after that is considered invalid.
const unservedFor = 30 * time.Second

// Discover returns a catalogue that uses the API server's discovery, in one request if the server
// aggregates it. It takes the preferred version of each type. Discovery lags behind the
// CustomResourceDefinitions, and a type may have objects before discovery includes it, so the
// definitions are listed too if the server has them and the identity may read them.
//
// For a group whose discovery fails, because its server is down, the types that it had before are
// returned. So a group that stores nothing in namespaces, such as metrics, does not block them.
func Discover(client discovery.DiscoveryInterfaceWithContext, objects metadata.Interface, c clock.PassiveClock) Catalogue {
	return &discoverer{client: client, objects: objects, clock: c, known: map[string][]Resource{}}
}

type discoverer struct {
	client  discovery.DiscoveryInterfaceWithContext
	objects metadata.Interface
	clock   clock.PassiveClock

	mu    sync.Mutex
	known map[string][]Resource // guarded by mu: by group, when the discovery of all its versions last succeeded
}

// Resources implements Catalogue.
func (d *discoverer) Resources(ctx context.Context) ([]Resource, error) {
	lists, err := discovery.ServerPreferredResourcesWithContext(ctx, d.client)
	var incomplete Incomplete
	var failed *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &failed):
		incomplete.Groups = failed.Groups
	case err != nil:
		return nil, fmt.Errorf("discover resource types: %w", err)
	}
	found := map[string][]Resource{} // by group
	served := map[schema.GroupResource]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			incomplete.Unparsed = append(incomplete.Unparsed, err)
			continue
		}
		if found[version.Group] == nil {
			found[version.Group] = []Resource{} // also for a group without deletable types
		}
		for _, r := range list.APIResources {
			served[version.WithResource(r.Name).GroupResource()] = true
			if deletable(r) {
				found[version.Group] = append(found[version.Group], Resource{
					GroupVersionResource: version.WithResource(r.Name), Kind: r.Kind, DeleteCollection: slices.Contains(r.Verbs, "deletecollection"),
				})
			}
		}
	}
	if d.lacksCore(served) && !incomplete.isMissing("") {
		return nil, errNoCore
	}
	resources := slices.Concat(slices.Collect(maps.Values(found))...)
	resources = append(resources, d.remember(found, &incomplete, served)...)
	resources = slices.DeleteFunc(resources, func(r Resource) bool {
		same, ok := builtin.CanonicalOf(r.GroupResource())
		return ok && served[same]
	})
	incomplete.Unserved = d.unserved(ctx, served)
	slices.SortFunc(resources, func(a, b Resource) int { return cmp.Compare(a.String(), b.String()) })
	if incomplete.failures() > 0 || len(incomplete.Unparsed) > 0 {
		return resources, &incomplete
	}
	return resources, nil
}

// errNoCore means that the types of the core group are missing. client-go takes any 404 for that, also one of a load balancer,
// and a namespace would seem to be empty.
var errNoCore = errors.New("discover resource types: the server returned none of the core group, which it had before")

// lacksCore reports whether all resources of the core group are missing, which an earlier discovery had. No server stops
// serving them.
func (d *discoverer) lacksCore(served map[schema.GroupResource]bool) bool {
	for resource := range served {
		if resource.Group == "" {
			return false
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.known[""]) > 0
}

// remember stores the types of the groups whose discovery succeeded. For the other groups it notes
// the remembered ones, and returns their earlier types that are not served now.
func (d *discoverer) remember(found map[string][]Resource, incomplete *Incomplete, served map[schema.GroupResource]bool) []Resource {
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := map[string]bool{}
	var recalled []Resource
	for version := range incomplete.Groups {
		resources, ok := d.known[version.Group]
		if ok {
			incomplete.recall(version)
		}
		if failed[version.Group] {
			continue
		}
		failed[version.Group] = true
		for _, r := range resources {
			if !served[r.GroupResource()] {
				recalled = append(recalled, r)
			}
		}
	}
	for group, resources := range found {
		if !failed[group] {
			d.known[group] = resources
		}
	}
	return recalled
}

// unserved returns an error for each custom resource that was defined a moment ago and is not in
// discovery. The custom resources of a terminating definition are deleted with it.
func (d *discoverer) unserved(ctx context.Context, served map[schema.GroupResource]bool) []error {
	var sent delivery
	list, err := d.objects.Resource(definitions()).List(context.WithValue(ctx, deliveryKey{}, &sent), metav1.ListOptions{})
	switch {
	case !sent.isUnanswered(err) && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
		return nil
	case err != nil:
		return []error{fmt.Errorf("list %s: %w", definitions().GroupResource(), err)}
	}
	var unserved []error
	for _, definition := range list.Items {
		// Validation ensures that a definition has the name of its resource.
		if served[schema.ParseGroupResource(definition.Name)] || definition.DeletionTimestamp != nil {
			continue
		}
		if d.clock.Since(definition.CreationTimestamp.Time) < unservedFor {
			unserved = append(unserved, fmt.Errorf("%s: defined, but not served yet", definition.Name))
		}
	}
	return unserved
}

// deletable reports whether objects of a resource have to be deleted. Cluster-scoped types, and
// types that cannot be listed or deleted (access reviews, metrics), store nothing in the namespace.
func deletable(r metav1.APIResource) bool {
	return r.Namespaced && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete")
}

// sharedCatalogue spares the server a discovery per namespace and sync: concurrent calls
// share one.
type sharedCatalogue struct {
	source Catalogue
	clock  clock.PassiveClock
	maxAge time.Duration // of the results of recent

	started atomic.Int64  // number of discoveries begun
	turn    chan struct{} // held by the goroutine that discovers or reads the fields below
	ended   int64         // number of the last discovery that ended; guarded by turn
	at      time.Time     // when it began; guarded by turn

	resources []Resource // guarded by turn
	err       error      // guarded by turn
}

func shareCatalogue(source Catalogue, c clock.PassiveClock, maxAge time.Duration) *sharedCatalogue {
	return &sharedCatalogue{source: source, clock: c, maxAge: maxAge, turn: make(chan struct{}, 1)}
}

// fresh returns the result of a discovery that began after the call. A namespace that has just
// begun to terminate needs that: the type of one of its objects may be a moment old, and a
// discovery that is under way may have missed it. Calls that arrive during one share the next.
func (c *sharedCatalogue) fresh(ctx context.Context) ([]Resource, error) {
	need := c.started.Load() + 1
	return c.take(ctx, func() bool { return c.ended >= need })
}

// recent returns the result of a complete discovery that is not older than maxAge.
func (c *sharedCatalogue) recent(ctx context.Context) ([]Resource, error) {
	return c.take(ctx, func() bool { return c.ended > 0 && c.err == nil && c.clock.Since(c.at) < c.maxAge })
}

// take waits for its turn, and discovers unless the last result is sufficient.
func (c *sharedCatalogue) take(ctx context.Context, sufficient func() bool) ([]Resource, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.turn }()
	if !sufficient() {
		c.at = c.clock.Now()
		number := c.started.Add(1)
		c.resources, c.err = c.source.Resources(ctx)
		c.ended = number
	}
	return c.resources, c.err
}
