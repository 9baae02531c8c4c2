package registry

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// Group is one API group in its current version.
type Group struct {
	GroupVersion schema.GroupVersion
	// AddToScheme registers the types of the version.
	AddToScheme func(*runtime.Scheme) error
	// Resources are the rows of the group, in the order in which discovery lists them. A group
	// that stores nothing has none.
	Resources []Resource
}

// APIGroups returns the API groups of all resources as the server installs them, in the
// order of the rows.
func APIGroups(resources []Resource, schemes Schemes, c Config) ([]*genericapiserver.APIGroupInfo, error) {
	groups := &apiGroups{schemes: schemes, serves: c.Serves, byName: map[string]*genericapiserver.APIGroupInfo{}}
	var peers, legacy []func()
	c.registries = Registries{}
	for _, resource := range resources {
		if c.Serves != nil && !c.Serves(resource.GroupVersion, resource.Plural) {
			continue
		}
		storages, err := NewStorages(resource, schemes.Hub, c)
		if err != nil {
			return nil, err
		}
		groups.add(resource.GroupVersion, storages)
		for _, p := range resource.Peers {
			peers = append(peers, func() { groups.add(p.GroupVersion, endpointsOf(resource, storages)) })
		}
		for _, l := range resource.Legacy {
			legacy = append(legacy, func() { groups.add(l.GroupVersion, legacyStorages(resource, l.GroupVersion, storages)) })
		}
	}
	for _, add := range slices.Concat(peers, legacy) {
		add() // last: clients prefer the group that they see first
	}
	return groups.list, nil
}

// endpointsOf returns the endpoints of a resource that a peer version serves too. Only the row's own version serves
// subresources beyond /status and /scale.
func endpointsOf(resource Resource, storages map[string]rest.Storage) map[string]rest.Storage {
	shared := map[string]rest.Storage{}
	for _, path := range []string{resource.Plural, resource.Plural + "/status", resource.Plural + "/scale"} {
		if storage, ok := storages[path]; ok {
			shared[path] = storage
		}
	}
	return shared
}

// apiGroups collects the endpoints of API groups.
type apiGroups struct {
	schemes Schemes
	serves  func(version schema.GroupVersion, path string) bool // nil: all
	list    []*genericapiserver.APIGroupInfo
	byName  map[string]*genericapiserver.APIGroupInfo
}

func (g *apiGroups) add(version schema.GroupVersion, storages map[string]rest.Storage) {
	group := g.byName[version.Group]
	if group == nil {
		info := genericapiserver.NewDefaultAPIGroupInfo(version.Group, g.schemes.Hub, g.schemes.ParameterCodec, g.schemes.Codecs)
		group = &info
		g.byName[version.Group] = group
		g.list = append(g.list, group)
	}
	if group.VersionedResourcesStorageMap[version.Version] == nil {
		group.VersionedResourcesStorageMap[version.Version] = map[string]rest.Storage{}
	}
	for path, storage := range storages {
		if g.serves == nil || g.serves(version, path) {
			group.VersionedResourcesStorageMap[version.Version][path] = storage
		}
	}
}
