// Package discovery lists the served groups and kinds: to clients at /apis, and to admission.
package discovery

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
)

// Remote is a group version that another server serves.
type Remote struct {
	schema.GroupVersion
	// Priority is the priority of the version within its group.
	Priority int32
}

// Install serves /apis: aggregated discovery, which k8s.io/apiserver, apiextensions-apiserver and package
// aggregation fill themselves, and the unaggregated list of groups, to which it adds the groups of
// CustomResourceDefinitions and of other servers (remotes). It calls changed after each update of the list.
//
// apiextensions-apiserver leaves /apis to kube-aggregator in front of it, which does not exist here.
func Install(ctx context.Context, server *genericapiserver.GenericAPIServer, definitions cache.SharedIndexInformer, remotes func() []Remote, changed func()) (*Groups, error) {
	server.Handler.GoRestfulContainer.Add(discoveryendpoint.WrapAggregatedDiscoveryToHandler(
		server.DiscoveryGroupManager, server.AggregatedDiscoveryGroupManager, nil,
	).GenerateWebService("/apis", metav1.APIGroupList{}))

	builtin, err := server.DiscoveryGroupManager.Groups(ctx, &http.Request{})
	if err != nil {
		return nil, fmt.Errorf("list the built-in groups: %w", err)
	}
	groups := &Groups{
		definitions: definitions.GetStore(), remotes: remotes, changed: changed, manager: server.DiscoveryGroupManager,
		builtin: map[string]metav1.APIGroup{}, listed: map[string]metav1.APIGroup{},
	}
	for _, group := range builtin {
		group.ServerAddressByClientCIDRs = nil // depends on the client
		groups.builtin[group.Name] = group
	}
	_, err = definitions.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { groups.Refresh() },
		UpdateFunc: func(any, any) { groups.Refresh() },
		DeleteFunc: func(any) { groups.Refresh() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch CustomResourceDefinitions for discovery: %w", err)
	}
	return groups, nil
}

// groupManager is the used part of discovery.GroupManager of k8s.io/apiserver.
type groupManager interface {
	AddGroup(metav1.APIGroup)
	RemoveGroup(string)
}

// Groups keeps the unaggregated list of groups in sync with the definitions and the other servers.
type Groups struct {
	definitions cache.Store
	remotes     func() []Remote
	changed     func()
	manager     groupManager
	builtin     map[string]metav1.APIGroup

	mu     sync.Mutex
	listed map[string]metav1.APIGroup // guarded by mu: the added groups
	remote map[string]bool            // guarded by mu: groups with versions of other servers
}

// Refresh updates the list.
func (g *Groups) Refresh() {
	g.refresh()
	g.changed()
}

func (g *Groups) refresh() {
	g.mu.Lock()
	defer g.mu.Unlock()
	versions := map[string]map[string]int32{} // priorities by group and version
	add := func(group, version string, priority int32) {
		if versions[group] == nil {
			versions[group] = map[string]int32{}
		}
		versions[group][version] = priority
	}
	for _, obj := range g.definitions.List() {
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Served {
				add(crd.Spec.Group, v.Name, CustomPriority)
			}
		}
	}
	g.remote = map[string]bool{}
	for _, r := range g.remotes() {
		add(r.Group, r.Version, r.Priority)
		g.remote[r.Group] = true
	}
	for name, served := range versions {
		group := apiGroup(name, g.builtin[name], served)
		g.manager.AddGroup(group)
		g.listed[name] = group
	}
	for name := range g.listed {
		if len(versions[name]) > 0 {
			continue
		}
		if group, ok := g.builtin[name]; ok {
			g.manager.AddGroup(group)
		} else {
			g.manager.RemoveGroup(name)
		}
		delete(g.listed, name)
	}
}

// Aggregated returns a group; false if no other server serves a version of it.
func (g *Groups) Aggregated(name string) (metav1.APIGroup, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := g.listed[name]
	group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return group, g.remote[name]
}

// CustomPriority is the priority of the versions of CustomResourceDefinitions within their group.
const CustomPriority = 100

// apiGroup returns a group with its versions by priority, the first one preferred. Built-in versions come
// first.
func apiGroup(name string, builtin metav1.APIGroup, priorities map[string]int32) metav1.APIGroup {
	group := metav1.APIGroup{Name: name, Versions: slices.Clone(builtin.Versions)}
	for _, v := range builtin.Versions {
		delete(priorities, v.Version)
	}
	for _, v := range slices.SortedFunc(maps.Keys(priorities), func(a, b string) int {
		if priorities[a] != priorities[b] {
			return cmp.Compare(priorities[b], priorities[a])
		}
		return -apimachineryversion.CompareKubeAwareVersionStrings(a, b)
	}) {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}
