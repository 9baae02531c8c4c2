// Package builtin is the table of the built-in resources: the API groups of the packages
// below registry, put together.
package builtin

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/admissionregistration"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/apps"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/autoscaling"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/batch"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/certificates"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/coordination"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/discovery"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/flowcontrol"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/networking"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/node"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/policy"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/rbac"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/resource"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/scheduling"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/storage"
)

// groups returns the API groups in the order of discovery. The last two store nothing: package
// reviews serves them.
func groups(ranges core.ServiceRanges) []registry.Group {
	return []registry.Group{
		core.Group(ranges),
		apps.Group(),
		batch.Group(),
		autoscaling.Group(),
		certificates.Group(),
		coordination.Group(),
		rbac.Group(),
		networking.Group(),
		discovery.Group(),
		policy.Group(),
		storage.Group(),
		scheduling.Group(),
		node.Group(),
		resource.Group(),
		admissionregistration.Group(),
		flowcontrol.Group(),
		{GroupVersion: authenticationv1.SchemeGroupVersion, AddToScheme: authenticationv1.AddToScheme},
		{GroupVersion: authorizationv1.SchemeGroupVersion, AddToScheme: authorizationv1.AddToScheme},
	}
}

// Resources returns the rows of all groups: group by group, and in each in the order in
// which discovery lists them.
func Resources() []registry.Resource { return resourcesOf(groups(core.DefaultServiceRanges())) }

func resourcesOf(groups []registry.Group) []registry.Resource {
	var all []registry.Resource
	for _, group := range groups {
		all = append(all, group.Resources...)
	}
	return all
}

// NewSchemes returns the schemes of all groups.
func NewSchemes() registry.Schemes {
	return registry.NewSchemes(groups(core.DefaultServiceRanges()))
}

// APIGroups returns the API groups as the server installs them. Services get their
// addresses and node ports from ranges.
func APIGroups(schemes registry.Schemes, c registry.Config, ranges core.ServiceRanges) ([]*genericapiserver.APIGroupInfo, error) {
	return registry.APIGroups(resourcesOf(groups(ranges)), schemes, c)
}
