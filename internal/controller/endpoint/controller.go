// Package endpoint maintains the Endpoints of Services that select pods, for clients that do not know
// EndpointSlices. They have the name of their Service. They have no owner references, so this
// controller deletes them when the Service is gone, not the garbage collector.
package endpoint

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
	"github.com/coppice-dev/coppice/internal/controller/servicepods"
)

const (
	name    = "endpoint-controller"
	workers = 2
)

type reconciler struct {
	client    kubernetes.Interface
	services  corelisters.ServiceLister
	endpoints corelisters.EndpointsLister
	reached   servicepods.Finder
	triggers  *endpointsliceutil.TriggerTimeTracker
	events    record.EventRecorder
}

// New returns the controller of Endpoints.
func New(shared *controller.Context) *controller.Controller {
	services, endpoints := shared.Informers.Core().V1().Services(), shared.Informers.Core().V1().Endpoints()
	c := &reconciler{
		client: shared.Client, services: services.Lister(), endpoints: endpoints.Lister(), reached: servicepods.New(shared),
		triggers: endpointsliceutil.NewTriggerTimeTracker(), events: shared.Events(name),
	}
	return &controller.Controller{
		Name: name, Reconcile: c.reconcile, Workers: workers,
		Sources: []controller.Source{
			controller.For(services.Informer()),
			{Informer: shared.Informers.Core().V1().Pods().Informer(), Keys: c.reached.Selecting},
			{Informer: endpoints.Informer(), Keys: managed},
		},
	}
}

// managed returns the key of Endpoints of this controller, which is also the key of their Service.
// Endpoints of other clients may exist before their Service.
func managed(obj any) []cache.ObjectName {
	e, ok := obj.(*corev1.Endpoints)
	if !ok || e.Labels[managedByLabel] != managedBy {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(e)}
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
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
	case service.DeletionTimestamp != nil, !servicepods.Selects(service):
		return 0, nil
	}
	pods, err := c.reached.Selected(service)
	if err != nil {
		return 0, err
	}
	triggered := c.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)
	if next := Decide(service, pods, stored, triggered); next != nil {
		return 0, c.write(ctx, service, stored, next)
	}
	return 0, nil
}

// remove deletes the Endpoints of a Service that is gone, also if another client wrote them. If the
// cache shows none, they are read live: the cache may lag, and Endpoints of other clients do not
// enqueue a key later. Endpoints that hold an old leader election never had a Service.
func (c *reconciler) remove(ctx context.Context, key cache.ObjectName, stored *corev1.Endpoints) error {
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
func (c *reconciler) write(ctx context.Context, service *corev1.Service, stored, next *corev1.Endpoints) error {
	var err error
	reason := "FailedToUpdateEndpoint"
	if stored == nil {
		reason = "FailedToCreateEndpoint"
		_, err = c.client.CoreV1().Endpoints(next.Namespace).Create(ctx, next, metav1.CreateOptions{})
	} else {
		_, err = c.client.CoreV1().Endpoints(next.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	}
	switch {
	case err == nil, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err): // the cache was stale
	default:
		c.events.Eventf(service, corev1.EventTypeWarning, reason, "Failed to write the endpoints of service %s/%s: %v", service.Namespace, service.Name, err)
	}
	return fmt.Errorf("write the endpoints of %s/%s: %w", next.Namespace, next.Name, err)
}
