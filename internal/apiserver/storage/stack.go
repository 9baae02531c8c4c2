// Package storage keeps the API server's objects in etcd.
//
// Stack.RESTOptions makes every registry, of built-in kinds and of custom resources, open its storage here. A storage is
// this stack; calls pass through it from the top:
//
//	the caller's Wrap      deleteflow.Guard
//	onDemand               serves reads from etcd until the watch cache is necessary, and watches that begin
//	                       before the cache (ondemand.go)
//	listFallback           lists from etcd if a corrupt object keeps the cache empty (corrupt.go)
//	cacher.CacheDelegator  k8s.io/apiserver: reads from the watch cache, writes to the storage below
//	  cacher.Cacher        the watch cache; its clock is progressClock (progress.go); the layers
//	                       below fill it, too
//	window                 bounds the past events and states that the cache keeps (window.go), and is
//	                       emptied when the store is quiet (emptywindow.go); it notes the pods that an
//	                       informer in the process shares with the cache (sharedpods.go)
//	separateStreams        the cache's watch has its own stream to etcd (etcd.SeparateStreams)
//	corruptErrorStorage    errors name the object that cannot be read (corrupt.go)
//	etcd3.Store            k8s.io/apiserver: objects to bytes; its codec is expiringCodec, its decoder
//	                       and transformer are markCorrupt's (corrupt.go)
//	statusErrors           converts errors of etcd into API errors (statuserrors.go)
//	resourceClient         creations depend on their namespace and on their CustomResourceDefinition
//	                       (containers.go), which a deletion may close (closing.go); unique values are
//	                       reserved in the same transaction (unique.go)
//	etcd.Store             calls etcd, in this process or elsewhere (package etcd)
//
// Three of these work around a library. Their comments name the problem, the benefit, and the test that fails when that
// library changes: progressClock, window, expiringCodec. Package etcd has more, among them the streams of
// separateStreams.
package storage

import (
	"context"
	"path"
	"sync"
	"sync/atomic"

	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

// Kind is what one storage keeps: objects of a resource.
type Kind struct {
	Resource schema.GroupResource
	// New and NewList return an empty object and an empty list.
	New, NewList func() runtime.Object
	// Close closes an object that others are created in, by its name; nil for other resources.
	Close func(ctx context.Context, name string) (*Closing, error)
}

// Wrap decorates the storage of one resource.
type Wrap func(Kind, apistorage.Interface) apistorage.Interface

// Stack opens the storages of all resources in one store.
type Stack struct {
	store  *etcd.Store
	wrap   Wrap
	unique Unique

	namespaces     containers
	definitions    containers   // CustomResourceDefinitions
	custom         sync.Map     // the resources of their instances, schema.GroupResource
	heldForWatches atomic.Int64 // bytes, see clientWatch
	pods           *sharedPods
	opened         openStorages

	// The workarounds that benchmarks compare with upstream's behavior: the clock of the watch
	// caches, and the codec of the watches that fill them.
	cacheClock clock.WithTicker
	watchCodec func(codec runtime.Codec, corrupt *atomic.Bool) runtime.Codec
}

// New returns the stack on a store. A server needs one: all storages share its state. wrap, if not nil, wraps each
// storage as the outermost layer. unique defines the values that no two objects of a resource may share.
func New(store *etcd.Store, wrap Wrap, unique Unique) *Stack {
	return &Stack{
		store: store, wrap: wrap, unique: unique, cacheClock: progressClock{}, watchCodec: newExpiringCodec, pods: newSharedPods(),
		namespaces: containers{resource: corev1.Resource("namespaces")}, definitions: containers{resource: apiextensionsv1.Resource("customresourcedefinitions")},
	}
}

// containersOf returns the containers of a resource; nil for a resource that nothing is created in.
func (s *Stack) containersOf(resource schema.GroupResource) *containers {
	switch resource {
	case s.namespaces.resource:
		return &s.namespaces
	case s.definitions.resource:
		return &s.definitions
	default:
		return nil
	}
}

// RESTOptions returns options with which registries keep their objects in the store; all other options come from next.
func (s *Stack) RESTOptions(next generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return restOptions{next, s, func(schema.GroupResource) {}}
}

// InstanceOptions is like RESTOptions, for the instances of CustomResourceDefinitions.
func (s *Stack) InstanceOptions(next generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return restOptions{next, s, func(resource schema.GroupResource) { s.custom.Store(resource, true) }}
}

type restOptions struct {
	next  generic.RESTOptionsGetter
	stack *Stack
	note  func(schema.GroupResource) // is called with each resource
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o restOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.next.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	o.note(resource)
	options.Decorator = o.stack.open
	return options, nil
}

// open builds the storage of a resource: the stack in the package comment, bottom up. It is
// generic.StorageDecorator.
//
//nolint:revive // argument-limit: the signature is that of generic.StorageDecorator
func (s *Stack) open(
	config *storagebackend.ConfigForResource, resourcePrefix string,
	keyFunc func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
	attributes apistorage.AttrFunc, trigger apistorage.IndexerFuncs, indexers *cache.Indexers,
) (apistorage.Interface, factory.DestroyFunc, error) {
	versioner := apistorage.APIObjectVersioner{}
	transformer := config.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	var corrupt atomic.Bool
	decoder, transformer := markCorrupt(etcd3.NewDefaultDecoder(config.Codec, versioner), transformer, &corrupt)
	listed := countListed(decoder)
	reader := objectReader{decoder: decoder, transformer: transformer, newFunc: newFunc}
	prefix := path.Join("/", config.Prefix, resourcePrefix) + "/"
	s.store.AddResource(config.GroupResource, prefix)
	kind := Kind{Resource: config.GroupResource, New: newFunc, NewList: newListFunc}
	if containers := s.containersOf(config.GroupResource); containers != nil {
		containers.open(&containerReader{prefix, reader})
		kind.Close = func(ctx context.Context, name string) (*Closing, error) {
			return containers.close(ctx, s.store.Client(), name)
		}
	}
	client := s.resourceClient(config.GroupResource, prefix, s.unique[config.GroupResource].in(s.store, config.GroupResource, reader))
	watchCodec := withSharedSpecs(s.watchCodec(config.Codec, &corrupt), config.GroupResource)
	stored, err := etcd3.New(client, s.store.Compactor(), watchCodec, newFunc, newListFunc, config.Prefix, resourcePrefix,
		config.GroupResource, transformer, config.LeaseManagerConfig, listed, versioner)
	if err != nil {
		return nil, nil, err
	}
	plain := withCorruptErrors(stored, config.GroupResource)
	begin := func() (*watchCache, error) {
		direct := separateStreams{plain, etcd.SeparateStreams(config.GroupResource.String())}
		past := &window{newFunc: newFunc}
		if config.GroupResource == corev1.Resource("pods") {
			past.pods = s.pods
		}
		cached, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage: past.bounded(direct), Versioner: versioner, GroupResource: config.GroupResource,
			EventsHistoryWindow: config.EventsHistoryWindow, ResourcePrefix: resourcePrefix,
			KeyFunc: past.keyOf(keyFunc), NewFunc: newFunc, NewListFunc: newListFunc,
			GetAttrsFunc: past.attributesOf(attributes), IndexerFuncs: trigger, Indexers: indexers, Codec: config.Codec,
			Clock: s.cacheClock,
		})
		if err != nil {
			return nil, err
		}
		past.of(cached)
		return newWatchCache(cached, direct, &corrupt, s.store.AddWindow(past)), nil
	}
	demanded := newOnDemand(plain, begin, listed, s)
	s.opened.add(config.GroupResource, demanded)
	destroy := sync.OnceFunc(func() {
		s.opened.remove(demanded)
		demanded.stop()
		stored.Close()
	})
	var served apistorage.Interface = demanded
	if s.wrap != nil {
		served = s.wrap(kind, served)
	}
	return served, destroy, nil
}

// resourceClient returns the etcd client of a resource. Its keys begin with prefix.
func (s *Stack) resourceClient(resource schema.GroupResource, prefix string, unique *uniqueKeys) *etcdkubernetes.Client {
	client := &etcdkubernetes.Client{Client: s.store.Client()}
	inner := resourceClient{Interface: client, kv: client.KV, namespaces: &s.namespaces, resource: resource, prefix: prefix, unique: unique}
	if _, custom := s.custom.Load(resource); custom {
		inner.definition = func() container { return s.definitions.named(resource.String()) }
	}
	client.Kubernetes = statusErrors{inner}
	return client
}

// separateStreams is a storage whose watches have their own streams to etcd.
type separateStreams struct {
	apistorage.Interface
	separate func(context.Context) context.Context // etcd.SeparateStreams
}

// Watch implements storage.Interface.
func (s separateStreams) Watch(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	return s.Interface.Watch(s.separate(ctx), key, opts)
}

// RequestWatchProgress implements storage.Interface.
func (s separateStreams) RequestWatchProgress(ctx context.Context) error {
	return s.Interface.RequestWatchProgress(s.separate(ctx))
}
