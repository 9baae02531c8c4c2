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

// unreadable is the error of stored bytes that cannot be made into an object: of a
// kind that was stored by a newer program, or damaged.
type unreadable struct{ error }

func (u unreadable) Unwrap() error { return u.error }

// readable makes a decoder and a transformer tell of bytes that cannot be read in a
// way by which the library, and named, know the trouble from any other, and note that
// they met with some.
func readable(decoder etcd3.Decoder, transformer value.Transformer, met *atomic.Bool) (etcd3.Decoder, value.Transformer) {
	return markingDecoder{etcd3.WithCorruptObjErrorHandlingDecoder(decoder), met},
		markingTransformer{etcd3.WithCorruptObjErrorHandlingTransformer(transformer), met}
}

type markingDecoder struct {
	etcd3.Decoder
	met *atomic.Bool
}

// Decode implements etcd3.Decoder.
func (d markingDecoder) Decode(data []byte, into runtime.Object, revision int64) error {
	if err := d.Decoder.Decode(data, into, revision); err != nil {
		d.met.Store(true)
		return unreadable{err}
	}
	return nil
}

type markingTransformer struct {
	value.Transformer
	met *atomic.Bool
}

// TransformFromStorage implements value.Transformer.
func (t markingTransformer) TransformFromStorage(ctx context.Context, data []byte, about value.Context) ([]byte, bool, error) {
	out, stale, err := t.Transformer.TransformFromStorage(ctx, data, about)
	if err != nil {
		t.met.Store(true)
		err = unreadable{err}
	}
	return out, stale, err
}

// relisting is the codec of a watch. Of an object that cannot be decoded it says that
// the watch has expired: what watches lists anew at once, and learns from that which
// object it is. Of any other error the library's watch cache thinks that it may go by
// itself, and tries for half a minute without a pause, in which it serves lists that
// lack the object.
type relisting struct {
	runtime.Codec
	met *atomic.Bool
}

// Decode implements runtime.Decoder.
func (c relisting) Decode(data []byte, kind *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, found, err := c.Codec.Decode(data, kind, into)
	if err != nil {
		c.met.Store(true)
		err = apierrors.NewResourceExpired("the watch met an object that cannot be decoded: " + err.Error())
	}
	return object, found, err
}

// undeterred is a storage with a watch cache that lists from etcd while the cache
// cannot be filled because of an object that cannot be read. The list fails, and says
// which object it is, where the library would ask for some patience.
type undeterred struct {
	apistorage.Interface
	direct apistorage.Interface
	cache  interface{ Ready() bool }
	met    *atomic.Bool // whether there was such an object
}

// GetList implements storage.Interface.
func (s undeterred) GetList(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	if s.met.Load() && !s.cache.Ready() {
		return s.direct.GetList(ctx, key, opts, list)
	}
	return s.Interface.GetList(ctx, key, opts, list)
}

// named is the storage of a resource whose errors name the object that cannot be
// read, whatever the request was. Only a DELETE that says so with the option
// ignoreStoreReadErrorWithClusterBreakingPotential, by somebody who may, gets past
// such an object, and it removes nothing that can be read.
func named(direct apistorage.Interface, resource schema.GroupResource) apistorage.Interface {
	return namedStorage{etcd3.NewStoreWithUnsafeCorruptObjectDeletion(direct, resource)}
}

type namedStorage struct{ apistorage.Interface }

// Delete implements storage.Interface.
func (s namedStorage) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, cached runtime.Object, opts apistorage.DeleteOptions,
) error {
	return naming(key, s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

// GuaranteedUpdate implements storage.Interface.
func (s namedStorage) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, tryUpdate apistorage.UpdateFunc, cached runtime.Object,
) error {
	return naming(key, s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached))
}

// naming adds the key to the error of an object that cannot be read.
func naming(key string, err error) error {
	if _, ok := errors.AsType[unreadable](err); ok {
		return apistorage.NewCorruptObjError(key, err)
	}
	return err
}
