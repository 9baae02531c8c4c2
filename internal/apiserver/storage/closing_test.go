package storage

import (
	"context"
	"fmt"
	"testing"

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
