package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

const (
	// closedPrefix is the prefix of the keys that close containers; the container's own key follows.
	closedPrefix = "/coppice/closed"
	// closedFor bounds the time for which a container is closed: a server that ends meanwhile opens nothing.
	closedFor = 30 * time.Second
	// openTimeout bounds the request that opens a container.
	openTimeout = 10 * time.Second
)

var errClosed = errors.New("nothing can be created in it for a moment")

// Closing is a closed container: no server on the store creates objects in it, and all objects that were created before can be
// read. So the deletion of the container can depend on its contents:
//
//	closing, err := kind.Close(ctx, name)
//	defer closing.Open(ctx)
//	look for objects in the container
//	ctx = closing.Writing(ctx)
//	mark the container as being deleted, with ctx
//
// A creation waits until the container is open again, or is being deleted. It is not safe for concurrent use.
type Closing struct {
	client   *clientv3.Client
	key      string // of the container
	revision int64  // at which it was closed
	lease    clientv3.LeaseID
}

// close closes a container. It waits while somebody else has closed it, for a few seconds at most.
func (c *containers) close(ctx context.Context, client *clientv3.Client, name string) (*Closing, error) {
	in := c.named(name)
	lease, err := client.Grant(ctx, int64(closedFor.Seconds()))
	if err != nil {
		return nil, err
	}
	closing := &Closing{client: client, key: in.key(), lease: lease.ID}
	for wait := new(waits); ; {
		txn, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(closedPrefix+closing.key), "=", 0)).
			Then(clientv3.OpPut(closedPrefix+closing.key, "", clientv3.WithLease(closing.lease))).Commit()
		if err == nil && txn.Succeeded {
			closing.revision = txn.Header.Revision
			return closing, nil
		}
		if err == nil {
			err = wait.next(ctx, in)
		}
		if err != nil {
			closing.Open(ctx)
			return nil, err
		}
	}
}

// Open opens the container, even if ctx has ended. If the store does not answer, it opens by itself after a while.
func (c *Closing) Open(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	_, _ = c.client.Revoke(ctx, c.lease)
}

// closingKey is the key of a Closing in a context.
type closingKey struct{}

// Writing returns a context in which writes of the container itself fail unless it is still closed.
func (c *Closing) Writing(ctx context.Context) context.Context {
	return context.WithValue(ctx, closingKey{}, c)
}

// closingOf returns the Closing of a context if it has the key; nil otherwise.
func closingOf(ctx context.Context, key string) *Closing {
	if c, _ := ctx.Value(closingKey{}).(*Closing); c != nil && c.key == key {
		return c
	}
	return nil
}

// write carries out a write of the container on condition that it has the expected revision and is still closed. now is the
// container if it has another revision, or none.
func (c *Closing) write(ctx context.Context, expectedRevision int64, op clientv3.Op) (txn *clientv3.TxnResponse, now *mvccpb.KeyValue, err error) {
	txn, err = c.client.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(c.key), "=", expectedRevision),
		clientv3.Compare(clientv3.CreateRevision(closedPrefix+c.key), "=", c.revision),
	).Then(op).Else(clientv3.OpGet(c.key)).Commit()
	if err != nil || txn.Succeeded {
		return txn, nil, err
	}
	if now = firstOf(txn, 0); now != nil && now.ModRevision == expectedRevision {
		return nil, nil, apierrors.NewTooManyRequests(fmt.Sprintf("the look for its users took more than %s; try again", closedFor), 1)
	}
	return txn, now, nil
}

// put is OptimisticPut for the container.
func (c *Closing) put(ctx context.Context, data []byte, expectedRevision int64, opts etcdkubernetes.PutOptions) (etcdkubernetes.PutResponse, error) {
	txn, now, err := c.write(ctx, expectedRevision, clientv3.OpPut(c.key, string(data), clientv3.WithLease(opts.LeaseID)))
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	response := etcdkubernetes.PutResponse{Succeeded: txn.Succeeded, Revision: txn.Header.Revision}
	if opts.GetOnFailure {
		response.KV = now
	}
	return response, nil
}

// remove is OptimisticDelete for the container.
func (c *Closing) remove(ctx context.Context, expectedRevision int64, opts etcdkubernetes.DeleteOptions) (etcdkubernetes.DeleteResponse, error) {
	txn, now, err := c.write(ctx, expectedRevision, clientv3.OpDelete(c.key))
	if err != nil {
		return etcdkubernetes.DeleteResponse{}, err
	}
	response := etcdkubernetes.DeleteResponse{Succeeded: txn.Succeeded, Revision: txn.Header.Revision}
	if opts.GetOnFailure {
		response.KV = now
	}
	return response, nil
}

// waits are the waits of one request for closed containers.
type waits struct {
	n    int
	over <-chan time.Time // receives a value after mostWaited; nil before the first wait
}

const (
	// mostWaited bounds the time that a request waits. A creation waits within callTimeout, and its last transaction needs time.
	mostWaited = callTimeout - 2*time.Second
	// longestWait bounds one wait.
	longestWait = 100 * time.Millisecond
)

// next waits a moment longer than before, or returns an error with which the client tries again: nothing was written.
func (w *waits) next(ctx context.Context, c container) error {
	if w.n++; w.over == nil {
		w.over = clock.RealClock{}.After(mostWaited)
	}
	select {
	case <-clock.RealClock{}.After(min(time.Millisecond<<min(w.n, 10), longestWait)):
		return nil
	case <-w.over:
	case <-ctx.Done():
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return context.Cause(ctx)
		}
	}
	return apierrors.NewTooManyRequests(fmt.Sprintf("somebody is about to delete %s %q; try again", c.of.resource, c.name), 1)
}
