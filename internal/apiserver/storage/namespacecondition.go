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

// maxKnown bounds the number of namespaces that are remembered, at some 100 bytes each.
const maxKnown = 100_000

// namespaces remembers the revision at which each namespace was last seen active, as a condition
// for creations of objects (R21). If that revision is outdated, the condition fails, and the
// transaction returns the current namespace.
type namespaces struct {
	mu     sync.Mutex
	reader *namespaceReader // nil until the storage of namespaces is open; guarded by mu
	active map[string]int64 // by name, guarded by mu
}

// namespaceReader reads namespaces as their own storage does.
type namespaceReader struct {
	prefix string // of the keys of namespaces
	objectReader
}

// open sets the reader of namespaces. Until then creations are unconditional.
func (n *namespaces) open(r *namespaceReader) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reader = r
}

// lookup returns the reader, and the revision at which the namespace was last seen active, or
// never.
func (n *namespaces) lookup(name string) (*namespaceReader, int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if revision, ok := n.active[name]; ok {
		return n.reader, revision
	}
	return n.reader, never
}

// never is a revision that no key has. Even a key that does not exist has another one, 0.
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

// isTerminating reports whether a stored namespace is being deleted.
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

// resourceClient is the etcd client of one resource. It creates an object in a namespace in a
// transaction that fails unless the namespace exists and is not terminating (R21), and reserves the
// unique values of an object in the transaction that writes it (unique.go). All other calls go to
// the client that it wraps.
//
// Usually the namespace has not changed since the last creation in it. Then the cost is a second
// comparison in the transaction, without a read.
type resourceClient struct {
	etcdkubernetes.Interface
	kv         clientv3.KV
	namespaces *namespaces
	resource   schema.GroupResource
	prefix     string      // of the resource's keys; followed by namespace and name, or by a name only
	unique     *uniqueKeys // nil if objects have no unique values
}

// OptimisticPut implements etcdkubernetes.Interface.
func (c resourceClient) OptimisticPut(
	ctx context.Context, key string, data []byte, expectedRevision int64, opts etcdkubernetes.PutOptions,
) (etcdkubernetes.PutResponse, error) {
	namespace, name, namespaced := strings.Cut(strings.TrimPrefix(key, c.prefix), "/")
	reader, revision := c.namespaces.lookup(namespace)
	if expectedRevision != 0 || !namespaced || reader == nil {
		return c.putAnywhere(ctx, key, data, expectedRevision, opts)
	}
	put := clientv3.OpPut(key, string(data), clientv3.WithLease(opts.LeaseID))
	reservations, err := c.unique.reservationsFor(ctx, key, data)
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	for {
		response, found, err := c.create(ctx, put, reader.prefix+namespace, revision, reservations)
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

// putAnywhere writes without a condition on the namespace.
func (c resourceClient) putAnywhere(
	ctx context.Context, key string, data []byte, expectedRevision int64, opts etcdkubernetes.PutOptions,
) (etcdkubernetes.PutResponse, error) {
	if c.unique == nil {
		return c.Interface.OptimisticPut(ctx, key, data, expectedRevision, opts)
	}
	return c.unique.put(ctx, key, data, expectedRevision, opts)
}

// OptimisticDelete implements etcdkubernetes.Interface.
func (c resourceClient) OptimisticDelete(
	ctx context.Context, key string, expectedRevision int64, opts etcdkubernetes.DeleteOptions,
) (etcdkubernetes.DeleteResponse, error) {
	if c.unique == nil {
		return c.Interface.OptimisticDelete(ctx, key, expectedRevision, opts)
	}
	return c.unique.remove(ctx, key, expectedRevision, opts)
}

// create tries a creation once. If it fails, KV of the response is the value stored under the
// object's own key, and the second result is the current namespace.
func (c resourceClient) create(
	ctx context.Context, put clientv3.Op, namespaceKey string, revision int64, reservations reservations,
) (etcdkubernetes.PutResponse, *mvccpb.KeyValue, error) {
	key := string(put.KeyBytes())
	conditions := append(reservations.conditions(),
		clientv3.Compare(clientv3.ModRevision(key), "=", 0),
		clientv3.Compare(clientv3.ModRevision(namespaceKey), "=", revision))
	txn, err := c.kv.Txn(ctx).If(conditions...).Then(append(reservations.writes(), put)...).
		Else(append([]clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(namespaceKey)}, reservations.reads()...)...).Commit()
	if err != nil {
		return etcdkubernetes.PutResponse{}, nil, err
	}
	response := etcdkubernetes.PutResponse{Succeeded: txn.Succeeded, Revision: txn.Header.Revision}
	if txn.Succeeded {
		return response, nil, nil
	}
	response.KV = firstOf(txn, 0)
	if response.KV == nil {
		err = reservations.conflict(txn, 2)
	}
	return response, firstOf(txn, 1), err
}

// firstOf returns the key and value that the nth operation of a transaction read, or nil.
func firstOf(txn *clientv3.TxnResponse, n int) *mvccpb.KeyValue {
	if kvs := txn.Responses[n].GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// isTerminating returns the error of the NamespaceLifecycle admission plug-in, which clients know.
func isTerminating(resource schema.GroupResource, namespace, name string) error {
	forbidden := apierrors.NewForbidden(resource, name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	forbidden.ErrStatus.Details.Causes = append(forbidden.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", namespace),
		Field:   "metadata.namespace",
	})
	return forbidden
}
