package aggregation

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/utils/ptr"
)

// unreachable says why a server cannot be reached, as in the condition of its APIService.
type unreachable struct{ reason, message string }

// Error implements error.
func (u *unreachable) Error() string { return u.message }

// address is where a server listens.
type address struct {
	host string
	port int32
}

// route returns the addresses behind the Service of an APIService. service is nil if there is none;
// endpoints are its EndpointSlices.
//
// Requests go to the endpoints, not to the cluster IP: that needs no kube-proxy on the machine of
// the API server. The name of an ExternalName service is an address like any other.
func route(ref apiregistrationv1.ServiceReference, service *corev1.Service, endpoints []*discoveryv1.EndpointSlice) ([]address, error) {
	number := ptr.Deref(ref.Port, 0)
	if service == nil {
		return nil, &unreachable{"ServiceNotFound", fmt.Sprintf("service/%s in %q is not present", ref.Name, ref.Namespace)}
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return []address{{service.Spec.ExternalName, number}}, nil
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == number })
	if at < 0 {
		return nil, &unreachable{"ServicePortError", fmt.Sprintf("service/%s in %q is not listening on port %d", ref.Name, ref.Namespace, number)}
	}
	if len(endpoints) == 0 {
		return nil, &unreachable{"EndpointsNotFound", fmt.Sprintf("cannot find endpointslices for service/%s in %q", ref.Name, ref.Namespace)}
	}
	name := service.Spec.Ports[at].Name
	addresses := ready(endpoints, name)
	if len(addresses) == 0 {
		return nil, &unreachable{"MissingEndpoints", fmt.Sprintf("endpointslices for service/%s in %q have no addresses with port name %q", ref.Name, ref.Namespace, name)}
	}
	return addresses, nil
}

// ready returns the addresses of the endpoints that are ready, at the port of that name.
func ready(endpoints []*discoveryv1.EndpointSlice, name string) []address {
	var addresses []address
	for _, slice := range endpoints {
		at := slices.IndexFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return ptr.Deref(p.Name, "") == name && p.Port != nil })
		if at < 0 {
			continue
		}
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) && len(e.Addresses) > 0 {
				addresses = append(addresses, address{e.Addresses[0], *slice.Ports[at].Port})
			}
		}
	}
	slices.SortFunc(addresses, func(a, b address) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.port, b.port))
	})
	return slices.Compact(addresses)
}

// availability returns the condition of an APIService whose check ended with err.
func availability(err error) apiregistrationv1.APIServiceCondition {
	condition := apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse}
	switch reason, ok := err.(*unreachable); { //nolint:errorlint // made here, never wrapped
	case err == nil:
		condition.Status, condition.Reason, condition.Message = apiregistrationv1.ConditionTrue, "Passed", "all checks passed"
	case ok:
		condition.Reason, condition.Message = reason.reason, reason.message
	default:
		condition.Reason, condition.Message = "FailedDiscoveryCheck", err.Error()
	}
	return condition
}

// withCondition returns the APIService with a condition, or false if it has that already. The time
// of the condition changes with its status only.
func withCondition(s *apiregistrationv1.APIService, condition apiregistrationv1.APIServiceCondition, now metav1.Time) (*apiregistrationv1.APIService, bool) {
	stored := helper.GetAPIServiceConditionByType(s, condition.Type)
	if stored != nil && stored.Status == condition.Status && stored.Reason == condition.Reason && stored.Message == condition.Message {
		return nil, false
	}
	condition.LastTransitionTime = now
	changed := s.DeepCopy()
	helper.SetAPIServiceCondition(changed, condition)
	return changed, true
}
