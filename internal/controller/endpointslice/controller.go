// Package slices keeps the EndpointSlices of services: which pods a service reaches.
// The rules and the requests are the library's (k8s.io/endpointslice); this package gives
// it the objects of one service at a time. A slice is owned by its service, and goes with
// it.
package endpointslice

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	// name is what the label endpointslice.kubernetes.io/managed-by says of these slices.
	name    = "endpointslice-controller.k8s.io"
	workers = 2
	// perSlice is the most endpoints that are put into one slice.
	perSlice = 100
)

type reconciler struct {
	services corelisters.ServiceLister
	pods     corelisters.PodLister
	slices   discoverylisters.EndpointSliceLister
	// written knows which slices the cache does not show as they were written.
	written *endpointsliceutil.EndpointSliceTracker
	library *endpointslice.Reconciler
	now     func() time.Time
}

// New makes the controller of endpoint slices.
func New(shared *controller.Context) *controller.Controller {
	services, endpoints := shared.Informers.Core().V1().Services(), shared.Informers.Discovery().V1().EndpointSlices()
	written := endpointsliceutil.NewEndpointSliceTracker()
	c := &reconciler{
		services: services.Lister(), pods: shared.Informers.Core().V1().Pods().Lister(), slices: endpoints.Lister(), written: written, now: shared.Clock.Now,
		library: endpointslice.NewReconciler(shared.Client, shared.Informers.Core().V1().Nodes().Lister(), perSlice, written, nil, shared.Events("endpoint-slice-controller"), name),
	}
	return &controller.Controller{
		Name: "endpoint-slice-controller", Reconcile: c.reconcile, Workers: workers,
		Sources: []controller.Source{
			controller.For(services.Informer()),
			{Informer: shared.Informers.Core().V1().Pods().Informer(), Keys: c.reaching},
			{Informer: endpoints.Informer(), Keys: serviceOf},
		},
	}
}

// reaching are the services that select a pod.
func (c *reconciler) reaching(obj any) []cache.ObjectName {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Status.PodIP == "" {
		return nil
	}
	services, err := c.services.Services(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil // the cache has no errors
	}
	var keys []cache.ObjectName
	for _, service := range services {
		if len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			keys = append(keys, cache.MetaObjectToName(service))
		}
	}
	return keys
}

// serviceOf is whose slice an object is.
func serviceOf(obj any) []cache.ObjectName {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelManagedBy] != name || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil
	}
	return []cache.ObjectName{{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}}
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	service, err := c.services.Services(key.Namespace).Get(key.Name)
	switch {
	case apierrors.IsNotFound(err):
		c.written.DeleteService(key.Namespace, key.Name)
		return 0, nil
	case err != nil:
		return 0, err
	case service.DeletionTimestamp != nil, len(service.Spec.Selector) == 0, service.Spec.Type == corev1.ServiceTypeExternalName:
		return 0, nil
	}
	pods, err := c.pods.Pods(key.Namespace).List(labels.SelectorFromSet(service.Spec.Selector))
	if err != nil {
		return 0, err
	}
	// One that is not bound to a node is nowhere to be reached, whatever its status says.
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" })
	known, err := c.slices.EndpointSlices(key.Namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: key.Name, discoveryv1.LabelManagedBy: name,
	}))
	if err != nil {
		return 0, err
	}
	var standing []*discoveryv1.EndpointSlice
	for _, slice := range known {
		if slice.DeletionTimestamp == nil && metav1.IsControlledBy(slice, service) {
			standing = append(standing, slice)
		}
	}
	if c.written.StaleSlices(service, standing) {
		return 0, nil // the event that the cache waits for brings the key again
	}
	if err := c.library.Reconcile(klog.FromContext(ctx), service, pods, standing, c.now()); err != nil {
		return 0, fmt.Errorf("keep the endpoint slices of %s: %w", key, err)
	}
	return 0, nil
}
