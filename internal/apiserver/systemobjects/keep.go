package systemobjects

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// keep calls ensure whenever the cluster-scoped object of that name has been deleted, in the background
// until ctx ends or ensure fails.
func keep(ctx context.Context, informer cache.SharedInformer, name string, ensure func() error) error {
	deleted := make(chan struct{}, 1)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err != nil || key != name {
			return
		}
		select {
		case deleted <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		return fmt.Errorf("watch %s: %w", name, err)
	}
	go func() {
		for {
			select {
			case <-deleted:
				if ensure() != nil {
					return // ctx has ended
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}
