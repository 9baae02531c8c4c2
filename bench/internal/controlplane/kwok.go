package controlplane

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StartScheduler starts kube-scheduler with the given flags on a plane started by StartKubernetes. Stop stops it.
func (p *Plane) StartScheduler(flags ...string) error {
	s, ok := p.server.(kubeAPIServer)
	if !ok {
		return errors.New("kube-scheduler runs on kube-apiserver only")
	}
	return s.StartScheduler(flags...)
}

// StartKwok creates nodes on a plane started by StartKubernetes, whose controllers run, and starts kwok for them, with the
// stages in files and that many workers for each task. It waits until pods can be bound to all nodes. Stop stops kwok.
func (p *Plane) StartKwok(ctx context.Context, nodes []*corev1.Node, workers int, stages []string) error {
	s, ok := p.server.(kubeAPIServer)
	if !ok {
		return errors.New("kwok runs on kube-apiserver only")
	}
	client := p.Client.CoreV1().Nodes()
	for _, node := range nodes {
		if _, err := client.Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", node.Name, err)
		}
	}
	return s.StartKwok(ctx, workers, stages, func(ctx context.Context) error {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, node := range list.Items {
			if !schedulable(node) {
				return fmt.Errorf("node %s is not ready, or has taints", node.Name)
			}
		}
		return nil
	})
}

// schedulable reports whether a node is ready, and its taints are gone: the API server gives each new node one, which
// kube-controller-manager removes.
func schedulable(node corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return len(node.Spec.Taints) == 0
		}
	}
	return false
}
