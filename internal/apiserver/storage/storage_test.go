package storage

import (
	"context"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
)

// open opens an ephemeral store for one test.
func open(t testing.TB) *Store {
	t.Helper()
	s, err := Open(context.Background(), Options{Dir: t.TempDir(), Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// noOptions are the options of registries before the store's.
type noOptions struct{}

func (noOptions) GetRESTOptions(schema.GroupResource, runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{}, nil
}

// objects is the storage of one resource, with the keys of its registry.
type objects struct {
	apistorage.Interface
	prefix string
}

func (o objects) key(namespace, name string) string {
	if namespace == "" {
		return o.prefix + "/" + name
	}
	return o.prefix + "/" + namespace + "/" + name
}

// codec is the codec of the server's registries, which stores protobuf.
func codec(t testing.TB) runtime.Codec {
	t.Helper()
	codecs := builtin.NewSchemes().Codecs
	binary, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("there is no protobuf")
	}
	return codecs.CodecForVersions(binary.Serializer, codecs.UniversalDeserializer(), schema.GroupVersions{corev1.SchemeGroupVersion}, runtime.InternalGroupVersioner)
}

// storageOf opens the storage of a resource, as its registry would.
func (s *Store) storageOf(t testing.TB, resource string, obj, list runtime.Object, wrap Wrap) objects {
	t.Helper()
	kind := corev1.Resource(resource)
	options, err := s.RESTOptions(noOptions{}, wrap, Unique{corev1.Resource("uniques"): valuesOf}).GetRESTOptions(kind, obj)
	if err != nil {
		t.Fatal(err)
	}
	config := &storagebackend.ConfigForResource{GroupResource: kind, Config: storagebackend.Config{
		Prefix: s.Prefix(), EventsHistoryWindow: storagebackend.DefaultEventsHistoryWindow, Codec: codec(t),
	}}
	prefix := "/" + resource
	keyOf := func(obj runtime.Object) (string, error) {
		m, err := meta.Accessor(obj)
		if err != nil {
			return "", err
		}
		return objects{prefix: prefix}.key(m.GetNamespace(), m.GetName()), nil
	}
	opened, destroy, err := options.Decorator(config, prefix, keyOf,
		obj.DeepCopyObject, list.DeepCopyObject,
		func(obj runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil }, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	return objects{opened, prefix}
}

func (s *Store) namespaceStorage(t testing.TB) objects {
	t.Helper()
	return s.storageOf(t, "namespaces", &corev1.Namespace{}, &corev1.NamespaceList{}, nil)
}

func (s *Store) configMapStorage(t testing.TB) objects {
	t.Helper()
	return s.storageOf(t, "configmaps", &corev1.ConfigMap{}, &corev1.ConfigMapList{}, nil)
}

// create creates an object.
func (o objects) create(namespace, name string) error {
	var obj, out runtime.Object = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}, &corev1.Namespace{}
	if namespace != "" {
		obj, out = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, &corev1.ConfigMap{}
	}
	return o.Create(context.Background(), o.key(namespace, name), obj, out, 0)
}

// change changes an object, or creates it if it does not exist.
func (o objects) change(namespace, name string, f func(obj runtime.Object)) error {
	var out runtime.Object = &corev1.Namespace{}
	if namespace != "" {
		out = &corev1.ConfigMap{}
	}
	return o.GuaranteedUpdate(context.Background(), o.key(namespace, name), out, true, nil,
		apistorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			f(obj)
			return obj, nil
		}), nil)
}

func (o objects) remove(namespace, name string) error {
	var out runtime.Object = &corev1.Namespace{}
	if namespace != "" {
		out = &corev1.ConfigMap{}
	}
	return o.Delete(context.Background(), o.key(namespace, name), out, nil, apistorage.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{})
}

// names returns the names of the objects that etcd has in a namespace.
func (o objects) names(t testing.TB, s *Store, namespace string) []string {
	t.Helper()
	prefix := s.Prefix() + o.key(namespace, "")
	response, err := s.client.Get(context.Background(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, kv := range response.Kvs {
		names = append(names, strings.TrimPrefix(string(kv.Key), prefix))
	}
	return names
}
