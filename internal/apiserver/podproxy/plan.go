package podproxy

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// candidate is an address at which a pod serves a port of a service.
type candidate struct{ pod, address, port string }

// portName returns the name of a port of a service, given its number or name.
func portName(service *corev1.Service, port string) (string, error) {
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return port, nil //nolint:nilerr // it is a name
	}
	for _, p := range service.Spec.Ports {
		if int64(p.Port) == number {
			return p.Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, service.Name))
}

// candidates returns the addresses of pods in Endpoints that serve the port of that name. Addresses without
// a pod, which a user has written there, are left out.
func candidates(endpoints *corev1.Endpoints, port string) []candidate {
	var all []candidate
	for _, subset := range endpoints.Subsets {
		for _, p := range subset.Ports {
			if p.Name != port {
				continue
			}
			for _, address := range subset.Addresses {
				ref := address.TargetRef
				if ref != nil && ref.Kind == "Pod" && (ref.Namespace == "" || ref.Namespace == endpoints.Namespace) {
					all = append(all, candidate{ref.Name, address.IP, strconv.Itoa(int(p.Port))})
				}
			}
		}
	}
	return all
}

// hasAddress reports whether a pod has an address.
func hasAddress(pod *corev1.Pod, address string) bool {
	return pod.Status.PodIP == address || slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == address })
}
