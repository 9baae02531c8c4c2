package apiserver

import (
	"fmt"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/client-go/tools/cache"
)

// installDiscovery serves /apis: aggregated discovery, where the library puts
// built-in and custom resources itself, and the older list of groups, into which
// the groups of CustomResourceDefinitions are put here.
func (s *Server) installDiscovery(crds *apiextensions.CustomResourceDefinitions) error {
	// The library's server of custom resources leaves /apis to an aggregator in
	// front of it. There is none.
	s.generic.Handler.GoRestfulContainer.Add(discoveryendpoint.WrapAggregatedDiscoveryToHandler(
		s.generic.DiscoveryGroupManager, s.generic.AggregatedDiscoveryGroupManager, nil,
	).GenerateWebService("/apis", metav1.APIGroupList{}))

	informer := crds.Informers.Apiextensions().V1().CustomResourceDefinitions().Informer()
	groups := &customGroups{store: informer.GetStore(), manager: s.generic.DiscoveryGroupManager, listed: map[string]bool{}}
	refresh := func() {
		groups.refresh()
		s.doors.mapper.Reset()
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { refresh() },
		UpdateFunc: func(any, any) { refresh() },
		DeleteFunc: func(any) { refresh() },
	})
	if err != nil {
		return fmt.Errorf("watch CustomResourceDefinitions for discovery: %w", err)
	}
	return nil
}

// groupManager is the part of the library's list of groups that is needed here.
type groupManager interface {
	AddGroup(metav1.APIGroup)
	RemoveGroup(string)
}

// customGroups keeps the list of groups equal to what the definitions serve.
type customGroups struct {
	store   cache.Store
	manager groupManager

	mu     sync.Mutex
	listed map[string]bool // guarded by mu: the groups that were added
}

func (g *customGroups) refresh() {
	g.mu.Lock()
	defer g.mu.Unlock()
	versions := map[string][]string{}
	for _, obj := range g.store.List() {
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Served && !slices.Contains(versions[crd.Spec.Group], v.Name) {
				versions[crd.Spec.Group] = append(versions[crd.Spec.Group], v.Name)
			}
		}
	}
	for name, served := range versions {
		g.manager.AddGroup(apiGroup(name, served))
		g.listed[name] = true
	}
	for name := range g.listed {
		if len(versions[name]) == 0 {
			g.manager.RemoveGroup(name)
			delete(g.listed, name)
		}
	}
}

// apiGroup lists versions by maturity and then by number, the first one preferred.
func apiGroup(name string, versions []string) metav1.APIGroup {
	slices.SortFunc(versions, func(a, b string) int { return -apimachineryversion.CompareKubeAwareVersionStrings(a, b) })
	group := metav1.APIGroup{Name: name}
	for _, v := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}
