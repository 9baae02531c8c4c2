package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

// Unique defines, by resource, the values that no two objects may share.
type Unique map[schema.GroupResource]Values

// Values returns the values of an object that no other object of its resource may have.
type Values func(runtime.Object) []string

// in returns the unique keys of a resource, or nil for nil Values.
func (v Values) in(s *etcd.Store, resource schema.GroupResource, reader objectReader) *uniqueKeys {
	if v == nil {
		return nil
	}
	prefix := s.UniquePrefix() + path.Join(resource.Group, resource.Resource) + "/"
	return &uniqueKeys{kv: s.Client().KV, values: v, prefix: prefix, reader: reader}
}

// uniqueKeys keeps, beside each object of a resource, one key for each of its unique values. The
// keys are written and removed in the transaction that writes or removes the object, on condition
// that no other object has reserved them. So no value is ever used twice, even with several
// servers, and no value is leaked: a crash leaves nothing to repair.
type uniqueKeys struct {
	kv     clientv3.KV
	values Values
	prefix string // of the keys; the value follows
	reader objectReader
}

// reservations are the keys that a write adds and removes.
type reservations struct {
	holder    string // the object's own key, which is the value of the keys
	add, drop []string
	prefix    string
}

func (c reservations) conditions() []clientv3.Cmp {
	conditions := make([]clientv3.Cmp, 0, len(c.add)+2)
	for _, value := range c.add {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(c.prefix+value), "=", 0))
	}
	return conditions
}

func (c reservations) writes() []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(c.add)+1)
	for _, value := range c.add {
		ops = append(ops, clientv3.OpPut(c.prefix+value, c.holder))
	}
	drop := make([]string, 0, len(c.drop))
	for _, value := range c.drop {
		drop = append(drop, c.prefix+value)
	}
	return append(ops, etcd.Releases(drop, c.holder)...)
}

func (c reservations) reads() []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(c.add))
	for _, value := range c.add {
		ops = append(ops, clientv3.OpGet(c.prefix+value))
	}
	return ops
}

// conflict returns a TakenError if a transaction failed because another object has reserved a
// value. The results of reads begin at its nth operation.
func (c reservations) conflict(txn *clientv3.TxnResponse, n int) error {
	for i, value := range c.add {
		if holder := firstOf(txn, n+i); holder != nil {
			return allocation.TakenError{Value: value, Holder: string(holder.Value)}
		}
	}
	return nil
}

// reservationsFor returns the reservations for the creation of an object.
func (u *uniqueKeys) reservationsFor(ctx context.Context, key string, data []byte) (reservations, error) {
	if u == nil {
		return reservations{}, nil
	}
	obj, err := u.reader.read(ctx, key, data, 0)
	if err != nil {
		return reservations{}, err
	}
	return reservations{holder: key, add: u.valuesOf(obj), prefix: u.prefix}, nil
}

// valuesOf returns the distinct values of an object, sorted.
func (u *uniqueKeys) valuesOf(obj runtime.Object) []string {
	values := slices.Clone(u.values(obj))
	slices.Sort(values)
	return slices.Compact(values)
}

// stored returns the values of the stored object, if it still has the expected revision.
func (u *uniqueKeys) stored(ctx context.Context, key string, expectedRevision int64) ([]string, error) {
	found, err := u.kv.Get(ctx, key)
	if err != nil || len(found.Kvs) == 0 || found.Kvs[0].ModRevision != expectedRevision {
		return nil, err
	}
	obj, err := u.reader.read(ctx, key, found.Kvs[0].Value, expectedRevision)
	if err != nil {
		return nil, err
	}
	return u.valuesOf(obj), nil
}

// heldBy returns the reserved values of an object that will be removed although it cannot be
// decoded. It reads all reservations of the resource.
func (u *uniqueKeys) heldBy(ctx context.Context, key string) ([]string, error) {
	found, err := u.kv.Get(ctx, u.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	var values []string
	for _, kv := range found.Kvs {
		if string(kv.Value) == key {
			values = append(values, strings.TrimPrefix(string(kv.Key), u.prefix))
		}
	}
	return values, nil
}

// put writes an object on condition that it has the given revision, or does not exist if that is 0.
func (u *uniqueKeys) put(
	ctx context.Context, key string, data []byte, expectedRevision int64, opts etcdkubernetes.PutOptions,
) (etcdkubernetes.PutResponse, error) {
	old, err := u.stored(ctx, key, expectedRevision)
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	c, err := u.reservationsFor(ctx, key, data)
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	without := func(values, others []string) []string { // both are sorted
		return slices.DeleteFunc(slices.Clone(values), func(v string) bool {
			_, found := slices.BinarySearch(others, v)
			return found
		})
	}
	c.add, c.drop = without(c.add, old), without(old, c.add)
	txn, err := u.kv.Txn(ctx).
		If(append(c.conditions(), clientv3.Compare(clientv3.ModRevision(key), "=", expectedRevision))...).
		Then(append(c.writes(), clientv3.OpPut(key, string(data), clientv3.WithLease(opts.LeaseID)))...).
		Else(append([]clientv3.Op{clientv3.OpGet(key)}, c.reads()...)...).Commit()
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	response := etcdkubernetes.PutResponse{Succeeded: txn.Succeeded, Revision: txn.Header.Revision}
	if txn.Succeeded {
		return response, nil
	}
	now := firstOf(txn, 0)
	if (now == nil && expectedRevision == 0) || (now != nil && now.ModRevision == expectedRevision) {
		return response, c.conflict(txn, 1)
	}
	if opts.GetOnFailure {
		response.KV = now
	}
	return response, nil
}

// remove removes an object on condition that it has the given revision, and removes its
// reservations.
func (u *uniqueKeys) remove(
	ctx context.Context, key string, expectedRevision int64, opts etcdkubernetes.DeleteOptions,
) (etcdkubernetes.DeleteResponse, error) {
	old, err := u.stored(ctx, key, expectedRevision)
	if errors.As(err, new(corruptError)) {
		old, err = u.heldBy(ctx, key)
	}
	if err != nil {
		return etcdkubernetes.DeleteResponse{}, fmt.Errorf("free what %s has: %w", key, err)
	}
	c := reservations{holder: key, drop: old, prefix: u.prefix}
	txn, err := u.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", expectedRevision)).
		Then(append(c.writes(), clientv3.OpDelete(key))...).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return etcdkubernetes.DeleteResponse{}, err
	}
	response := etcdkubernetes.DeleteResponse{Succeeded: txn.Succeeded, Revision: txn.Header.Revision}
	if !txn.Succeeded && opts.GetOnFailure {
		response.KV = firstOf(txn, 0)
	}
	return response, nil
}
