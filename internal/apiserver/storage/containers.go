package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// maxKnown bounds the number of containers that are remembered, at some 100 bytes each.
const maxKnown = 100_000

// containers are the objects of a resource that others are created in: namespaces, or the CustomResourceDefinitions of their
// instances. They remember the revision at which each was last seen active, as a condition for creations of objects (R21). If
// that revision is outdated, the condition fails, and the transaction returns the current container.
type containers struct {
	resource schema.GroupResource

	mu     sync.Mutex
	reader *containerReader // nil until the storage of the containers is open; guarded by mu
	active map[string]int64 // by name, guarded by mu
}

// containerReader reads containers as their own storage does.
type containerReader struct {
	prefix string // of the keys of containers
	objectReader
}

// open sets the reader of the containers. Until then creations are unconditional.
func (c *containers) open(r *containerReader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reader = r
}

// container is an object that another one is created in.
type container struct {
	of       *containers
	name     string
	reader   *containerReader
	revision int64 // at which it was last seen active, or never
}

// named returns a container. It has no reader if creations are unconditional.
func (c *containers) named(name string) container {
	c.mu.Lock()
	defer c.mu.Unlock()
	revision, known := c.active[name]
	if !known {
		revision = never
	}
	return container{c, name, c.reader, revision}
}

// never is a revision that no key has. Even a key that does not exist has another one, 0.
const never = -1

func (c *containers) remember(name string, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active == nil || len(c.active) >= maxKnown {
		c.active = map[string]int64{}
	}
	c.active[name] = revision
}

func (c *containers) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.active, name)
}

func (c container) key() string { return c.reader.prefix + c.name }

// conditions returns the conditions of a creation: the container has not changed, and nobody has closed it.
func (c container) conditions() []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(c.key()), "=", c.revision),
		clientv3.Compare(clientv3.CreateRevision(closedPrefix+c.key()), "=", 0),
	}
}

// reads returns what a failed creation reads: see current.
func (c container) reads() []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(c.key()), clientv3.OpGet(closedPrefix + c.key())}
}

// current returns the container after a failed creation, whose results of reads begin at its nth operation. It returns errClosed
// if somebody has closed it, and an API error if it does not exist or is terminating.
func (c container) current(ctx context.Context, of schema.GroupResource, name string, txn *clientv3.TxnResponse, n int) (container, error) {
	found, closed := firstOf(txn, n), firstOf(txn, n+1)
	switch {
	case found == nil:
		c.of.forget(c.name)
		return c, apierrors.NewNotFound(c.of.resource, c.name)
	case closed != nil:
		return c, errClosed
	case found.ModRevision == c.revision:
		return c, nil
	}
	terminating, err := c.reader.isTerminating(ctx, found)
	if err != nil {
		return c, err
	}
	if terminating {
		c.of.forget(c.name)
		return c, c.of.terminating(of, c.name, name)
	}
	c.revision = found.ModRevision
	c.of.remember(c.name, c.revision)
	return c, nil
}

// terminating returns the error of a creation in a terminating container.
func (c *containers) terminating(of schema.GroupResource, container, name string) error {
	if c.resource == corev1.Resource("namespaces") {
		return isTerminating(of, container, name)
	}
	// As k8s.io/apiextensions-apiserver answers, from its cache.
	return apierrors.NewForbidden(of, name, errors.New("create not allowed while custom resource definition is terminating"))
}

// isTerminating reports whether a stored container is being deleted.
func (r *containerReader) isTerminating(ctx context.Context, kv *mvccpb.KeyValue) (bool, error) {
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

// resourceClient is the etcd client of one resource. It creates an object in a transaction that fails unless the
// namespace, and the CustomResourceDefinition of an instance, exist and are not terminating (R21), and reserves the unique
// values of an object in the transaction that writes it (unique.go). All other calls go to the client that it wraps.
//
// Usually the containers have not changed since the last creation in them. Then the cost are comparisons in the
// transaction, without a read.
type resourceClient struct {
	etcdkubernetes.Interface
	kv         clientv3.KV
	namespaces *containers
	definition func() container // of a custom resource; nil for others
	resource   schema.GroupResource
	prefix     string      // of the resource's keys; followed by namespace and name, or by a name only
	unique     *uniqueKeys // nil if objects have no unique values
}

// containersOf returns the containers of the object with a key, and its name.
func (c resourceClient) containersOf(key string) (within []container, name string) {
	name = strings.TrimPrefix(key, c.prefix)
	if namespace, inNamespace, namespaced := strings.Cut(name, "/"); namespaced {
		name = inNamespace
		within = append(within, c.namespaces.named(namespace))
	}
	if c.definition != nil {
		within = append(within, c.definition())
	}
	return slices.DeleteFunc(within, func(c container) bool { return c.reader == nil }), name
}

// OptimisticPut implements etcdkubernetes.Interface.
func (c resourceClient) OptimisticPut(
	ctx context.Context, key string, data []byte, expectedRevision int64, opts etcdkubernetes.PutOptions,
) (etcdkubernetes.PutResponse, error) {
	within, name := c.containersOf(key)
	switch closing := closingOf(ctx, key); {
	case closing != nil:
		return closing.put(ctx, data, expectedRevision, opts)
	case expectedRevision != 0 || len(within) == 0:
		return c.putAnywhere(ctx, key, data, expectedRevision, opts)
	}
	reservations, err := c.unique.reservationsFor(ctx, key, data)
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	put := clientv3.OpPut(key, string(data), clientv3.WithLease(opts.LeaseID))
	txn, err := c.createIn(ctx, name, put, within, reservations)
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	response := etcdkubernetes.PutResponse{Succeeded: txn.Succeeded, Revision: txn.Header.Revision}
	if opts.GetOnFailure {
		response.KV = existingOf(txn)
	}
	return response, nil
}

// createIn creates an object in its containers. It tries again while that fails because a container has changed, or is closed.
func (c resourceClient) createIn(ctx context.Context, name string, put clientv3.Op, within []container, reservations reservations) (*clientv3.TxnResponse, error) {
	for wait := new(waits); ; {
		txn, err := c.create(ctx, put, within, reservations)
		if err != nil || txn.Succeeded || existingOf(txn) != nil {
			return txn, err
		}
		if err := reservations.conflict(txn, 1+2*len(within)); err != nil {
			return nil, err
		}
		for i := range within {
			if within[i], err = within[i].current(ctx, c.resource, name, txn, 1+2*i); errors.Is(err, errClosed) {
				err = wait.next(ctx, within[i])
			}
			if err != nil {
				return nil, err
			}
		}
	}
}

// putAnywhere writes without a condition on containers.
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
	if closing := closingOf(ctx, key); closing != nil {
		return closing.remove(ctx, expectedRevision, opts)
	}
	if c.unique == nil {
		return c.Interface.OptimisticDelete(ctx, key, expectedRevision, opts)
	}
	return c.unique.remove(ctx, key, expectedRevision, opts)
}

// create tries a creation once. If it fails, the first result is the stored value of the object's own key. Two results of each
// container follow, and then the results of the reservations.
func (c resourceClient) create(ctx context.Context, put clientv3.Op, within []container, reservations reservations) (*clientv3.TxnResponse, error) {
	key := string(put.KeyBytes())
	conditions := append(reservations.conditions(), clientv3.Compare(clientv3.ModRevision(key), "=", 0))
	reads := []clientv3.Op{clientv3.OpGet(key)}
	for _, container := range within {
		conditions = append(conditions, container.conditions()...)
		reads = append(reads, container.reads()...)
	}
	return c.kv.Txn(ctx).If(conditions...).Then(append(reservations.writes(), put)...).Else(append(reads, reservations.reads()...)...).Commit()
}

// existingOf returns the value under the object's own key after a failed creation, or nil.
func existingOf(txn *clientv3.TxnResponse) *mvccpb.KeyValue {
	if txn.Succeeded {
		return nil
	}
	return firstOf(txn, 0)
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
