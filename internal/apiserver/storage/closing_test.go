package storage

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/coppice-dev/coppice/internal/testing/etcdcluster"
)

// markWith marks a namespace in a transaction with a context.
func (o objects) markWith(ctx context.Context, name string) error {
	return o.GuaranteedUpdate(ctx, o.key("", name), &corev1.Namespace{}, false, nil,
		apistorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			mark(obj)
			return obj, nil
		}), nil)
}

// TestR28_NothingIsCreatedInAClosedNamespace: a creation, also by another server, waits until the namespace is open, or marked.
func TestR28_NothingIsCreatedInAClosedNamespace(t *testing.T) {
	c := etcdcluster.Start(t, 1, nil)
	one, other := connect(t, c), connect(t, c)
	namespaces := one.namespaceStorage(t)
	other.namespaceStorage(t)
	contents := other.configMapStorage(t)
	for name, marks := range map[string]bool{"opened": false, "marked": true} {
		must(t, namespaces.create("", name))
		must(t, contents.create(name, "before")) // the other server knows the namespace
		closing, err := one.namespaces.close(t.Context(), one.store.Client(), name)
		must(t, err)
		created := make(chan error)
		go func() { created <- contents.create(name, "meanwhile") }()
		for i := range 3 { // other writes of the namespace are no reason to create
			must(t, namespaces.change("", name, label))
			if got := contents.names(t, one, name); len(got) != 1 {
				t.Errorf("%s, change %d: there is %v while it is closed", name, i, got)
			}
		}
		if marks {
			must(t, namespaces.markWith(closing.Writing(t.Context()), name))
		}
		closing.Open(t.Context())
		if err := <-created; (err == nil) == marks || marks && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			t.Errorf("%s: the creation ends with %v", name, err)
		}
	}
}

// TestWriteFailsOnceTheNamespaceIsOpen: a look that took too long decides nothing.
func TestWriteFailsOnceTheNamespaceIsOpen(t *testing.T) {
	s := open(t)
	namespaces := s.namespaceStorage(t)
	must(t, namespaces.create("", "team"))
	closing, err := s.namespaces.close(t.Context(), s.store.Client(), "team")
	must(t, err)
	ctx := closing.Writing(t.Context())
	closing.Open(t.Context())
	for way, write := range map[string]func() error{
		"mark": func() error { return namespaces.markWith(ctx, "team") },
		"remove": func() error {
			return namespaces.Delete(ctx, namespaces.key("", "team"), &corev1.Namespace{}, nil, apistorage.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{})
		},
	} {
		if err := write(); !apierrors.IsTooManyRequests(err) {
			t.Errorf("%s: %v, want that the client tries again", way, err)
		}
	}
	must(t, namespaces.markWith(t.Context(), "team"))
}

// TestSecondClosingWaits: two deletions of one namespace take turns.
func TestSecondClosingWaits(t *testing.T) {
	s := open(t)
	must(t, s.namespaceStorage(t).create("", "team"))
	first, err := s.namespaces.close(t.Context(), s.store.Client(), "team")
	must(t, err)
	second := make(chan error)
	go func() {
		closing, err := s.namespaces.close(t.Context(), s.store.Client(), "team")
		if err == nil {
			closing.Open(t.Context())
		}
		second <- err
	}()
	first.Open(t.Context())
	must(t, <-second)

	last, err := s.namespaces.close(t.Context(), s.store.Client(), "team")
	must(t, err)
	defer last.Open(t.Context())
	ended, end := context.WithCancelCause(t.Context())
	end(fmt.Errorf("the client is gone"))
	if _, err := s.namespaces.close(ended, s.store.Client(), "team"); err == nil {
		t.Error("it was closed twice")
	}
}

// closedKV is an etcd in which the namespace is closed. Each transaction takes a while.
type closedKV struct {
	clientv3.KV
	takes time.Duration
}

// Txn implements clientv3.KV.
func (k closedKV) Txn(ctx context.Context) clientv3.Txn {
	return closedTxn{commit: func() (*clientv3.TxnResponse, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(k.takes):
		}
		result := func(kvs ...*mvccpb.KeyValue) *etcdserverpb.ResponseOp {
			return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{Kvs: kvs}}}
		}
		return &clientv3.TxnResponse{Responses: []*etcdserverpb.ResponseOp{result(), result(&mvccpb.KeyValue{}), result(&mvccpb.KeyValue{})}}, nil
	}}
}

type closedTxn struct {
	clientv3.Txn
	commit func() (*clientv3.TxnResponse, error)
}

// If implements clientv3.Txn.
func (t closedTxn) If(...clientv3.Cmp) clientv3.Txn { return t }

// Then implements clientv3.Txn.
func (t closedTxn) Then(...clientv3.Op) clientv3.Txn { return t }

// Else implements clientv3.Txn.
func (t closedTxn) Else(...clientv3.Op) clientv3.Txn { return t }

// Commit implements clientv3.Txn.
func (t closedTxn) Commit() (*clientv3.TxnResponse, error) { return t.commit() }

// TestR28_CreationInAClosedNamespaceIsTriedAgain: a creation that has waited for long enough tells the client to try again,
// before the call to etcd times out, however slow etcd is, and whatever timeout the client has set.
func TestR28_CreationInAClosedNamespaceIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct{ takes, timeout time.Duration }{
		"fast":              {time.Millisecond, time.Minute},
		"slow":              {time.Second, time.Minute},
		"a shorter timeout": {time.Microsecond, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				namespaces := &containers{resource: corev1.Resource("namespaces")}
				namespaces.open(&containerReader{prefix: "/registry/namespaces/"})
				client := statusErrors{resourceClient{kv: closedKV{takes: c.takes}, namespaces: namespaces, resource: corev1.Resource("configmaps"), prefix: "/registry/configmaps/"}}
				_, err := client.OptimisticPut(ctx, "/registry/configmaps/team/a", nil, 0, etcdkubernetes.PutOptions{})
				if seconds, isDelayed := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !isDelayed || seconds != 1 {
					t.Errorf("%v, want that the client tries again", err)
				}
			})
		})
	}
}
