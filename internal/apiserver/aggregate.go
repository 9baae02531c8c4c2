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
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/autoregister"
	"github.com/coppice-dev/coppice/internal/apiserver/discovery"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/apiserver/serviceendpoints"
)

// aggregate connects aggregation, and the registration of the server's own groups, with the installed API.
func (s *Server) aggregate(ctx context.Context, c Config, groups []*genericapiserver.APIGroupInfo, definitions cache.SharedIndexInformer) error {
	lookup, err := lookupIn(groups)
	if err != nil {
		return err
	}
	s.endpoints.Use(lookup)
	lists, err := discovery.Install(ctx, s.generic, definitions, s.aggregation.Listed, s.mapper.Reset)
	if err != nil {
		return err
	}
	s.aggregation.Use(lists)
	s.served.SetAggregated(s.aggregation.ResourceOf)
	versions := builtin.Versions()
	autoregister.Prioritize(s.generic.AggregatedDiscoveryGroupManager, versions)
	s.registrar = &autoregister.Registrar{
		Client: s.aggregation.Client(), Services: s.aggregation.Services(), Definitions: definitions, Builtin: versions, Log: c.Log,
	}
	return nil
}

// runAggregation starts both in the background, and returns when the server's own groups are registered.
func (s *Server) runAggregation(ctx context.Context) error {
	for name, run := range map[string]func(context.Context) error{"aggregation": s.aggregation.Run, "registration of API groups": s.registrar.Run} {
		go func() {
			if err := run(ctx); err != nil {
				s.log.ErrorContext(ctx, "stopped", "part", name, "error", err)
			}
		}()
	}
	return s.registrar.Ensure(ctx)
}

// lookupIn returns a Lookup of the objects behind Services, from the watch caches of the registries.
func lookupIn(groups []*genericapiserver.APIGroupInfo) (serviceendpoints.Lookup, error) {
	storage := func(group, resource string) restregistry.Storage {
		at := slices.IndexFunc(groups, func(g *genericapiserver.APIGroupInfo) bool { return g.PrioritizedVersions[0].Group == group })
		return groups[at].VersionedResourcesStorageMap["v1"][resource]
	}
	services, servicesOK := storage("", "services").(restregistry.Getter)
	nodes, nodesOK := storage("", "nodes").(restregistry.Getter)
	endpoints, endpointsOK := storage(discoveryv1.GroupName, "endpointslices").(restregistry.Lister)
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
