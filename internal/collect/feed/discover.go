package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// ErrUnchanged is the error of a Discovery whose answer is the last one that it returned to this caller.
var ErrUnchanged = errors.New("discovery has not changed")

// Discovery returns which groups and resources a server has. With an error the answer may be
// partial. client-go's discovery client is one. Instead of an answer with resources that is the same as the
// last one, it may return ErrUnchanged. Run calls it from one goroutine.
type Discovery interface {
	ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// resource describes how the objects of one kind are served.
type resource struct {
	kind       ownership.Kind
	gvr        schema.GroupVersionResource
	versions   []string // all versions that serve this kind under this resource
	shortNames []string
	namespaced bool
	watched    bool // can be deleted, listed and watched, and is not ignored: has a monitor
}

func (r resource) scope() ownership.Scope {
	if r.namespaced {
		return ownership.Namespaced
	}
	return ownership.Cluster
}

// catalog is a result of discovery. It has one resource for each kind, so the list of one monitor
// is the complete list of the kind's objects.
type catalog struct {
	resources map[ownership.Kind]resource
	versions  map[schema.GroupVersion]bool // group versions that were read
	failed    map[schema.GroupVersion]bool // group versions that exist but could not be read
}

// incomplete reports whether a version of the group could not be read.
func (c catalog) incomplete(group string) bool {
	for gv := range c.failed {
		if gv.Group == group {
			return true
		}
	}
	return false
}

// discover reads the served kinds. Groups that fail are named in the result; after an error no
// kind is known.
func discover(ctx context.Context, d Discovery, ignore map[schema.GroupResource]bool) (catalog, error) {
	groups, lists, err := d.ServerGroupsAndResourcesWithContext(ctx)
	if errors.Is(err, ErrUnchanged) {
		return catalog{}, ErrUnchanged
	}
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return catalog{}, fmt.Errorf("discover resources: %w", err)
	}
	if len(lists) == 0 {
		// Every server has resources; an empty answer would end every monitor.
		return catalog{}, errors.Join(errors.New("discover resources: the server returned none"), err)
	}

	c := catalog{
		resources: make(map[ownership.Kind]resource),
		versions:  make(map[schema.GroupVersion]bool),
		failed:    make(map[schema.GroupVersion]bool),
	}
	for gv := range failed {
		c.failed[gv] = true
	}
	inVersion := make(map[schema.GroupVersion][]metav1.APIResource)
	for _, list := range lists {
		if gv, err := schema.ParseGroupVersion(list.GroupVersion); err == nil && !c.failed[gv] {
			inVersion[gv] = list.APIResources
			c.versions[gv] = true
		}
	}
	for _, group := range groups {
		for _, gv := range byPreference(group) {
			c.add(gv, inVersion[gv], ignore)
		}
	}
	c.watchOnce()
	return c, nil
}

// errNoCore means that the kinds of the core group are missing. client-go takes any 404 for that, also one of a load balancer.
var errNoCore = errors.New("discover resources: the server returned none of the core group, which it had before")

// lacksCoreOf reports whether all kinds of the core group are missing, which an earlier catalog had. No server stops serving
// them.
func (c catalog) lacksCoreOf(before catalog) bool {
	return before.hasCore() && !c.hasCore() && !c.incomplete("")
}

func (c catalog) hasCore() bool {
	for kind := range c.resources {
		if kind.Group == "" {
			return true
		}
	}
	return false
}

// clone returns a copy whose resources may be completed.
func (c catalog) clone() catalog {
	c.resources = maps.Clone(c.resources)
	return c
}

// watchOnce leaves objects that are served under two names to one monitor. The other name stays
// known, since owner references may use it.
func (c catalog) watchOnce() {
	served := make(map[schema.GroupResource]bool)
	for _, r := range c.resources {
		served[r.gvr.GroupResource()] = r.watched
	}
	for kind, r := range c.resources {
		if same, ok := builtin.CanonicalOf(r.gvr.GroupResource()); ok && served[same] {
			r.watched = false
			c.resources[kind] = r
		}
	}
}

// byPreference returns the versions of a group, the preferred one first.
func byPreference(group *metav1.APIGroup) []schema.GroupVersion {
	versions := make([]schema.GroupVersion, 0, len(group.Versions))
	for _, v := range group.Versions {
		versions = append(versions, schema.GroupVersion{Group: group.Name, Version: v.Version})
	}
	slices.SortStableFunc(versions, func(a, b schema.GroupVersion) int {
		return cmp.Compare(preference(group, a), preference(group, b))
	})
	return versions
}

func preference(group *metav1.APIGroup, gv schema.GroupVersion) int {
	if gv.Version == group.PreferredVersion.Version {
		return 0
	}
	return 1
}

// add adds the resources of one version. An earlier, more preferred version of a kind takes
// precedence, unless only the later one can be watched.
func (c catalog) add(gv schema.GroupVersion, resources []metav1.APIResource, ignore map[schema.GroupResource]bool) {
	ordered := slices.Clone(resources)
	slices.SortFunc(ordered, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	for _, r := range ordered {
		if strings.Contains(r.Name, "/") || r.Kind == "" {
			continue // a subresource
		}
		// The group of the path, not the group in the answer: owner references are looked up by path.
		found := resource{
			kind:       ownership.Kind{Group: gv.Group, Kind: r.Kind},
			gvr:        gv.WithResource(r.Name),
			versions:   []string{gv.Version},
			shortNames: r.ShortNames,
			namespaced: r.Namespaced,
			watched: slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") &&
				slices.Contains(r.Verbs, "watch") && !ignore[schema.GroupResource{Group: gv.Group, Resource: r.Name}],
		}
		if !found.watched && !slices.Contains(r.Verbs, "get") {
			continue // cannot be an owner or a dependent
		}
		earlier, ok := c.resources[found.kind]
		switch {
		case !ok, found.watched && !earlier.watched:
			c.resources[found.kind] = found
		case earlier.equivalent(found):
			earlier.versions = append(earlier.versions, gv.Version)
			c.resources[found.kind] = earlier
		}
	}
}

// equivalent reports whether both are versions of one resource.
func (r resource) equivalent(other resource) bool {
	return r.gvr.Resource == other.gvr.Resource && r.namespaced == other.namespaced && r.watched == other.watched
}

// after completes a catalog with entries of the previous one: kinds of groups that failed stay as
// they were, and a version stays in use for as long as it is served, because a change of version
// would only cost another list.
func (c catalog) after(before catalog) catalog {
	for kind, old := range before.resources {
		now, ok := c.resources[kind]
		switch {
		case c.incomplete(kind.Group) && (!ok || !now.serves(old)):
			c.resources[kind] = old
		case ok && now.serves(old):
			now.gvr = old.gvr
			c.resources[kind] = now
		}
	}
	return c
}

// serves reports whether the version that old uses still serves the same objects.
func (r resource) serves(old resource) bool {
	return r.equivalent(old) && slices.Contains(r.versions, old.gvr.Version)
}

// with adds resources that discovery did not return, if it returned no other for their kind.
func (c catalog) with(extra []resource) catalog {
	for _, r := range extra {
		if _, ok := c.resources[r.kind]; !ok {
			c.resources[r.kind] = r
		}
	}
	return c
}

func (c catalog) kinds() []ownership.Kind { return sortedKinds(c.resources) }
