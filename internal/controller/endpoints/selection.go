package endpoints

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
)

// podFinder finds the pods that a Service reaches, and the Services that reach a pod, in the shared caches. The
// controllers of EndpointSlices and of Endpoints share it, so that both list the same pods.
type podFinder struct {
	services corelisters.ServiceLister
	pods     corelisters.PodLister
}

// newPodFinder returns a podFinder on the caches of a controller context.
func newPodFinder(shared *controller.Context) podFinder {
	return podFinder{shared.Informers.Services.Lister(), shared.Informers.Pods.Lister()}
}

// selects reports whether a Service gets its endpoints from the pods that it selects. Users write
// the endpoints of other Services.
func selects(service *corev1.Service) bool {
	return len(service.Spec.Selector) > 0 && service.Spec.Type != corev1.ServiceTypeExternalName
}

// selecting returns the keys of the Services that select a pod; none for other objects, or for a
// pod without an address.
func (f podFinder) selecting(obj any) []cache.ObjectName {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Status.PodIP == "" {
		return nil
	}
	services, err := f.services.Services(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	var keys []cache.ObjectName
	for _, service := range services {
		if len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			keys = append(keys, cache.MetaObjectToName(service))
		}
	}
	return keys
}

// selected returns the pods that a Service selects and that are bound to a node: other pods cannot
// be reached, even if their status has an address.
func (f podFinder) selected(service *corev1.Service) ([]*corev1.Pod, error) {
	pods, err := f.pods.Pods(service.Namespace).List(labels.SelectorFromSet(service.Spec.Selector))
	if err != nil {
		return nil, fmt.Errorf("list the pods of service %s/%s: %w", service.Namespace, service.Name, err)
	}
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" }), nil
}
