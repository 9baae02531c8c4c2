package nodeproxy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// isAgent reports whether a port of a node is that of its agent. So is no port.
func isAgent(node *corev1.Node, port string) bool {
	own := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	return port == "" || own != 0 && port == strconv.Itoa(int(own))
}

// machine returns the address at which other ports of a node are reached.
func machine(node *corev1.Node) (string, error) {
	if strings.HasPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "simulated:") {
		return "", apierrors.NewBadRequest(fmt.Sprintf("node %s is simulated: it has no ports", node.Name))
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
