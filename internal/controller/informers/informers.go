// Package informers has the shared informers of the controllers: one cache per process for each
// resource that any of them reads.
//
// The informers are client-go's, from its SharedInformerFactory. Its type does not appear in the
// types here: a package that sees it, even in a field of a field, compiles eight methods for each
// of the three hundred resources of all versions. Twenty controllers each took longer for that than
// for their own code.
package informers

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Factory has the informers. An informer is created, and started, once it is requested.
type Factory struct {
	// Start starts the informers that exist, until the context ends.
	Start func(context.Context)
	// Shutdown waits until all informers have ended.
	Shutdown func()

	informer func(schema.GroupVersionResource) (cache.SharedIndexInformer, error)
}

// New returns a factory whose informers pass each object through a transformation before they store
// it.
func New(client kubernetes.Interface, transform cache.TransformFunc) *Factory {
	shared := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform))
	return &Factory{
		Start: shared.StartWithContext, Shutdown: shared.Shutdown,
		informer: func(resource schema.GroupVersionResource) (cache.SharedIndexInformer, error) {
			found, err := shared.ForResource(resource)
			if err != nil {
				return nil, err
			}
			return found.Informer(), nil
		},
	}
}

// Source is the informer of a resource, and a lister on its cache.
type Source[L any] struct {
	informer  cache.SharedIndexInformer
	newLister func(cache.Indexer) L
}

// source returns the source of a resource that this file names. client-go has informers for all of
// these.
func source[L any](f *Factory, version schema.GroupVersion, resource string, newLister func(cache.Indexer) L) Source[L] {
	informer, err := f.informer(version.WithResource(resource))
	if err != nil {
		panic(fmt.Sprintf("informers: %v", err))
	}
	return Source[L]{informer, newLister}
}

// Informer returns the informer.
func (s Source[L]) Informer() cache.SharedIndexInformer { return s.informer }

// Lister returns the lister.
func (s Source[L]) Lister() L { return s.newLister(s.informer.GetIndexer()) }
