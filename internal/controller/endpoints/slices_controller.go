package endpoints

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// slicesManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on these
	// slices.
	slicesManagedBy = "endpointslice-controller.k8s.io"
	slicesName      = "endpoint-slice-controller"
	slicesWorkers   = 2
	// perSlice is the maximum number of endpoints in one slice.
	perSlice = 100
)

type slicesReconciler struct {
	services corelisters.ServiceLister
	reached  podFinder
	slices   discoverylisters.EndpointSliceLister
	// written tracks slices whose last write the cache does not show yet.
	written *endpointsliceutil.EndpointSliceTracker
	// stale bounds how long a service waits for written.
	stale    *controller.Holds
	upstream *endpointslice.Reconciler
	// triggers tracks the times at which services and pods have changed, for an annotation.
	triggers *endpointsliceutil.TriggerTimeTracker
}

// newSlicesController returns the controller of the EndpointSlices of Services that select pods. The
// rules and the requests are in k8s.io/endpointslice, which gets the objects of one Service at a time. A
// slice is owned by its Service and collected with it.
func newSlicesController(shared *controller.Context) *controller.Controller {
	services, endpoints := shared.Informers.Services, shared.Informers.EndpointSlices
	written := endpointsliceutil.NewEndpointSliceTracker()
	c := &slicesReconciler{
		services: services.Lister(), reached: newPodFinder(shared), slices: endpoints.Lister(), written: written,
		stale: controller.NewHolds(shared.Clock), triggers: endpointsliceutil.NewTriggerTimeTracker(),
		upstream: endpointslice.NewReconciler(shared.Client, shared.Informers.Nodes.Lister(), perSlice, written, nil, shared.Events(slicesName), slicesManagedBy),
	}
	return &controller.Controller{
		Name: slicesName, Reconcile: c.reconcile, Workers: slicesWorkers,
		Sources: []controller.Source{
			controller.For(services.Informer()),
			{Informer: shared.Informers.Pods.Informer(), Keys: c.reached.selecting},
			{Informer: endpoints.Informer(), Keys: c.serviceOf},
		},
	}
}

// serviceOf returns the key of the Service of a slice.
func (c *slicesReconciler) serviceOf(obj any) []cache.ObjectName {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelManagedBy] != slicesManagedBy || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil
	}
	// Nothing waits for a slice that is gone, even if another client has deleted it.
	if now, err := c.slices.EndpointSlices(slice.Namespace).Get(slice.Name); err != nil || now.UID != slice.UID {
		c.written.HandleDeletion(slice)
	}
	return []cache.ObjectName{{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}}
}

func (c *slicesReconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	service, err := c.services.Services(key.Namespace).Get(key.Name)
	switch {
	case apierrors.IsNotFound(err):
		c.written.DeleteService(key.Namespace, key.Name)
		c.triggers.DeleteService(key.Namespace, key.Name)
		c.stale.End(key)
		return 0, nil
	case err != nil:
		return 0, err
	case service.DeletionTimestamp != nil, !selects(service):
		c.stale.End(key)
		return 0, nil
	}
	pods, err := c.reached.selected(service)
	if err != nil {
		return 0, err
	}
	known, err := c.slices.EndpointSlices(key.Namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: key.Name, discoveryv1.LabelManagedBy: slicesManagedBy,
	}))
	if err != nil {
		return 0, err
	}
	// The rules need the slices that the service does not own, too: they delete the slices of an earlier service.
	var current []*discoveryv1.EndpointSlice
	for _, slice := range known {
		if slice.DeletionTimestamp == nil {
			current = append(current, slice)
		} else {
			c.written.HandleDeletion(slice)
		}
	}
	if wait := c.wait(key, service, current); wait > 0 {
		return wait, nil // the awaited event enqueues the key earlier
	}
	triggered := c.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)
	if err := c.upstream.Reconcile(klog.FromContext(ctx), service, pods, current, triggered); err != nil {
		return 0, fmt.Errorf("keep the endpoint slices of %s: %w", key, err)
	}
	return c.wait(key, service, current), nil
}

// wait returns how long to wait at most until the cache shows the last writes to the slices of a service. The event of a
// slice may be lost, or another client may have removed its labels: then nothing else ends the wait.
func (c *slicesReconciler) wait(key cache.ObjectName, service *corev1.Service, current []*discoveryv1.EndpointSlice) time.Duration {
	if c.written.StaleSlices(service, current) {
		if left := c.stale.Remaining(key, controller.LostEventPeriod); left > 0 {
			return left
		}
		c.written.DeleteService(key.Namespace, key.Name)
	}
	c.stale.End(key)
	return 0
}
