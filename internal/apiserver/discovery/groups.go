// Package discovery lists what the server serves: to clients at /apis, and to admission.
package discovery

import (
	"fmt"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
)

// Install serves /apis: aggregated discovery, which k8s.io/apiserver and
// apiextensions-apiserver fill themselves, and the unaggregated list of groups, to which the
// groups of CustomResourceDefinitions are added here. changed is called when they have changed.
//
// The server of apiextensions-apiserver leaves /apis to kube-aggregator in front of it; there
// is none here.
func Install(server *genericapiserver.GenericAPIServer, definitions cache.SharedIndexInformer, changed func()) error {
	server.Handler.GoRestfulContainer.Add(discoveryendpoint.WrapAggregatedDiscoveryToHandler(
		server.DiscoveryGroupManager, server.AggregatedDiscoveryGroupManager, nil,
	).GenerateWebService("/apis", metav1.APIGroupList{}))

	groups := &customGroups{store: definitions.GetStore(), manager: server.DiscoveryGroupManager, listed: map[string]bool{}}
	refresh := func() {
		groups.refresh()
		changed()
	}
	_, err := definitions.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { refresh() },
		UpdateFunc: func(any, any) { refresh() },
		DeleteFunc: func(any) { refresh() },
	})
	if err != nil {
		return fmt.Errorf("watch CustomResourceDefinitions for discovery: %w", err)
	}
	return nil
}

// groupManager is the part of discovery.GroupManager of k8s.io/apiserver that is used here.
type groupManager interface {
	AddGroup(metav1.APIGroup)
	RemoveGroup(string)
}

// customGroups keeps the unaggregated list of groups in sync with the definitions.
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

// apiGroup returns a group with its versions by priority, the first one preferred.
func apiGroup(name string, versions []string) metav1.APIGroup {
	slices.SortFunc(versions, func(a, b string) int { return -apimachineryversion.CompareKubeAwareVersionStrings(a, b) })
	group := metav1.APIGroup{Name: name}
	for _, v := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}
