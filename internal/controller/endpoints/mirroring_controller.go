package endpoints

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	// mirroringManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on these
	// slices.
	mirroringManagedBy = "endpointslicemirroring-controller.k8s.io"
	mirroringName      = "endpoint-slice-mirroring-controller"
	mirroringWorkers   = 1
)

type mirroringReconciler struct {
	client    kubernetes.Interface
	services  corelisters.ServiceLister
	endpoints corelisters.EndpointsLister
	slices    discoverylisters.EndpointSliceLister
	// written holds the expectations about the slices of Endpoints.
	written *controller.Expectations
	events  record.EventRecorder
}

// newMirroringController returns the controller that copies the Endpoints of Services without a selector
// to EndpointSlices: users write such Endpoints, and other clients read slices only. A mirroring slice is
// owned by its Endpoints and collected with them.
func newMirroringController(shared *controller.Context) *controller.Controller {
	services, endpoints, slices := shared.Informers.Services, shared.Informers.Endpoints, shared.Informers.EndpointSlices
	c := &mirroringReconciler{
		client: shared.Client, services: services.Lister(), endpoints: endpoints.Lister(), slices: slices.Lister(),
		written: controller.NewExpectations(slices.Informer().GetIndexer()), events: shared.Events(mirroringName),
	}
	return &controller.Controller{
		Name: mirroringName, Reconcile: c.reconcile, Workers: mirroringWorkers,
		Sources: []controller.Source{
			controller.For(endpoints.Informer(), c.written),
			controller.For(services.Informer()), // Endpoints have the name of their Service
			{Informer: slices.Informer(), Keys: endpointsOfSlice},
		},
	}
}

func endpointsOfSlice(obj any) []cache.ObjectName {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelManagedBy] != mirroringManagedBy || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil
	}
	return []cache.ObjectName{{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}}
}

func (c *mirroringReconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	endpoints, err := c.endpoints.Endpoints(key.Namespace).Get(key.Name)
	if controller.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if err != nil {
		endpoints = nil
	}
	service, err := c.services.Services(key.Namespace).Get(key.Name)
	if controller.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if err != nil {
		service = nil
	}
	stored, err := c.slices.EndpointSlices(key.Namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: key.Name, discoveryv1.LabelManagedBy: mirroringManagedBy,
	}))
	switch {
	case err != nil:
		return 0, err
	case !isMirrored(endpoints, service):
		return 0, c.carryOut(ctx, nil, mirroringPlan{Remove: stored})
	case endpoints.DeletionTimestamp != nil: // their slices belong to the garbage collector
		return 0, nil
	case !c.written.Satisfied(endpoints.UID):
		return controller.LostEventPeriod, nil // the awaited event enqueues the key earlier
	}
	err = c.carryOut(ctx, endpoints, decideMirroring(endpoints, stored))
	return controller.RequeueAfter(endpoints.UID, c.written), err
}

// carryOut executes a plan. Creations come first, so that no address is missing in between.
func (c *mirroringReconciler) carryOut(ctx context.Context, endpoints *corev1.Endpoints, p mirroringPlan) error {
	if p.Skipped > 0 && len(p.Create)+len(p.Update) > 0 {
		c.events.Eventf(endpoints, corev1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", perSubset, p.Skipped)
	}
	for _, slice := range p.Create {
		created, err := c.client.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{})
		switch {
		case controller.IsNamespaceTerminating(err):
			return nil
		case err != nil:
			return fmt.Errorf("create an endpoint slice for the endpoints of %s/%s: %w", endpoints.Namespace, endpoints.Name, err)
		}
		c.written.ExpectVersion(endpoints.UID, created.ResourceVersion)
	}
	for _, slice := range p.Update {
		updated, err := c.client.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("update endpoint slice %s/%s: %w", slice.Namespace, slice.Name, err)
		}
		c.written.ExpectVersion(endpoints.UID, updated.ResourceVersion)
	}
	return controller.AttemptAll(p.Remove, func(slice *discoveryv1.EndpointSlice) error { return c.remove(ctx, slice) })
}

func (c *mirroringReconciler) remove(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	if slice.DeletionTimestamp != nil {
		return nil
	}
	err := c.client.DiscoveryV1().EndpointSlices(slice.Namespace).Delete(ctx, slice.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &slice.UID, ResourceVersion: &slice.ResourceVersion},
	})
	if controller.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete endpoint slice %s/%s: %w", slice.Namespace, slice.Name, err)
	}
	return nil
}
