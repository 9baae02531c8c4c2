package storage

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// The codec of watches returns "expired" for an object that cannot be decoded, and records that
// there was one.
func TestUndecodableObjectExpiresTheWatch(t *testing.T) {
	corrupt := new(atomic.Bool)
	codec := expiringCodec{builtin.NewSchemes().Codecs.LegacyCodec(corev1.SchemeGroupVersion), corrupt}
	if _, _, err := codec.Decode([]byte(`{"apiVersion":"v1","kind":"ConfigMap"}`), nil, nil); err != nil || corrupt.Load() {
		t.Errorf("an object that can be decoded: %v", err)
	}
	if _, _, err := codec.Decode([]byte("damage"), nil, nil); !apierrors.IsResourceExpired(err) || !corrupt.Load() {
		t.Errorf("an object that cannot be decoded: %v", err)
	}
}

// Once a watch cache has met an object that cannot be decoded, the lists that it served before
// fail, and name the object. TestUndecodableObjectExpiresTheWatch has the reason why the reflector of the cache does not retry before;
// BenchmarkCorruptObject measures what that saves.
func TestCorruptObjectIsNamed(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("team", "sound"))
	maps.watchFrom(t, t.Context(), "")
	must(t, maps.list())
	s.corrupt(t, maps.key("team", "damaged"))
	eventually.Holds(t, "a list fails and names the object", func() bool {
		err := maps.list()
		return err != nil && strings.Contains(described(err), "/team/damaged")
	})
}

// BenchmarkCorruptObject measures how long lists lack an object that cannot be decoded before
// they fail: with the codec of k8s.io/apiserver, and with ours.
func BenchmarkCorruptObject(b *testing.B) {
	for name, codec := range map[string]func(runtime.Codec, *atomic.Bool) runtime.Codec{
		"upstream":      func(codec runtime.Codec, _ *atomic.Bool) runtime.Codec { return codec },
		"expiringCodec": newExpiringCodec,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := open(b)
				s.watchCodec = codec
				maps := s.configMapStorage(b)
				must(b, maps.create("team", "sound"))
				maps.watchFrom(b, b.Context(), "")
				must(b, maps.list())
				b.StartTimer()
				s.corrupt(b, maps.key("team", "damaged"))
				eventually.Holds(b, "a list fails", func() bool { return maps.list() != nil })
			}
		})
	}
}

// described returns an error with the causes of its status.
func described(err error) string {
	text := err.Error()
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			text += "; " + cause.Message
		}
	}
	return text
}

// corrupt stores bytes that cannot be decoded.
func (s *Stack) corrupt(t testing.TB, key string) {
	t.Helper()
	_, err := s.store.Client().Put(context.Background(), s.store.Prefix()+key, "damage")
	must(t, err)
}

// list lists from the watch cache at any revision.
func (o objects) list() error {
	return o.GetList(context.Background(), o.prefix, apistorage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: apistorage.Everything}, &corev1.ConfigMapList{})
}
