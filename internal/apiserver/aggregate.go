package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	restregistry "k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-helpers/apimachinery/lease"

	"github.com/coppice-dev/coppice/internal/apiserver/aggregation"
	"github.com/coppice-dev/coppice/internal/apiserver/discovery"
	"github.com/coppice-dev/coppice/internal/apiserver/kubernetesservice"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/apiserver/serviceendpoints"
	"github.com/coppice-dev/coppice/internal/apiserver/systemobjects"
)

// registration announces the server and its API groups.
type registration struct {
	// registrar maintains the APIServices of the server's own groups.
	registrar *aggregation.Registrar
	publisher *kubernetesservice.Publisher
	identity  lease.Controller
}

// register gives the installed API to the parts that have been waiting for it, and prepares the registration.
func register(ctx context.Context, c completedConfig, f *foundation, apis *apis) (*registration, error) {
	lookup, err := lookupIn(apis.builtin)
	if err != nil {
		return nil, err
	}
	lists, err := discovery.Install(ctx, apis.generic, apis.definitions, f.aggregation.Listed, f.mapper.Reset)
	if err != nil {
		return nil, err
	}
	versions := builtin.Versions(c.kubernetes.Minor())
	aggregation.Prioritize(apis.generic.AggregatedDiscoveryGroupManager, versions)
	publisher, err := newPublisher(ctx, c, f.client)
	if err != nil {
		return nil, err
	}
	f.installed.parts.Store(&installed{
		handler: apis.generic.Handler, definitions: apis.definitions, core: storagesOf(apis.builtin, ""), services: lookup, groups: lists,
	})
	return &registration{
		registrar: &aggregation.Registrar{
			Client: f.aggregation.Client(), Services: f.aggregation.Services(), Definitions: apis.definitions, Builtin: versions, Log: c.Log,
		},
		publisher: publisher, identity: systemobjects.NewIdentity(f.client, f.base.APIServerID),
	}, nil
}

// lookupIn returns a Lookup of the objects behind Services, from the watch caches of the registries.
func lookupIn(groups []*genericapiserver.APIGroupInfo) (serviceendpoints.Lookup, error) {
	core := storagesOf(groups, "")
	services, servicesOK := core["services"].(restregistry.Getter)
	nodes, nodesOK := core["nodes"].(restregistry.Getter)
	endpoints, endpointsOK := storagesOf(groups, discoveryv1.GroupName)["endpointslices"].(restregistry.Lister)
	if !servicesOK || !nodesOK || !endpointsOK {
		return serviceendpoints.Lookup{}, errors.New("the registries of services, nodes and EndpointSlices lack a method")
	}
	return serviceendpoints.Lookup{
		Service: func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
			return cached[corev1.Service](genericrequest.WithNamespace(ctx, namespace), services, name)
		},
		Node: func(ctx context.Context, name string) (*corev1.Node, error) {
			return cached[corev1.Node](ctx, nodes, name)
		},
		EndpointSlices: func(ctx context.Context, namespace, service string) ([]*discoveryv1.EndpointSlice, error) {
			list, err := endpoints.List(genericrequest.WithNamespace(ctx, namespace), &internalversion.ListOptions{
				LabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service}), ResourceVersion: "0",
			})
			if err != nil {
				return nil, err
			}
			all, ok := list.(*discoveryv1.EndpointSliceList)
			if !ok {
				return nil, fmt.Errorf("the registry of EndpointSlices lists %T", list)
			}
			found := make([]*discoveryv1.EndpointSlice, len(all.Items))
			for i := range all.Items {
				found[i] = &all.Items[i]
			}
			return found, nil
		},
	}, nil
}

// storagesOf returns the registries of the version v1 of a group, by resource.
func storagesOf(groups []*genericapiserver.APIGroupInfo, name string) map[string]restregistry.Storage {
	at := slices.IndexFunc(groups, func(g *genericapiserver.APIGroupInfo) bool { return g.PrioritizedVersions[0].Group == name })
	return groups[at].VersionedResourcesStorageMap["v1"]
}

// cached reads an object from the watch cache of its registry. It returns nil if the object does not exist.
func cached[T any](ctx context.Context, from restregistry.Getter, name string) (*T, error) {
	obj, err := from.Get(ctx, name, &metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return nil, nil // serviceendpoints.Lookup specifies this
	}
	if err != nil {
		return nil, err
	}
	object, ok := any(obj).(*T)
	if !ok {
		return nil, fmt.Errorf("the registry has %T", obj)
	}
	return object, nil
}
