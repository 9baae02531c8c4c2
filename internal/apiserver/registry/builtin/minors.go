package builtin

import (
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// latest is later than any minor.
const latest = math.MaxUint32

// added are the endpoints that a minor of Kubernetes 1 serves and the one before it does not: the group version, and the
// resource or subresource.
func added() map[uint][]string {
	return map[uint][]string{
		36: {
			"admissionregistration.k8s.io/v1 mutatingadmissionpolicies", "admissionregistration.k8s.io/v1 mutatingadmissionpolicybindings",
		},
		37: {
			"certificates.k8s.io/v1 clustertrustbundles",
			"certificates.k8s.io/v1 podcertificaterequests", "certificates.k8s.io/v1 podcertificaterequests/status",
			"resource.k8s.io/v1 devicetaintrules", "resource.k8s.io/v1 devicetaintrules/status",
			"storage.k8s.io/v1 csinodes/status",
			"storagemigration.k8s.io/v1 storageversionmigrations", "storagemigration.k8s.io/v1 storageversionmigrations/status",
		},
	}
}

// Served returns a function that reports whether Kubernetes 1 serves a resource or subresource in a minor. It knows those
// that this server has.
func Served(minor uint) func(version schema.GroupVersion, path string) bool {
	var later []string
	for since, endpoints := range added() {
		if since > minor {
			later = append(later, endpoints...)
		}
	}
	return func(version schema.GroupVersion, path string) bool {
		return !slices.Contains(later, version.String()+" "+path)
	}
}
