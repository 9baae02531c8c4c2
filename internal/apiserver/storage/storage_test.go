package storage

import (
	"context"
	"log/slog"
	"os"
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
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/testing/etcdcluster"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // tests provoke errors
	os.Exit(m.Run())
}

// stacks returns the ways to keep objects: in this process, and in an etcd cluster.
func stacks() map[string]func(testing.TB) *Stack {
	return map[string]func(testing.TB) *Stack{
		"in process": open,
		"elsewhere":  func(t testing.TB) *Stack { return connect(t, etcdcluster.Start(t, 1, nil)) },
	}
}

// open returns the stack on an ephemeral store for one test.
func open(t testing.TB) *Stack {
	t.Helper()
	return openWith(t, etcd.Options{Dir: t.TempDir(), Ephemeral: true})
}

// openWith returns the stack on a store in this process for one test.
func openWith(t testing.TB, o etcd.Options) *Stack {
	t.Helper()
	store, err := etcd.Open(context.Background(), o)
	must(t, err)
	return on(t, store)
}

// connect returns the stack on a cluster.
func connect(t testing.TB, c *etcdcluster.Cluster) *Stack {
	t.Helper()
	store, err := etcd.Connect(context.Background(), etcd.Cluster{Servers: c.URLs()})
	must(t, err)
	return on(t, store)
}

// on returns the stack on a store, which the end of the test closes.
func on(t testing.TB, store *etcd.Store) *Stack {
	t.Helper()
	t.Cleanup(func() { must(t, store.Close()) })
	return New(store, nil, Unique{corev1.Resource("uniques"): valuesOf})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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
func (s *Stack) storageOf(t testing.TB, resource string, obj, list runtime.Object) objects {
	t.Helper()
	kind := corev1.Resource(resource)
	options, err := s.RESTOptions(noOptions{}).GetRESTOptions(kind, obj)
	if err != nil {
		t.Fatal(err)
	}
	config := &storagebackend.ConfigForResource{GroupResource: kind, Config: storagebackend.Config{
		Prefix: s.store.Prefix(), EventsHistoryWindow: storagebackend.DefaultEventsHistoryWindow, Codec: codec(t),
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

func (s *Stack) namespaceStorage(t testing.TB) objects {
	t.Helper()
	return s.storageOf(t, "namespaces", &corev1.Namespace{}, &corev1.NamespaceList{})
}

func (s *Stack) configMapStorage(t testing.TB) objects {
	t.Helper()
	return s.storageOf(t, "configmaps", &corev1.ConfigMap{}, &corev1.ConfigMapList{})
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
func (o objects) names(t testing.TB, s *Stack, namespace string) []string {
	t.Helper()
	prefix := s.store.Prefix() + o.key(namespace, "")
	response, err := s.store.Client().Get(context.Background(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, kv := range response.Kvs {
		names = append(names, strings.TrimPrefix(string(kv.Key), prefix))
	}
	return names
}

// Each storage is wrapped, with the name of its resource, by the outermost layer.
func TestStorageIsWrapped(t *testing.T) {
	type outermost struct{ apistorage.Interface }
	var asked []schema.GroupResource
	s := New(open(t).store, func(k Kind, inner apistorage.Interface) apistorage.Interface {
		asked = append(asked, k.Resource)
		if _, ok := k.New().(*corev1.ConfigMap); !ok {
			t.Errorf("a new object is a %T", k.New())
		}
		if _, ok := k.NewList().(*corev1.ConfigMapList); !ok {
			t.Errorf("a new list is a %T", k.NewList())
		}
		return outermost{inner}
	}, nil)
	wrapped := s.configMapStorage(t)
	if _, ok := wrapped.Interface.(outermost); !ok || len(asked) != 1 || asked[0] != corev1.Resource("configmaps") {
		t.Errorf("a %T, asked for %v", wrapped.Interface, asked)
	}
	must(t, wrapped.create("team", "a"))
}

// R15: the store knows the last write of each resource whose storage was opened.
func TestR15_NewestHasTheResourcesOfTheStack(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("team", "a"))
	written, err := s.store.Revision(t.Context())
	must(t, err)
	newest, err := s.store.Newest(t.Context())
	must(t, err)
	if got, ok := newest.Writes["configmaps"]; !ok || got != written {
		t.Errorf("the last write is %d, want %d: %v", got, written, newest.Writes)
	}
}
