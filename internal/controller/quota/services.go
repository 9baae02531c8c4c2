package quota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/utils/ptr"
)

// services returns the evaluator of services: the number of services, of load balancers and of node
// ports.
func services(list List) quotav1.Evaluator {
	return newEvaluator(list, rules[*corev1.Service]{
		resource: corev1.Resource("services"),
		limits: func(name corev1.ResourceName) bool {
			_, ok := serviceUsage(&corev1.Service{})[name]
			return ok
		},
		usage: serviceUsage,
		// Updates too: they can change the type of a service.
		handles: func(_ admission.Operation, subresource string, _, _ *corev1.Service) bool { return subresource == "" },
		matches: noScope[*corev1.Service],
	})
}

func serviceUsage(service *corev1.Service) corev1.ResourceList {
	balancers, ports := 0, 0
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort:
		ports = len(service.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		balancers, ports = 1, len(service.Spec.Ports)
		if !ptr.Deref(service.Spec.AllocateLoadBalancerNodePorts, true) {
			ports = requestedNodePorts(service.Spec.Ports)
		}
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName:
	}
	return corev1.ResourceList{
		generic.ObjectCountQuotaResourceNameFor(corev1.Resource("services")): number(1),
		corev1.ResourceServices:              number(1),
		corev1.ResourceServicesLoadBalancers: number(balancers),
		corev1.ResourceServicesNodePorts:     number(ports),
	}
}

func requestedNodePorts(ports []corev1.ServicePort) int {
	n := 0
	for _, port := range ports {
		if port.NodePort != 0 {
			n++
		}
	}
	return n
}
