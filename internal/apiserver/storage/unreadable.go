package storage

import (
	"context"
	"errors"

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
// way by which the library, and named, know the trouble from any other.
func readable(decoder etcd3.Decoder, transformer value.Transformer) (etcd3.Decoder, value.Transformer) {
	return markingDecoder{etcd3.WithCorruptObjErrorHandlingDecoder(decoder)},
		markingTransformer{etcd3.WithCorruptObjErrorHandlingTransformer(transformer)}
}

type markingDecoder struct{ etcd3.Decoder }

// Decode implements etcd3.Decoder.
func (d markingDecoder) Decode(data []byte, into runtime.Object, revision int64) error {
	if err := d.Decoder.Decode(data, into, revision); err != nil {
		return unreadable{err}
	}
	return nil
}

type markingTransformer struct{ value.Transformer }

// TransformFromStorage implements value.Transformer.
func (t markingTransformer) TransformFromStorage(ctx context.Context, data []byte, about value.Context) ([]byte, bool, error) {
	out, stale, err := t.Transformer.TransformFromStorage(ctx, data, about)
	if err != nil {
		err = unreadable{err}
	}
	return out, stale, err
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
