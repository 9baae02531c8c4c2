package apiserver

import (
	"context"

	"go.opentelemetry.io/otel/trace/noop"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/registry/generic"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// collectionWorkers is the number of custom resources that a deletion of a collection deletes concurrently;
// the registries of the built-in kinds have their own limit.
const collectionWorkers = 8

// options are the storage options of the registries.
type options struct {
	builtin generic.RESTOptionsGetter // of built-in kinds
	custom  generic.RESTOptionsGetter // of the instances of custom resources
	stack   *storage.Stack
}

// restOptions sets up the storage of all resources in the store, behind the delete flow. It also sets, in the base of
// the foundation, the storage of CustomResourceDefinitions, which have a scheme of their own.
func restOptions(c completedConfig, f *foundation, flow *deleteflow.Flow) options {
	etcd := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(c.Store.Prefix(), nil))
	etcd.StorageConfig.Transport.TracerProvider = noop.NewTracerProvider()
	etcd.StorageConfig.StorageObjectCountTracker = f.base.StorageObjectCountTracker
	etcd.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	etcd.EnableGarbageCollection = c.Features.Collector
	etcd.DeleteCollectionWorkers = collectionWorkers
	// k8s.io/apiserver would check etcd over the network; baseConfig has a check of its own.
	etcd.SkipHealthEndpoints = true

	factory := serverstorage.NewDefaultStorageFactory(etcd.StorageConfig, etcd.DefaultStorageMediaType, f.schemes.Codecs,
		serverstorage.NewDefaultResourceEncodingConfigForEffectiveVersion(f.schemes.Hub, f.base.EffectiveVersion), serverstorage.NewResourceConfig(), nil)

	definitions := *etcd
	definitions.StorageConfig.Codec = definitionCodec()
	definitions.StorageConfig.EncodeVersioner = runtime.NewMultiGroupVersioner(apiextensionsv1.SchemeGroupVersion, schema.GroupKind{Group: apiextensionsv1.GroupName})

	establisher, faults := f.establisher, f.faults
	guard := func(k storage.Kind, inner apistorage.Interface) apistorage.Interface {
		return flow.Guard(k.Resource, closerOf(k), establisher.Wrap(k.Resource, faults.Wrap(k, inner)))
	}
	stack := storage.New(c.Store, guard, unique())
	f.base.RESTOptionsGetter = stack.RESTOptions(definitions.CreateRESTOptionsGetter(&genericoptions.SimpleStorageFactory{StorageConfig: definitions.StorageConfig}, nil))
	// A policy or webhook for deployments of apps/v1 sees those of extensions/v1beta1 too, unless it wants exact matches.
	f.base.EquivalentResourceRegistry = runtime.NewEquivalentResourceRegistryWithIdentity(func(r schema.GroupResource) string { return flow.StoredAs(r).String() })
	return options{
		builtin: stack.RESTOptions(etcd.CreateRESTOptionsGetter(factory, nil)),
		custom:  stack.InstanceOptions(apiextensionsoptions.NewCRDRESTOptionsGetter(definitions, nil, f.base.StorageObjectCountTracker)),
		stack:   stack,
	}
}

// closerOf returns how the delete flow closes an object of a kind; nil if nothing is created in it.
func closerOf(k storage.Kind) deleteflow.Closer {
	if k.Close == nil {
		return nil
	}
	return func(ctx context.Context, name string) (deleteflow.Closed, error) { return k.Close(ctx, name) }
}

// definitionCodec returns the codec of stored CustomResourceDefinitions: protobuf, which takes a fraction
// of the time of JSON for schemas with many fields. It also reads JSON, which earlier versions stored. It
// stores the same version as upstream: v1beta1 contains a schema only once if all versions have the same
// one.
func definitionCodec() runtime.Codec {
	codecs, versions := apiextensions.Codecs, schema.GroupVersions{v1beta1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion}
	binary := protobuf.NewSerializer(apiextensions.Scheme, apiextensions.Scheme)
	return codecs.CodecForVersions(binary, codecs.UniversalDeserializer(), versions, runtime.InternalGroupVersioner)
}

// unique returns the values that two objects of a built-in kind may not share.
func unique() storage.Unique {
	all := storage.Unique{}
	for _, k := range builtin.Resources() {
		if k.Strategy.Unique != nil {
			all[k.GroupResource()] = k.Strategy.Unique
		}
	}
	return all
}
