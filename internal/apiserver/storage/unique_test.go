package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/testing/etcdcluster"
)

// valuesOf returns the values of a ConfigMap's entries, which are unique in these tests.
func valuesOf(obj runtime.Object) []string {
	return slices.Collect(maps.Values(obj.(*corev1.ConfigMap).Data))
}

func having(values ...string) func(runtime.Object) {
	return func(obj runtime.Object) {
		cm := obj.(*corev1.ConfigMap)
		cm.Data = map[string]string{}
		for i, value := range values {
			cm.Data[fmt.Sprint(i)] = value
		}
	}
}

// uniqueStorage returns a storage of objects with unique values, in an existing namespace.
func (s *Stack) uniqueStorage(t *testing.T) objects {
	t.Helper()
	must(t, s.namespaceStorage(t).create("", "default"))
	return s.storageOf(t, "uniques", &corev1.ConfigMap{}, &corev1.ConfigMapList{})
}

func (o objects) make(name string, values ...string) error {
	obj := &corev1.ConfigMap{}
	obj.Namespace, obj.Name = "default", name
	having(values...)(obj)
	return o.Create(context.Background(), o.key("default", name), obj, &corev1.ConfigMap{}, 0)
}

// held returns the reservations, as value=name.
func (s *Stack) held(t *testing.T) string {
	t.Helper()
	prefix := s.store.UniquePrefix()
	r, err := s.store.Client().Get(context.Background(), prefix, clientv3.WithPrefix())
	must(t, err)
	var held []string
	for _, kv := range r.Kvs {
		holder := string(kv.Value)
		held = append(held, strings.TrimPrefix(string(kv.Key), prefix+"uniques/")+"="+holder[strings.LastIndex(holder, "/")+1:])
	}
	return strings.Join(held, " ")
}

func TestUniqueValuesFollowTheirObjects(t *testing.T) {
	s := open(t)
	o := s.uniqueStorage(t)
	isTaken := func(err error, value, by string) {
		t.Helper()
		taken, ok := errors.AsType[allocation.TakenError](err)
		if !ok || taken.Value != value || !strings.HasSuffix(taken.Holder, "/"+by) {
			t.Errorf("%v, want that %s has %s", err, by, value)
		}
	}
	holds := func(want string) {
		t.Helper()
		if got := s.held(t); got != want {
			t.Errorf("held: %s, want %s", got, want)
		}
	}
	must(t, o.make("a", "1", "2", "2"))
	isTaken(o.make("b", "3", "2"), "2", "a")
	holds("1=a 2=a")
	if err := o.make("a", "9"); !apistorage.IsExist(err) {
		t.Errorf("the same name: %v", err)
	}
	must(t, o.make("b", "3"))

	isTaken(o.change("default", "b", having("2", "4")), "2", "a")
	holds("1=a 2=a 3=b")
	must(t, o.change("default", "b", having("4")))
	must(t, o.change("default", "a", having("1", "3")))
	holds("1=a 3=a 4=b")

	must(t, o.remove("default", "a"))
	holds("4=b")
	must(t, o.make("c", "1"))
	must(t, o.change("default", "d", func(obj runtime.Object) { // a PUT that creates
		obj.(*corev1.ConfigMap).Namespace, obj.(*corev1.ConfigMap).Name = "default", "d"
		having("5")(obj)
	}))
	holds("1=c 4=b 5=d")
}

// numbered returns values: the numbers from one to another one.
func numbered(from, to int) []string {
	var values []string
	for n := from; n < to; n++ {
		values = append(values, fmt.Sprintf("%04d", n))
	}
	return values
}

// TestManyUniqueValuesAreFreed checks that an object that got many values in several writes can free all of them in one,
// although etcd limits the operations of a transaction: otherwise it could never be deleted.
func TestManyUniqueValuesAreFreed(t *testing.T) {
	for name, s := range map[string]*Stack{"in this process": open(t), "with the default limit": connect(t, etcdcluster.Start(t, 1, nil))} {
		o := s.uniqueStorage(t)
		grown := func(to int) {
			t.Helper()
			must(t, o.make("a", numbered(0, 90)...))
			for n := 180; n <= to; n += 90 {
				must(t, o.change("default", "a", having(numbered(0, n)...)))
			}
		}
		grown(720)
		must(t, o.change("default", "a", having(numbered(720, 810)...))) // frees all, and reserves as many as the error names
		if held := strings.Fields(s.held(t)); len(held) != 90 || held[0] != "0720=a" || held[89] != "0809=a" {
			t.Errorf("%s: held after an update: %v", name, held)
		}
		must(t, o.remove("default", "a"))
		if held := s.held(t); held != "" {
			t.Errorf("%s: held after the removal: %s", name, held)
		}
		grown(270)
		damaged, err := s.store.Client().Put(t.Context(), "/registry/uniques/default/a", "damage")
		must(t, err)
		client := s.resourceClient(corev1.Resource("uniques"), "/registry/uniques/", Values(valuesOf).in(s.store, corev1.Resource("uniques"), readerOf(t)))
		gone, err := client.Kubernetes.OptimisticDelete(t.Context(), "/registry/uniques/default/a", damaged.Header.Revision, etcdkubernetes.DeleteOptions{})
		if held := s.held(t); err != nil || !gone.Succeeded || held != "" {
			t.Errorf("%s: the removal of a damaged object: %+v, %v; held: %s", name, gone, err, held)
		}
	}
}

// TestManyNewUniqueValues checks that a write may reserve more values than etcd's default limit, and that the refusal of an
// etcd in another process names the limit.
func TestManyNewUniqueValues(t *testing.T) {
	const (
		many   = 3000 // more than there are node ports
		others = 200  // more than the default limit. A write that frees and reserves many takes etcd too long on busy machines.
	)
	here := open(t)
	o := here.uniqueStorage(t)
	must(t, o.make("a", numbered(0, many)...))
	must(t, o.change("default", "a", having(numbered(many, many+others)...)))
	if held := strings.Fields(here.held(t)); len(held) != others {
		t.Errorf("%d are held", len(held))
	}
	must(t, o.remove("default", "a"))

	elsewhere := connect(t, etcdcluster.Start(t, 1, nil))
	o = elsewhere.uniqueStorage(t)
	must(t, o.make("b", "one"))
	for what, err := range map[string]error{
		"creation": o.make("a", numbered(0, 130)...), "update": o.change("default", "b", having(numbered(0, 130)...)),
	} {
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "--max-txn-ops") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if held := elsewhere.held(t); held != "one=b" {
		t.Errorf("held: %s", held)
	}
}

// The values of an object are freed even if the object can no longer be decoded.
func TestRemovedDamagedObjectFreesItsUniqueValues(t *testing.T) {
	s := open(t)
	o := s.uniqueStorage(t)
	must(t, o.make("a", "1", "2"))
	must(t, o.make("b", "3"))
	ctx := context.Background()
	damaged, err := s.store.Client().Put(ctx, "/registry/uniques/default/a", "damage")
	must(t, err)
	client := s.resourceClient(corev1.Resource("uniques"), "/registry/uniques/", Values(valuesOf).in(s.store, corev1.Resource("uniques"), readerOf(t)))
	gone, err := client.Kubernetes.OptimisticDelete(ctx, "/registry/uniques/default/a", damaged.Header.Revision, etcdkubernetes.DeleteOptions{})
	if err != nil || !gone.Succeeded {
		t.Errorf("%+v, %v", gone, err)
	}
	if held := s.held(t); held != "3=b" {
		t.Errorf("held: %s", held)
	}
}

// readerOf reads ConfigMaps as a storage does.
func readerOf(t *testing.T) objectReader {
	t.Helper()
	codec := builtin.NewSchemes().Codecs.LegacyCodec(corev1.SchemeGroupVersion)
	decoder, transformer := markCorrupt(etcd3.NewDefaultDecoder(codec, apistorage.APIObjectVersioner{}), identity.NewEncryptCheckTransformer(), new(atomic.Bool))
	return objectReader{decoder: decoder, transformer: transformer, newFunc: func() runtime.Object { return &corev1.ConfigMap{} }}
}

// TestRemovedObjectKeepsTheValueOfAnother checks that the removal of an object frees no value that another object has
// reserved.
func TestRemovedObjectKeepsTheValueOfAnother(t *testing.T) {
	s := open(t)
	o := s.uniqueStorage(t)
	must(t, o.make("a", "1", "2", "3"))
	for _, value := range []string{"1", "2"} {
		_, err := s.store.Client().Put(t.Context(), s.store.UniquePrefix()+"uniques/"+value, "/registry/uniques/default/b")
		must(t, err)
	}
	must(t, o.change("default", "a", having("2", "3")))
	if held := s.held(t); held != "1=b 2=b 3=a" {
		t.Errorf("after a change: %s", held)
	}
	must(t, o.remove("default", "a"))
	if held := s.held(t); held != "1=b 2=b" {
		t.Errorf("after the removal: %s", held)
	}
}

// TestUniqueValuesArePerPrefix checks that control planes that share etcd, with different prefixes, share no values, and
// that the reservations of the default prefix are where they always were.
func TestUniqueValuesArePerPrefix(t *testing.T) {
	cluster := etcdcluster.Start(t, 1, nil)
	for _, prefix := range []string{"", "/a", "/b", "/a/b"} {
		store, err := etcd.Connect(t.Context(), etcd.Cluster{Servers: cluster.URLs(), Prefix: prefix})
		must(t, err)
		s := on(t, store)
		o := s.uniqueStorage(t)
		must(t, o.make("a", "1"))
		if _, ok := errors.AsType[allocation.TakenError](o.make("b", "1")); !ok {
			t.Errorf("%q: two objects have the same value", prefix)
		}
		if held := s.held(t); held != "1=a" {
			t.Errorf("%q: held: %s", prefix, held)
		}
		if prefix == "/b" { // the others keep theirs
			must(t, o.remove("default", "a"))
			if held := s.held(t); held != "" {
				t.Errorf("%q: held after the removal: %s", prefix, held)
			}
		}
		if of := store.UniquePrefix(); prefix == "" && of != "/coppice/unique/" {
			t.Errorf("the reservations of the default prefix are below %s", of)
		}
	}
}

// Exactly one of several concurrent writers gets a value. Afterwards, no object holds values that
// were changed, freed or lost in races.
func TestOneOfManyWritersGetsAUniqueValue(t *testing.T) {
	s := open(t)
	o := s.uniqueStorage(t)
	const writers, values = 8, 3
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			name := fmt.Sprintf("w%d", w)
			for i := range 10 {
				value := fmt.Sprint((w + i) % values)
				if err := o.make(name, value); err == nil {
					// Change to another value, or to the same one if that is taken; then delete.
					_ = o.change("default", name, having(fmt.Sprint((w+i+1)%values)))
					must(t, o.remove("default", name))
				} else if _, ok := errors.AsType[allocation.TakenError](err); !ok {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	if held := s.held(t); held != "" {
		t.Errorf("reservations without a holder: %s", held)
	}
	var made int
	for w := range writers {
		if o.make(fmt.Sprintf("w%d", w), "same") == nil {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d have the same value", made)
	}
}
