package kubelet

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// agentPort is the kubelets' port, for an agent whose Node names none. An agent in this process listens on
// no port, so its Node cannot name one.
const agentPort = 10250

// isAgent reports whether a port of a node, or no port, is the port of its agent.
func isAgent(node *corev1.Node, port string) bool {
	own := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if own == 0 {
		own = agentPort
	}
	return port == "" || port == strconv.Itoa(int(own))
}

// machine returns the address for other ports of a node.
func machine(node *corev1.Node) (string, error) {
	if isSimulated(node) {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: node %s is simulated, and nothing listens at its ports", node.Name))
	}
	for _, at := range node.Status.Addresses {
		if at.Type != corev1.NodeInternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(at.Address); err == nil && ip.Unmap().IsGlobalUnicast() {
			return at.Address, nil
		}
		break
	}
	return "", apierrors.NewBadRequest("address not allowed")
}

// isSimulated reports whether the pods of a node have no processes.
func isSimulated(node *corev1.Node) bool {
	return strings.HasPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "simulated:")
}

// chooseContainer returns the container of a pod for a request: the requested one, or else the only one of
// the pod.
func chooseContainer(pod *corev1.Pod, requested string) (string, error) {
	names := namesOf(pod.Spec.Containers)
	initial := namesOf(pod.Spec.InitContainers)
	if requested == "" {
		if len(names) == 1 {
			return names[0], nil
		}
		text := fmt.Sprintf("a container name must be specified for pod %s, choose one of: [%s]", pod.Name, strings.Join(names, " "))
		if len(initial) > 0 {
			text += fmt.Sprintf(" or one of the init containers: [%s]", strings.Join(initial, " "))
		}
		return "", apierrors.NewBadRequest(text)
	}
	ephemeral := slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == requested })
	if !ephemeral && !slices.Contains(names, requested) && !slices.Contains(initial, requested) {
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", requested, pod.Name))
	}
	return requested, nil
}

func namesOf(containers []corev1.Container) []string {
	names := make([]string, 0, len(containers))
	for i := range containers {
		names = append(names, containers[i].Name)
	}
	return names
}

// waitingReason returns the reason why a container has not started; "" if it has.
func waitingReason(pod *corev1.Pod, container string) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if s.Name == container && s.State.Waiting != nil {
			return s.State.Waiting.Reason
		}
	}
	return ""
}

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
