package serviceendpoints

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// Reference names a port of a Service.
type Reference struct {
	Namespace, Name string
	Port            int32
}

// Unreachable is the error about a Service that cannot receive requests. The condition Available of an
// APIService with this Service has the same reason and message.
type Unreachable struct {
	Reason, Message string
	// Remedy is the advice for the user.
	Remedy string
}

// Error implements error.
func (u *Unreachable) Error() string { return u.Message }

// endpoint is an address that serves a Service.
type endpoint struct {
	host string
	port int32
	node string // of its pod; empty if unknown
}

// resolve returns the endpoints of a Service, sorted. service is nil if it does not exist; slicesOf are its
// EndpointSlices.
//
// Requests go to the endpoints, not to the cluster IP, so that the API server's machine needs no
// kube-proxy. The name of an ExternalName service counts as an endpoint.
func resolve(ref Reference, service *corev1.Service, slicesOf []*discoveryv1.EndpointSlice) ([]endpoint, error) {
	if service == nil {
		return nil, &Unreachable{
			"ServiceNotFound", fmt.Sprintf("service/%s in %q is not present", ref.Name, ref.Namespace),
			"create the service, or remove the configuration that names it",
		}
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return []endpoint{{host: service.Spec.ExternalName, port: ref.Port}}, nil
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == ref.Port })
	if at < 0 {
		return nil, &Unreachable{
			"ServicePortError", fmt.Sprintf("service/%s in %q is not listening on port %d", ref.Name, ref.Namespace, ref.Port),
			"correct the port in the service, or in the configuration that names it",
		}
	}
	if len(slicesOf) == 0 {
		return nil, &Unreachable{"EndpointsNotFound", fmt.Sprintf("cannot find endpointslices for service/%s in %q", ref.Name, ref.Namespace), bringBack}
	}
	name := service.Spec.Ports[at].Name
	found := ready(slicesOf, name)
	if len(found) == 0 {
		return nil, &Unreachable{
			"MissingEndpoints", fmt.Sprintf("endpointslices for service/%s in %q have no addresses with port name %q", ref.Name, ref.Namespace, name), bringBack,
		}
	}
	return found, nil
}

// bringBack is the remedy for a Service without endpoints.
const bringBack = "wait until a pod of the service is ready; if none will be, remove the configuration that names it"

// ready returns the ready endpoints, at the port of that name.
func ready(slicesOf []*discoveryv1.EndpointSlice, name string) []endpoint {
	var found []endpoint
	for _, slice := range slicesOf {
		at := slices.IndexFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return ptr.Deref(p.Name, "") == name && p.Port != nil })
		if at < 0 {
			continue
		}
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) && len(e.Addresses) > 0 {
				found = append(found, endpoint{e.Addresses[0], *slice.Ports[at].Port, ptr.Deref(e.NodeName, "")})
			}
		}
	}
	slices.SortFunc(found, func(a, b endpoint) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.port, b.port), cmp.Compare(a.node, b.node))
	})
	return slices.Compact(found)
}

// withProcesses returns the endpoints on nodes that are not simulated. Pods of simulated nodes have no
// processes, and other machines may have their addresses.
func withProcesses(ref Reference, all []endpoint, simulated func(node string) bool) ([]endpoint, error) {
	left := slices.DeleteFunc(slices.Clone(all), func(e endpoint) bool { return e.node != "" && simulated(e.node) })
	if len(left) == 0 {
		return nil, &Unreachable{
			"MissingEndpoints", fmt.Sprintf("endpointslices for service/%s in %q have pods on simulated nodes only, where nothing is served", ref.Name, ref.Namespace),
			"run its pods on a node with real containers, or remove the configuration that names the service",
		}
	}
	return left, nil
}
