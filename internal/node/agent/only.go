package agent

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// OneNode is the view of an agent for one of its nodes: it has only the pods of that node.
type OneNode struct {
	*Agent

	name string
}

// Only returns the view of the agent for one node. The error is NotFound if the agent does not run that node.
func (a *Agent) Only(node string) (OneNode, error) {
	if _, ours := a.nodes[node]; !ours {
		return OneNode{}, apierrors.NewNotFound(corev1.Resource("nodes"), node)
	}
	return OneNode{a, node}, nil
}

// Pod returns a pod of the node, as last observed. The error is NotFound if the node has no such pod.
func (n OneNode) Pod(namespace, name string) (*corev1.Pod, error) {
	pod, err := n.Agent.Pod(namespace, name)
	if err == nil && pod.Spec.NodeName != n.name {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return pod, err
}

// Pods returns the pods of the node, as last observed, ordered by namespace and name.
func (n OneNode) Pods() ([]*corev1.Pod, error) {
	if !n.pods.HasSynced() {
		return nil, errNotSeen()
	}
	var pods []*corev1.Pod
	for _, obj := range n.pods.GetIndexer().List() {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("list pods: a %T", obj)
		}
		if pod.Spec.NodeName == n.name {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return pods, nil
}

func errNotSeen() error {
	return apierrors.NewServiceUnavailable("the agent has not seen its pods yet")
}
