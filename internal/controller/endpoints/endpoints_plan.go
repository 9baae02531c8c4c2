package endpoints

import (
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
)

const (
	// managedByLabel and endpointsManagedBy mark the Endpoints of this controller.
	managedByLabel     = "endpoints.kubernetes.io/managed-by"
	endpointsManagedBy = "endpoint-controller"
	// overCapacity is the value of the annotation on Endpoints that do not list all addresses.
	overCapacity = "truncated"
)

// decideEndpoints returns the Endpoints to write for a Service that reaches these pods; nil if the stored
// ones are right. stored is nil if there are none. triggered is the time of the change that causes
// the write, if known.
func decideEndpoints(service *corev1.Service, pods []*corev1.Pod, stored *corev1.Endpoints, triggered time.Time) *corev1.Endpoints {
	next := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name}}
	if stored != nil {
		next = stored.DeepCopy()
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	subsets, truncated := truncate(subsetsOf(service, pods))
	next.Subsets, next.Labels = subsets, labelsOf(service)
	if truncated {
		next.Annotations[corev1.EndpointsOverCapacity] = overCapacity
	} else {
		delete(next.Annotations, corev1.EndpointsOverCapacity)
	}
	if stored != nil && equality.Semantic.DeepEqual(stored, next) {
		return nil
	}
	// A new trigger time alone does not cause a write.
	if triggered.IsZero() {
		delete(next.Annotations, corev1.EndpointsLastChangeTriggerTime)
	} else {
		next.Annotations[corev1.EndpointsLastChangeTriggerTime] = triggered.UTC().Format(time.RFC3339Nano)
	}
	return next
}

// labelsOf returns the labels of the Service and the labels of this controller.
func labelsOf(service *corev1.Service) map[string]string {
	all := map[string]string{}
	maps.Copy(all, service.Labels)
	delete(all, corev1.IsHeadlessService)
	if headless(service) {
		all[corev1.IsHeadlessService] = ""
	}
	all[managedByLabel] = endpointsManagedBy
	return all
}

func headless(service *corev1.Service) bool {
	return service.Spec.ClusterIP == corev1.ClusterIPNone || service.Spec.ClusterIP == ""
}

// subsetsOf returns the addresses and ports at which the pods serve.
func subsetsOf(service *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	var subsets []corev1.EndpointSubset
	for _, pod := range pods {
		if !endpointsliceutil.ShouldPodBeInEndpoints(pod, service.Spec.PublishNotReadyAddresses) {
			continue
		}
		address, ok := addressOf(service, pod)
		if !ok {
			continue
		}
		var subset corev1.EndpointSubset
		if service.Spec.PublishNotReadyAddresses || endpointsliceutil.IsPodReady(pod) {
			subset.Addresses = []corev1.EndpointAddress{address}
		} else {
			subset.NotReadyAddresses = []corev1.EndpointAddress{address}
		}
		subset.Ports = endpointPortsOf(service, pod)
		// A headless service needs no ports. A pod without any of the ports serves no port.
		if len(subset.Ports) > 0 || len(service.Spec.Ports) == 0 && service.Spec.ClusterIP == corev1.ClusterIPNone {
			subsets = append(subsets, subset)
		}
	}
	return repack(subsets)
}

func endpointPortsOf(service *corev1.Service, pod *corev1.Pod) []corev1.EndpointPort {
	var ports []corev1.EndpointPort
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		number, err := endpointslice.FindPort(pod, port)
		if err != nil {
			continue // the pod has no port of that name
		}
		ports = append(ports, corev1.EndpointPort{Name: port.Name, Port: int32(number), Protocol: port.Protocol, AppProtocol: port.AppProtocol})
	}
	return ports
}

// addressOf returns the address of a pod in the address family of the Service, if it has one.
func addressOf(service *corev1.Service, pod *corev1.Pod) (corev1.EndpointAddress, bool) {
	v6 := wantsIPv6(service, pod)
	for _, podIP := range pod.Status.PodIPs {
		ip, err := netip.ParseAddr(podIP.IP)
		if err != nil || ip.Unmap().Is6() != v6 {
			continue
		}
		node := pod.Spec.NodeName
		address := corev1.EndpointAddress{
			IP: ip.Unmap().String(), NodeName: &node,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		}
		if endpointsliceutil.ShouldSetHostname(pod, service) {
			address.Hostname = pod.Spec.Hostname
		}
		return address, true
	}
	return corev1.EndpointAddress{}, false
}

// wantsIPv6 reports whether the address family is IPv6, by the Service's spec or else by the pod.
func wantsIPv6(service *corev1.Service, pod *corev1.Pod) bool {
	if len(service.Spec.IPFamilies) > 0 {
		return service.Spec.IPFamilies[0] == corev1.IPv6Protocol
	}
	address := service.Spec.ClusterIP
	if headless(service) {
		address = pod.Status.PodIP
	}
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Unmap().Is6()
}
