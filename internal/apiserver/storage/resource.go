package storage

import (
	"context"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
)

// Wrap decorates the storage of one resource.
type Wrap func(schema.GroupResource, apistorage.Interface) apistorage.Interface

// RESTOptions returns options with which registries keep their objects in this store; all other
// options come from next. wrap, if not nil, wraps each storage as the outermost layer. unique
// defines the values that no two objects of a resource may share.
func (s *Store) RESTOptions(next generic.RESTOptionsGetter, wrap Wrap, unique Unique) generic.RESTOptionsGetter {
	return &restOptions{store: s, next: next, wrap: wrap, unique: unique}
}

type restOptions struct {
	store  *Store
	next   generic.RESTOptionsGetter
	wrap   Wrap
	unique Unique
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o *restOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.next.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	options.Decorator = o.open
	return options, nil
}

// open builds the storage of a resource: the stack in the package comment, bottom up. It is
// generic.StorageDecorator.
//
//nolint:revive // argument-limit: the signature is that of generic.StorageDecorator
func (o *restOptions) open(
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
	prefix := keysOf(config.Prefix, resourcePrefix)
	o.store.newest.open(config.GroupResource, prefix)
	if config.GroupResource == corev1.Resource("namespaces") {
		o.store.namespaces.open(&namespaceReader{prefix, reader})
	}
	client := o.store.resourceClient(config.GroupResource, prefix, o.unique[config.GroupResource].in(o.store, config.GroupResource, reader))
	watchCodec := withSharedSpecs(o.store.watchCodec(config.Codec, &corrupt), config.GroupResource)
	etcd, err := etcd3.New(client, o.store.compactor, watchCodec, newFunc, newListFunc, config.Prefix, resourcePrefix,
		config.GroupResource, transformer, config.LeaseManagerConfig, listed, versioner)
	if err != nil {
		return nil, nil, err
	}
	plain := withCorruptErrors(etcd, config.GroupResource)
	begin := func() (*watchCache, error) {
		direct := separateStreams{plain, &watchStreams{resource: config.GroupResource}}
		past := &window{newFunc: newFunc}
		cached, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage: past.bounded(direct), Versioner: versioner, GroupResource: config.GroupResource,
			EventsHistoryWindow: config.EventsHistoryWindow, ResourcePrefix: resourcePrefix,
			KeyFunc: past.keyOf(keyFunc), NewFunc: newFunc, NewListFunc: newListFunc,
			GetAttrsFunc: past.attributesOf(attributes), IndexerFuncs: trigger, Indexers: indexers, Codec: config.Codec,
			Clock: o.store.cacheClock,
		})
		if err != nil {
			return nil, err
		}
		past.of(cached)
		return newWatchCache(cached, direct, &corrupt, o.store.windows.add(past)), nil
	}
	demanded := newOnDemand(plain, begin, listed, o.store)
	destroy := sync.OnceFunc(func() {
		demanded.stop()
		etcd.Close()
	})
	var served apistorage.Interface = demanded
	if o.wrap != nil {
		served = o.wrap(config.GroupResource, served)
	}
	return served, destroy, nil
}

// resourceClient returns the etcd client of a resource. Its keys begin with prefix.
func (s *Store) resourceClient(resource schema.GroupResource, prefix string, unique *uniqueKeys) *etcdkubernetes.Client {
	client := &etcdkubernetes.Client{Client: s.client}
	client.Kubernetes = statusErrors{resourceClient{
		Interface: client, kv: s.client.KV, namespaces: &s.namespaces, log: &s.raftLog,
		resource: resource, prefix: prefix, unique: unique,
	}}
	return client
}

// announceEtcdFeatures tells k8s.io/apiserver that this etcd supports progress requests for
// watches. Otherwise, k8s.io/apiserver would check this over a connection. Without the feature, the
// watch cache does not serve consistent and streaming lists.
func announceEtcdFeatures(ctx context.Context) {
	feature.DefaultFeatureSupportChecker.CheckClient(ctx, inProcess{}, apistorage.RequestWatchProgress)
}

// inProcess is an etcd client that only returns the version of its endpoint.
type inProcess struct{}

// Endpoints returns the only endpoint.
func (inProcess) Endpoints() []string { return []string{"in-process"} }

// Status returns the version of the etcd in this binary.
func (inProcess) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: version.Version}, nil
}
