package kubernetesservice

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// key is the key of all objects except the slices beyond the first.
const key = metav1.NamespaceDefault + "/" + name

// caches hold the stored objects of the Service, and no others of their kinds.
type caches struct {
	services, endpoints, slices cache.SharedIndexInformer
}

func newCaches(client kubernetes.Interface) caches {
	named := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
	ofService := func(o *metav1.ListOptions) {
		o.LabelSelector = labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: name}).String()
	}
	const namespace = metav1.NamespaceDefault
	return caches{
		services:  coreinformers.NewFilteredServiceInformer(client, namespace, 0, cache.Indexers{}, named),
		endpoints: coreinformers.NewFilteredEndpointsInformer(client, namespace, 0, cache.Indexers{}, named),
		slices:    discoveryinformers.NewFilteredEndpointSliceInformer(client, namespace, 0, cache.Indexers{}, ofService),
	}
}

func (c caches) all() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{c.services, c.endpoints, c.slices}
}

// cached returns the object with a key, or nil.
func cached[T any](from cache.SharedIndexInformer, key string) *T {
	obj, exists, err := from.GetStore().GetByKey(key)
	if err != nil || !exists {
		return nil // a store returns no errors
	}
	found, _ := obj.(*T)
	return found
}

// client is a client of the objects of one kind in the namespace.
type client[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*T, error)
	Create(ctx context.Context, obj *T, options metav1.CreateOptions) (*T, error)
	Update(ctx context.Context, obj *T, options metav1.UpdateOptions) (*T, error)
}

// keep creates an object, or corrects the stored one. The update is conditioned on the uid and the
// resourceVersion of the object that was corrected.
func keep[T any](ctx context.Context, to client[T], name string, stored, desired *T, corrected func(stored, desired *T) *T) error {
	if stored == nil {
		_, err := to.Create(ctx, desired, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		// The cache is behind, or leaves out an object that has lost its labels.
		if stored, err = to.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	next := corrected(stored, desired)
	if next == nil {
		return nil
	}
	_, err := to.Update(ctx, next, metav1.UpdateOptions{})
	return err
}

func (p *Publisher) keepService(ctx context.Context, desired *corev1.Service) error {
	stored := cached[corev1.Service](p.caches.services, key)
	if err := keep(ctx, p.Client.CoreV1().Services(desired.Namespace), name, stored, desired, correctedService); err != nil {
		return fmt.Errorf("keep the service %s: %w", key, err)
	}
	return nil
}

func (p *Publisher) keepEndpoints(ctx context.Context, desired *corev1.Endpoints) error {
	stored := cached[corev1.Endpoints](p.caches.endpoints, key)
	if err := keep(ctx, p.Client.CoreV1().Endpoints(desired.Namespace), name, stored, desired, correctedEndpoints); err != nil {
		return fmt.Errorf("keep the endpoints %s: %w", key, err)
	}
	return nil
}

// keepSlices also removes slices of this package that are no longer desired.
func (p *Publisher) keepSlices(ctx context.Context, desired []*discoveryv1.EndpointSlice) error {
	var errs []error
	for _, s := range desired {
		if err := p.keepSlice(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("keep the endpoint slice %s/%s: %w", s.Namespace, s.Name, err))
		}
	}
	for _, obj := range p.caches.slices.GetStore().List() {
		if stored, ok := obj.(*discoveryv1.EndpointSlice); ok && surplus(stored, desired) {
			errs = append(errs, p.remove(ctx, stored))
		}
	}
	return errors.Join(errs...)
}

func (p *Publisher) keepSlice(ctx context.Context, desired *discoveryv1.EndpointSlice) error {
	stored := cached[discoveryv1.EndpointSlice](p.caches.slices, desired.Namespace+"/"+desired.Name)
	if stored != nil && stored.AddressType != desired.AddressType {
		if err := p.remove(ctx, stored); err != nil {
			return err
		}
		stored = nil
	}
	return keep(ctx, p.Client.DiscoveryV1().EndpointSlices(desired.Namespace), desired.Name, stored, desired, correctedSlice)
}

func (p *Publisher) remove(ctx context.Context, stored *discoveryv1.EndpointSlice) error {
	err := p.Client.DiscoveryV1().EndpointSlices(stored.Namespace).Delete(ctx, stored.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the endpoint slice %s/%s: %w", stored.Namespace, stored.Name, err)
	}
	return nil
}
