// Package nodeagents contains code for the subresources of pods whose requests the agent of the pod's node
// answers: it chooses the container, and finds the agent.
//
// The address of an agent is in the status of its Node, which the node itself writes. So the server at that
// address is trusted, and receives the client certificate, only if it presents the certificate of that
// node.
package nodeagents

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Find returns the address of the agent of a pod's node. task describes the request in the error: "read the
// logs".
func Find(ctx context.Context, nodes rest.Getter, pod *corev1.Pod, task string) (address string, err error) {
	node := pod.Spec.NodeName
	obj, err := nodes.Get(ctx, node, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", Unavailable(pod, task, "cannot be found because the node does not exist")
	}
	if err != nil {
		return "", fmt.Errorf("read node %s: %w", node, err)
	}
	n, ok := obj.(*corev1.Node)
	if !ok {
		return "", fmt.Errorf("node %s is a %T", node, obj)
	}
	address, flaw := locate(n)
	if flaw != "" {
		return "", Unavailable(pod, task, flaw)
	}
	return address, nil
}

// Address returns the address of the agent of a node.
func Address(node *corev1.Node) (string, error) {
	address, flaw := locate(node)
	if flaw != "" {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("cannot reach the agent of node %s, which %s", node.Name, flaw))
	}
	return address, nil
}

// locate returns the address of the agent of a node, or the reason why it cannot be reached.
func locate(node *corev1.Node) (address, flaw string) {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port < 1 || port > 65535 {
		return "", "runs in another process and serves neither logs nor streams"
	}
	for _, at := range node.Status.Addresses {
		if at.Type != corev1.NodeInternalIP {
			continue
		}
		if net.ParseIP(at.Address) == nil {
			return "", fmt.Sprintf("has the address %q in its status, which is not an IP address", at.Address)
		}
		return net.JoinHostPort(at.Address, strconv.Itoa(int(port))), ""
	}
	return "", "has no address in its status"
}

// Unavailable returns the error for an agent that cannot be reached.
func Unavailable(pod *corev1.Pod, task, why string) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("cannot %s of pod %s from the agent of node %s, which %s", task, pod.Name, pod.Spec.NodeName, why))
}

// IsUnknownNode reports whether an agent's error says that it does not manage the pod's node.
func IsUnknownNode(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && answer.ErrStatus.Details != nil && answer.ErrStatus.Details.Kind == "nodes"
}

// ChooseContainer returns the container of a pod for a request: the requested one, or else the only one of
// the pod.
func ChooseContainer(pod *corev1.Pod, requested string) (string, error) {
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
