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
)

// uniquePrefix is where values are kept that only one object may have. It is no
// object's: nothing lists or watches it.
const uniquePrefix = "/coppice/unique"

// Unique is, by resource, what an object of it has for itself alone.
type Unique map[schema.GroupResource]Values

// Values are the values of an object that no other object of its resource may have.
type Values func(runtime.Object) []string

// in binds the values of a resource to where they are kept. No values: nil.
func (v Values) in(s *Store, resource schema.GroupResource, reader objectReader) *uniqueness {
	if v == nil {
		return nil
	}
	return &uniqueness{kv: s.client.KV, values: v, prefix: path.Join(uniquePrefix, resource.Group, resource.Resource) + "/", reader: reader}
}

// uniqueness keeps, beside each object of a resource, one key for each of its unique
// values. The keys are written and removed in the transaction that writes or removes
// the object, on condition that nobody else has them. So a value is never had twice,
// whoever writes, and never lost: there is nothing to repair after a crash.
type uniqueness struct {
	kv     clientv3.KV
	values Values
	prefix string // of the keys; a value follows
	reader objectReader
}

// claims are the keys that a write adds, and those that it gives up.
type claims struct {
	holder    string // the object's own key, for whoever looks
	add, drop []string
	prefix    string
}

func (c claims) conditions() []clientv3.Cmp {
	conditions := make([]clientv3.Cmp, 0, len(c.add)+2)
	for _, value := range c.add {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(c.prefix+value), "=", 0))
	}
	return conditions
}

func (c claims) writes() []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(c.add)+len(c.drop)+1)
	for _, value := range c.add {
		ops = append(ops, clientv3.OpPut(c.prefix+value, c.holder))
	}
	for _, value := range c.drop {
		ops = append(ops, clientv3.OpDelete(c.prefix+value))
	}
	return ops
}

func (c claims) reads() []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(c.add))
	for _, value := range c.add {
		ops = append(ops, clientv3.OpGet(c.prefix+value))
	}
	return ops
}

// taken tells whose values made a transaction fail: the reads begin at its nth operation.
func (c claims) taken(txn *clientv3.TxnResponse, n int) error {
	for i, value := range c.add {
		if holder := firstOf(txn, n+i); holder != nil {
			return allocation.TakenError{Value: value, Holder: string(holder.Value)}
		}
	}
	return nil
}

// claimedBy is what the creation of an object claims.
func (u *uniqueness) claimedBy(ctx context.Context, key string, data []byte) (claims, error) {
	if u == nil {
		return claims{}, nil
	}
	obj, err := u.reader.read(ctx, key, data, 0)
	if err != nil {
		return claims{}, err
	}
	return claims{holder: key, add: u.valuesOf(obj), prefix: u.prefix}, nil
}

// valuesOf are the values of an object, each once.
func (u *uniqueness) valuesOf(obj runtime.Object) []string {
	values := slices.Clone(u.values(obj))
	slices.Sort(values)
	return slices.Compact(values)
}

// stored reads the values of what is stored, if it is still what is expected.
func (u *uniqueness) stored(ctx context.Context, key string, expectedRevision int64) ([]string, error) {
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

// heldBy finds the values of an object that cannot be read: its bytes are damaged, and
// it is to be removed all the same. It reads all values that there are.
func (u *uniqueness) heldBy(ctx context.Context, key string) ([]string, error) {
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

// put writes an object that was there in that revision; 0: that was not there.
func (u *uniqueness) put(
	ctx context.Context, key string, data []byte, expectedRevision int64, opts etcdkubernetes.PutOptions,
) (etcdkubernetes.PutResponse, error) {
	old, err := u.stored(ctx, key, expectedRevision)
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	c, err := u.claimedBy(ctx, key, data)
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	without := func(values, others []string) []string {
		return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return slices.Contains(others, v) })
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
		return response, c.taken(txn, 1)
	}
	if opts.GetOnFailure {
		response.KV = now
	}
	return response, nil
}

// remove removes an object that was there in that revision, and frees its values.
func (u *uniqueness) remove(
	ctx context.Context, key string, expectedRevision int64, opts etcdkubernetes.DeleteOptions,
) (etcdkubernetes.DeleteResponse, error) {
	old, err := u.stored(ctx, key, expectedRevision)
	if errors.As(err, new(unreadable)) {
		old, err = u.heldBy(ctx, key)
	}
	if err != nil {
		return etcdkubernetes.DeleteResponse{}, fmt.Errorf("free what %s has: %w", key, err)
	}
	c := claims{drop: old, prefix: u.prefix}
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
