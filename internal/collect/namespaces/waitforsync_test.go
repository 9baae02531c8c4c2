package namespaces

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// WaitForSync returns as soon as the namespaces have been listed, and not before.
func TestWaitForSyncReturnsOnceNamespacesAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t)
		listed := make(chan struct{})
		w.typed.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			<-listed
			return false, nil, nil
		})
		c, err := New(Config{Client: w.typed, Metadata: w})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended, synced := make(chan error, 1), make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		go func() { synced <- c.WaitForSync(ctx) }()
		synctest.Wait()
		select {
		case err := <-synced:
			t.Errorf("synced before the list: %v", err)
		default:
		}
		hasEnded, end := context.WithCancel(ctx)
		end()
		if err := c.WaitForSync(hasEnded); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that the context has ended", err)
		}
		close(listed)
		if err := <-synced; err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
