package endpoints

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	endpointsName    = "endpoint-controller"
	endpointsWorkers = 2
)

type endpointsReconciler struct {
	client    kubernetes.Interface
	services  corelisters.ServiceLister
	endpoints corelisters.EndpointsLister
	reached   podFinder
	triggers  *endpointsliceutil.TriggerTimeTracker
	events    record.EventRecorder
}

// newEndpointsController returns the controller of Endpoints of Services that select pods, for clients
// that do not know EndpointSlices. They have the name of their Service. They have no owner references,
// so this controller deletes them when the Service is gone, not the garbage collector.
func newEndpointsController(shared *controller.Context) *controller.Controller {
	services, endpoints := shared.Informers.Services, shared.Informers.Endpoints
	c := &endpointsReconciler{
		client: shared.Client, services: services.Lister(), endpoints: endpoints.Lister(), reached: newPodFinder(shared),
		triggers: endpointsliceutil.NewTriggerTimeTracker(), events: shared.Events(endpointsName),
	}
	return &controller.Controller{
		Name: endpointsName, Reconcile: c.reconcile, Workers: endpointsWorkers,
		Sources: []controller.Source{
			controller.For(services.Informer()),
			{Informer: shared.Informers.Pods.Informer(), Keys: c.reached.selecting},
			{Informer: endpoints.Informer(), Keys: keyOfManaged},
		},
	}
}

// keyOfManaged returns the key of Endpoints of this controller, which is also the key of their Service.
// Endpoints of other clients may exist before their Service.
func keyOfManaged(obj any) []cache.ObjectName {
	e, ok := obj.(*corev1.Endpoints)
	if !ok || e.Labels[managedByLabel] != endpointsManagedBy {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(e)}
}

func (c *endpointsReconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	stored, err := c.endpoints.Endpoints(key.Namespace).Get(key.Name)
	if controller.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if err != nil {
		stored = nil
	}
	service, err := c.services.Services(key.Namespace).Get(key.Name)
	switch {
	case apierrors.IsNotFound(err):
		c.triggers.DeleteService(key.Namespace, key.Name)
		return 0, c.remove(ctx, key, stored)
	case err != nil:
		return 0, err
	case service.DeletionTimestamp != nil, !selects(service):
		return 0, nil
	}
	pods, err := c.reached.selected(service)
	if err != nil {
		return 0, err
	}
	triggered := c.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)
	if next := decideEndpoints(service, pods, stored, triggered); next != nil {
		return 0, c.write(ctx, service, stored, next)
	}
	return 0, nil
}

// remove deletes the Endpoints of a Service that is gone, also if another client wrote them. If the
// cache shows none, they are read live: the cache may lag, and Endpoints of other clients do not
// enqueue a key later. Endpoints that hold an old leader election never had a Service.
func (c *endpointsReconciler) remove(ctx context.Context, key cache.ObjectName, stored *corev1.Endpoints) error {
	if stored == nil {
		live, err := c.client.CoreV1().Endpoints(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil {
			return controller.IgnoreNotFound(err)
		}
		stored = live
	}
	if _, election := stored.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]; election || stored.DeletionTimestamp != nil {
		return nil
	}
	err := c.client.CoreV1().Endpoints(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion},
	})
	if controller.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the endpoints of %s: %w", key, err)
	}
	return nil
}

// write creates or updates Endpoints. An update is conditioned on the uid and the resourceVersion of
// the object.
func (c *endpointsReconciler) write(ctx context.Context, service *corev1.Service, stored, next *corev1.Endpoints) error {
	var err error
	reason := "FailedToUpdateEndpoint"
	if stored == nil {
		reason = "FailedToCreateEndpoint"
		_, err = c.client.CoreV1().Endpoints(next.Namespace).Create(ctx, next, metav1.CreateOptions{})
	} else {
		_, err = c.client.CoreV1().Endpoints(next.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	}
	switch {
	case err == nil, controller.IsNamespaceTerminating(err):
		return nil
	case controller.IsConflict(err), controller.IsAlreadyExists(err), controller.IsNotFound(err): // the cache was stale
	default:
		c.events.Eventf(service, corev1.EventTypeWarning, reason, "Failed to write the endpoints of service %s/%s: %v", service.Namespace, service.Name, err)
	}
	return fmt.Errorf("write the endpoints of %s/%s: %w", next.Namespace, next.Name, err)
}
