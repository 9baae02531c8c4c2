package reader

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// resources are the resources that a server serves.
type resources struct {
	all      []*inventory.Resource
	listable []*inventory.Resource
}

// discover lists the served resources. A group that does not answer is unread.
func discover(ctx context.Context, client discovery.AggregatedDiscoveryInterfaceWithContext) (resources, []inventory.Unread, error) {
	d := &askedOnce{AggregatedDiscoveryInterfaceWithContext: client}
	lists, err := discovery.ServerPreferredResourcesWithContext(ctx, d)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return resources{}, nil, fmt.Errorf("discover the resources of the server: %w", err)
	}
	var unread []inventory.Unread
	for gv, why := range failed {
		unread = append(unread, inventory.Unread{Resource: gv.WithResource(""), Why: why.Error()})
	}
	var found resources
	served := make(map[schema.GroupResource]bool)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return resources{}, nil, fmt.Errorf("discover the resources of the server: %w", err)
		}
		for i := range list.APIResources {
			r := resourceOf(gv, &list.APIResources[i])
			found.all = append(found.all, r)
			served[r.GroupResource()] = true
			verbs := list.APIResources[i].Verbs
			switch {
			case slices.Contains(verbs, "list") && slices.Contains(verbs, "get"):
				found.listable = append(found.listable, r)
			case isKept(verbs):
				unread = append(unread, inventory.Unread{
					Resource: r.GroupVersionResource, Why: "it cannot be listed: its verbs are " + strings.Join(verbs, ", "),
				})
			}
		}
	}
	found.listable = slices.DeleteFunc(found.listable, func(r *inventory.Resource) bool {
		same, other := builtin.CanonicalOf(r.GroupResource())
		isEvents := r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
		return other && served[same] || isEvents // the collector ignores Events (R8)
	})
	if err := addVersions(ctx, d, found.all); err != nil {
		return resources{}, nil, err
	}
	slices.SortFunc(found.all, (*inventory.Resource).Compare)
	slices.SortFunc(found.listable, (*inventory.Resource).Compare)
	return found, unread, nil
}

// askedOnce is a discovery client that asks the server once and answers several calls from the result.
type askedOnce struct {
	discovery.AggregatedDiscoveryInterfaceWithContext

	groups    *metav1.APIGroupList
	resources map[schema.GroupVersion]*metav1.APIResourceList
	failed    map[schema.GroupVersion]error
}

// GroupsAndMaybeResourcesWithContext implements discovery.AggregatedDiscoveryInterfaceWithContext. It repeats the
// request if the server does not return the resources together with the groups.
func (a *askedOnce) GroupsAndMaybeResourcesWithContext(ctx context.Context) (
	groups *metav1.APIGroupList, resources map[schema.GroupVersion]*metav1.APIResourceList, failed map[schema.GroupVersion]error, err error,
) {
	if a.resources == nil {
		a.groups, a.resources, a.failed, err = a.AggregatedDiscoveryInterfaceWithContext.GroupsAndMaybeResourcesWithContext(ctx)
	}
	return a.groups, a.resources, a.failed, err
}

// isKept reports whether a resource that cannot be listed may have stored objects. Resources that can only be
// created, such as reviews, have none.
func isKept(verbs []string) bool {
	return slices.ContainsFunc(verbs, func(verb string) bool { return slices.Contains([]string{"get", "list", "watch", "delete"}, verb) })
}

// addVersions sets all versions in which resources are served. The versions of a group stay unknown if one of
// them does not answer.
func addVersions(ctx context.Context, d discovery.DiscoveryInterfaceWithContext, all []*inventory.Resource) error {
	_, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, d)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return fmt.Errorf("discover the resources of the server: %w", err)
	}
	unknown := make(map[string]bool)
	for gv := range failed {
		unknown[gv.Group] = true
	}
	versions := make(map[schema.GroupResource][]string)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return fmt.Errorf("discover the resources of the server: %w", err)
		}
		for i := range list.APIResources {
			gr := gv.WithResource(list.APIResources[i].Name).GroupResource()
			versions[gr] = append(versions[gr], gv.Version)
		}
	}
	for _, r := range all {
		if !unknown[r.Group] {
			r.Versions = versions[r.GroupResource()]
			slices.Sort(r.Versions)
		}
	}
	return nil
}

func resourceOf(gv schema.GroupVersion, r *metav1.APIResource) *inventory.Resource {
	return &inventory.Resource{
		GroupVersionResource: gv.WithResource(r.Name),
		Kind:                 r.Kind,
		Namespaced:           r.Namespaced,
		Singular:             r.SingularName,
		ShortNames:           r.ShortNames,
		Categories:           r.Categories,
		Deletable:            slices.Contains(r.Verbs, "delete"),
	}
}
