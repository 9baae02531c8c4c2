package sections

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/realserver"
)

// kwokWorkers is the number of workers of each task of kwok, instead of four. On two cores, 4, 16 and 64 take as much processor
// time for a pod; more cores can use more of them.
const kwokWorkers = 64

// onKwok measures on what kwokctl create cluster --disable-qps-limits starts: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, and kwok with its own stages. If kube-scheduler and kwok were never built, they are now: no other section needs
// them, so make check does not build them.
//
// kwokctl also turns off the limits of kube-apiserver. Here they apply to nobody: all programs have the credentials of an
// administrator, whose requests are exempt. With the flags of kwokctl, a pod takes as much processor time.
func (b *Bench) onKwok(ctx context.Context, nodes int, measure measurement) error {
	stages, err := b.Stages()
	if err != nil {
		return err
	}
	return b.onKubernetes(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		if _, err := p.StartControllerManager(ctx, controllersLifted()...); err != nil {
			return err
		}
		if err := p.StartScheduler(requestsLifted()...); err != nil {
			return err
		}
		if err := p.StartKwok(ctx, emptyNodes(nodes), kwokWorkers, stages); err != nil {
			return err
		}
		return measure(ctx, p)
	}, realserver.Scheduler, realserver.Kwok)
}

// controllersLifted returns the flags that lift the limits of kube-controller-manager, which runs its default controllers: those
// of Deployments, ReplicaSets, nodes and namespaces, the collector, and all others that coppice up has, too. By default, five workers
// reconcile Deployments, and five ReplicaSets.
func controllersLifted() []string {
	return append(lifted(), "--concurrent-deployment-syncs=50", "--concurrent-replicaset-syncs=50", "--concurrent-namespace-syncs=50")
}

// emptyNodes returns nodes that kwok makes ready, with the capacity of those of coppice up. Without one, a node of kwok has
// room for a million pods.
func emptyNodes(n int) []*corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("110"),
	}
	nodes := make([]*corev1.Node, n)
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i+1)
		nodes[i] = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}},
			Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
		}
	}
	return nodes
}
