package storage

import (
	"context"
	"errors"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value"
)

// corruptError is the error for stored bytes that cannot be decoded: they are damaged, or of a kind
// that only a newer version knows.
type corruptError struct{ error }

func (e corruptError) Unwrap() error { return e.error }

// markCorrupt makes a decoder and a transformer return errors by which k8s.io/apiserver, and
// withCorruptErrors, recognize bytes that cannot be decoded. They set corrupt when that happens.
func markCorrupt(decoder etcd3.Decoder, transformer value.Transformer, corrupt *atomic.Bool) (etcd3.Decoder, value.Transformer) {
	return corruptDecoder{etcd3.WithCorruptObjErrorHandlingDecoder(decoder), corrupt},
		corruptTransformer{etcd3.WithCorruptObjErrorHandlingTransformer(transformer), corrupt}
}

type corruptDecoder struct {
	etcd3.Decoder
	corrupt *atomic.Bool
}

// Decode implements etcd3.Decoder.
func (d corruptDecoder) Decode(data []byte, into runtime.Object, revision int64) error {
	if err := d.Decoder.Decode(data, into, revision); err != nil {
		d.corrupt.Store(true)
		return corruptError{err}
	}
	return nil
}

type corruptTransformer struct {
	value.Transformer
	corrupt *atomic.Bool
}

// TransformFromStorage implements value.Transformer.
func (t corruptTransformer) TransformFromStorage(ctx context.Context, data []byte, about value.Context) ([]byte, bool, error) {
	out, stale, err := t.Transformer.TransformFromStorage(ctx, data, about)
	if err != nil {
		t.corrupt.Store(true)
		err = corruptError{err}
	}
	return out, stale, err
}

// expiringCodec is the codec of etcd3's watches. Its error for an object that cannot be decoded is
// 410 "Expired", although nothing has expired.
//
// Problem: after an expired watch, the reflector of the watch cache lists again at once, and the
// list fails and names the object. The reflector considers any other error temporary: it watches
// again, for half a minute without a pause, while the cache serves lists that lack the object.
//
// Benefit: it prevents half a minute of wrong answers, which no client can detect.
// BenchmarkCorruptObject prints the time until a list fails, with and without it.
// TestCorruptObjectIsNamed fails if the reflector treats expired watches differently.
type expiringCodec struct {
	runtime.Codec
	corrupt *atomic.Bool
}

func newExpiringCodec(codec runtime.Codec, corrupt *atomic.Bool) runtime.Codec {
	return expiringCodec{codec, corrupt}
}

// Decode implements runtime.Decoder.
func (c expiringCodec) Decode(data []byte, kind *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, found, err := c.Codec.Decode(data, kind, into)
	if err != nil {
		c.corrupt.Store(true)
		err = apierrors.NewResourceExpired("the watch met an object that cannot be decoded: " + err.Error())
	}
	return object, found, err
}

// listFallback is a storage with a watch cache that lists from etcd while the cache cannot be
// filled because of an object that cannot be decoded. The list fails with an error that names the
// object, instead of the cacher's 429 "storage is (re)initializing".
type listFallback struct {
	apistorage.Interface
	direct  apistorage.Interface
	cache   interface{ Ready() bool }
	corrupt *atomic.Bool // the storage has met such an object
}

// GetList implements storage.Interface.
func (s listFallback) GetList(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	if s.corrupt.Load() && !s.cache.Ready() {
		return s.direct.GetList(ctx, key, opts, list)
	}
	return s.Interface.GetList(ctx, key, opts, list)
}

// withCorruptErrors returns the storage of a resource whose errors, for all verbs, name the object
// that cannot be decoded. Only a DELETE with the option
// ignoreStoreReadErrorWithClusterBreakingPotential, by a user who is authorized to set it, removes
// such an object, and it removes no object that can be decoded.
func withCorruptErrors(direct apistorage.Interface, resource schema.GroupResource) apistorage.Interface {
	return corruptErrorStorage{etcd3.NewStoreWithUnsafeCorruptObjectDeletion(direct, resource)}
}

type corruptErrorStorage struct{ apistorage.Interface }

// Delete implements storage.Interface.
func (s corruptErrorStorage) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, cached runtime.Object, opts apistorage.DeleteOptions,
) error {
	return withKey(key, s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

// GuaranteedUpdate implements storage.Interface.
func (s corruptErrorStorage) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, tryUpdate apistorage.UpdateFunc, cached runtime.Object,
) error {
	return withKey(key, s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached))
}

// withKey adds the key to the error for an object that cannot be decoded.
func withKey(key string, err error) error {
	if _, ok := errors.AsType[corruptError](err); ok {
		return apistorage.NewCorruptObjError(key, err)
	}
	return err
}
