package nodeproxy

import (
	"fmt"
	"net/netip"
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
	if strings.HasPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "simulated:") {
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
