package aggregation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/discovery"
)

// Priority determines the order of a group version in discovery: if several groups have a resource of one
// name, clients take the group with the higher priority.
type Priority struct{ Group, Version int32 }

// The default priorities of versions within their group.
const (
	stableVersion = 15
	oldVersion    = 9
)

// unknownPriority is the priority of a built-in group version that is not in the table.
func unknownPriority() Priority { return Priority{15500, oldVersion} }

// customPriority is the priority of the versions of CustomResourceDefinitions. Versions with the same priority are
// ordered by name, the most mature first.
func customPriority() Priority { return Priority{1000, discovery.CustomPriority} }

// PriorityOf returns the priority of a built-in group version. It is the one in kube-apiserver, on which
// clients may rely. Versions that kube-apiserver no longer has come last.
func PriorityOf(version schema.GroupVersion) Priority {
	groups := map[string]int32{
		"":                             18000,
		"apps":                         17800,
		"events.k8s.io":                17750,
		"authentication.k8s.io":        17700,
		"authorization.k8s.io":         17600,
		"autoscaling":                  17500,
		"batch":                        17400,
		"certificates.k8s.io":          17300,
		"networking.k8s.io":            17200,
		"policy":                       17100,
		"rbac.authorization.k8s.io":    17000,
		"storage.k8s.io":               16800,
		"admissionregistration.k8s.io": 16700,
		"apiextensions.k8s.io":         16700,
		"scheduling.k8s.io":            16600,
		"coordination.k8s.io":          16500,
		"node.k8s.io":                  16300,
		"discovery.k8s.io":             16200,
		"resource.k8s.io":              16200,
		"flowcontrol.apiserver.k8s.io": 16100,
		"storagemigration.k8s.io":      15800,
	}
	versions := map[schema.GroupVersion]int32{
		{Version: "v1"}:                                        1,
		{Group: "autoscaling", Version: "v2"}:                  30,
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}: 21,
		{Group: "resource.k8s.io", Version: "v1"}:              21,
	}
	priority := unknownPriority()
	if group, ok := groups[version.Group]; ok {
		priority.Group = group
	}
	if version.Version == "v1" {
		priority.Version = stableVersion
	}
	if within, ok := versions[version]; ok {
		priority.Version = within
	}
	return priority
}

// highestPriority is higher than any priority that an APIService can have, so that clients always find the group of
// APIServices.
const highestPriority = 20001

// Prioritize orders the built-in group versions in aggregated discovery.
func Prioritize(manager discoveryendpoint.ResourceManager, builtin []schema.GroupVersion) {
	for _, version := range builtin {
		p := PriorityOf(version)
		if version.Group == apiregistrationv1.GroupName {
			p.Group = highestPriority
		}
		manager.SetGroupVersionPriority(metav1.GroupVersion(version), int(p.Group), int(p.Version))
	}
}
