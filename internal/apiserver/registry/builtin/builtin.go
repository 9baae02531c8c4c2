// Package builtin is the table of the built-in resources. An API group whose resources fit one file is a file here;
// each of the others has a package below registry.
package builtin

import (
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/admissionregistration"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/apps"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/autoscaling"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/batch"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/certificates"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/flowcontrol"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/networking"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/resource"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/storage"
)

// groups returns the API groups in the order of discovery. Two of them store nothing: package
// accesscontrol serves them.
func groups(ranges core.ServiceRanges) []registry.Group {
	var all []registry.Group
	all = []registry.Group{
		core.Group(ranges),
		apps.Group(),
		batch.Group(),
		autoscaling.Group(),
		certificates.Group(),
		coordinationGroup(),
		rbacGroup(),
		networking.Group(),
		discoveryGroup(),
		policyGroup(),
		storage.Group(),
		schedulingGroup(),
		nodeGroup(),
		resource.Group(),
		admissionregistration.Group(),
		flowcontrol.Group(),
		storageMigrationGroup(),
		{GroupVersion: authenticationv1.SchemeGroupVersion, AddToScheme: authenticationv1.AddToScheme},
		{GroupVersion: authorizationv1.SchemeGroupVersion, AddToScheme: authorizationv1.AddToScheme},
		apiregistrationGroup(func(version schema.GroupVersion) bool {
			return slices.Contains(versionsOf(all, Served(latest)), version)
		}),
	}
	return all
}

// Versions returns every group version that the server serves in a minor of Kubernetes 1, without CustomResourceDefinitions
// and APIServices.
func Versions(minor uint) []schema.GroupVersion {
	return versionsOf(groups(core.DefaultServiceRanges()), Served(minor))
}

func versionsOf(groups []registry.Group, serves func(version schema.GroupVersion, path string) bool) []schema.GroupVersion {
	versions := []schema.GroupVersion{apiextensionsv1.SchemeGroupVersion}
	add := func(version schema.GroupVersion) {
		if !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	for _, group := range groups {
		if len(group.Resources) == 0 {
			add(group.GroupVersion) // reviews, which are not stored
		}
		for _, resource := range group.Resources {
			for _, version := range resource.GroupVersions() {
				if serves(version, resource.Plural) {
					add(version)
				}
			}
		}
	}
	return versions
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
