package admissionchain

import (
	"context"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// podTopologyLabels sets the zone and the region of a node as labels of its pods, when they are bound to it
// or created on it. So pods can read them without access to Nodes.
type podTopologyLabels struct {
	*admission.Handler

	nodes corelisters.NodeLister
}

func newPodTopologyLabels(shared informers.SharedInformerFactory) *podTopologyLabels {
	nodes := shared.Core().V1().Nodes()
	p := &podTopologyLabels{admission.NewHandler(admission.Create), nodes.Lister()}
	p.SetReadyFunc(nodes.Informer().HasSynced)
	return p
}

// Admit implements admission.MutationInterface. The labels of a binding are copied to its pod.
func (p *podTopologyLabels) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("pods") {
		return nil
	}
	var node string
	var labels *map[string]string
	switch o := a.GetObject().(type) {
	case *corev1.Pod:
		node, labels = o.Spec.NodeName, &o.Labels
	case *corev1.Binding:
		if o.Target.Kind == "Node" {
			node, labels = o.Target.Name, &o.Labels
		}
	}
	if node == "" || a.GetSubresource() != "" && a.GetSubresource() != "binding" {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	topology, err := p.topology(node)
	if err != nil || len(topology) == 0 {
		return err
	}
	if *labels == nil {
		*labels = map[string]string{}
	}
	maps.Copy(*labels, topology)
	return nil
}

// topology returns the topology labels of a node; none if the node does not exist.
func (p *podTopologyLabels) topology(name string) (map[string]string, error) {
	node, err := p.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	labels := map[string]string{}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if value, ok := node.Labels[key]; ok {
			labels[key] = value
		}
	}
	return labels, nil
}
