package storage

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value"
)

// maxKnown bounds how many namespaces are remembered: 100 bytes each.
const maxKnown = 100_000

// namespaces knows in which revision namespaces were seen active, so that the
// creation of an object can be made conditional on it (R21). What it knows may be
// past: then the condition fails, and tells what is true now.
type namespaces struct {
	mu     sync.Mutex
	reader *namespaceReader // nil until the storage of namespaces is open; guarded by mu
	active map[string]int64 // by name, guarded by mu
}

// namespaceReader reads namespaces as their own storage does.
type namespaceReader struct {
	prefix string // of their keys
	objectReader
}

// open says how to read namespaces. Before, creations are unconditional.
func (n *namespaces) open(r *namespaceReader) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reader = r
}

// lookup returns how to read namespaces, and the revision in which this one was last
// seen active: never, if it was not.
func (n *namespaces) lookup(name string) (*namespaceReader, int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if revision, ok := n.active[name]; ok {
		return n.reader, revision
	}
	return n.reader, never
}

// never is no key's revision, not even that of a key that is not there.
const never = -1

func (n *namespaces) remember(name string, revision int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.active == nil || len(n.active) >= maxKnown {
		n.active = map[string]int64{}
	}
	n.active[name] = revision
}

func (n *namespaces) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.active, name)
}

// isTerminating tells whether a stored namespace is being deleted.
func (r *namespaceReader) isTerminating(ctx context.Context, kv *mvccpb.KeyValue) (bool, error) {
	obj, err := r.read(ctx, string(kv.Key), kv.Value, kv.ModRevision)
	if err != nil {
		return false, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", kv.Key, err)
	}
	return m.GetDeletionTimestamp() != nil, nil
}

// objectReader reads objects of one resource as their storage does.
type objectReader struct {
	decoder     etcd3.Decoder
	transformer value.Transformer
	newFunc     func() runtime.Object
}

func (r objectReader) read(ctx context.Context, key string, stored []byte, revision int64) (runtime.Object, error) {
	data, _, err := r.transformer.TransformFromStorage(ctx, stored, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	obj := r.newFunc()
	if err := r.decoder.Decode(data, obj, revision); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return obj, nil
}

// creator is the etcd client of one resource. It creates an object in a namespace in
// a transaction that fails unless the namespace is there and not terminating (R21).
// Everything else it leaves to the client that it wraps. In the common case, a
// namespace that has not changed since something was last created in it, that costs a
// second comparison in the transaction, and nothing is read.
type creator struct {
	etcdkubernetes.Interface
	kv         clientv3.KV
	namespaces *namespaces
	resource   schema.GroupResource
	prefix     string      // of the resource's keys; namespace and name follow, or a name only
	unique     *uniqueness // nil where objects may have any values
}

// OptimisticPut implements etcdkubernetes.Interface.
func (c creator) OptimisticPut(
	ctx context.Context, key string, data []byte, expectedRevision int64, opts etcdkubernetes.PutOptions,
) (etcdkubernetes.PutResponse, error) {
	namespace, name, namespaced := strings.Cut(strings.TrimPrefix(key, c.prefix), "/")
	reader, revision := c.namespaces.lookup(namespace)
	if expectedRevision != 0 || !namespaced || reader == nil {
		return c.putAnywhere(ctx, key, data, expectedRevision, opts)
	}
	put := clientv3.OpPut(key, string(data), clientv3.WithLease(opts.LeaseID))
	claims, err := c.unique.claimedBy(ctx, key, data)
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	for {
		response, found, err := c.create(ctx, put, reader.prefix+namespace, revision, claims)
		switch {
		case err != nil || response.Succeeded || response.KV != nil:
			if !opts.GetOnFailure {
				response.KV = nil
			}
			return response, err
		case found == nil:
			c.namespaces.forget(namespace)
			return response, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
		}
		terminating, err := reader.isTerminating(ctx, found)
		if err != nil {
			return response, err
		}
		if terminating {
			c.namespaces.forget(namespace)
			return response, isTerminating(c.resource, namespace, name)
		}
		revision = found.ModRevision
		c.namespaces.remember(namespace, revision)
	}
}

// putAnywhere writes without regard to the namespace.
func (c creator) putAnywhere(
	ctx context.Context, key string, data []byte, expectedRevision int64, opts etcdkubernetes.PutOptions,
) (etcdkubernetes.PutResponse, error) {
	if c.unique == nil {
		return c.Interface.OptimisticPut(ctx, key, data, expectedRevision, opts)
	}
	return c.unique.put(ctx, key, data, expectedRevision, opts)
}

// OptimisticDelete implements etcdkubernetes.Interface.
func (c creator) OptimisticDelete(
	ctx context.Context, key string, expectedRevision int64, opts etcdkubernetes.DeleteOptions,
) (etcdkubernetes.DeleteResponse, error) {
	if c.unique == nil {
		return c.Interface.OptimisticDelete(ctx, key, expectedRevision, opts)
	}
	return c.unique.remove(ctx, key, expectedRevision, opts)
}

// create tries a creation once. When it fails, KV of the response is what there is
// under the object's own key, and the second result is the namespace as it is.
func (c creator) create(
	ctx context.Context, put clientv3.Op, namespaceKey string, revision int64, claims claims,
) (etcdkubernetes.PutResponse, *mvccpb.KeyValue, error) {
	key := string(put.KeyBytes())
	conditions := append(claims.conditions(),
		clientv3.Compare(clientv3.ModRevision(key), "=", 0),
		clientv3.Compare(clientv3.ModRevision(namespaceKey), "=", revision))
	txn, err := c.kv.Txn(ctx).If(conditions...).Then(append(claims.writes(), put)...).
		Else(append([]clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(namespaceKey)}, claims.reads()...)...).Commit()
	if err != nil {
		return etcdkubernetes.PutResponse{}, nil, err
	}
	response := etcdkubernetes.PutResponse{Succeeded: txn.Succeeded, Revision: txn.Header.Revision}
	if txn.Succeeded {
		return response, nil, nil
	}
	response.KV = firstOf(txn, 0)
	if response.KV == nil {
		err = claims.taken(txn, 2)
	}
	return response, firstOf(txn, 1), err
}

// firstOf is the key and value that the nth operation of a transaction got, if any.
func firstOf(txn *clientv3.TxnResponse, n int) *mvccpb.KeyValue {
	if kvs := txn.Responses[n].GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// isTerminating is the refusal of the library's admission, which clients know.
func isTerminating(resource schema.GroupResource, namespace, name string) error {
	refusal := apierrors.NewForbidden(resource, name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", namespace),
		Field:   "metadata.namespace",
	})
	return refusal
}
