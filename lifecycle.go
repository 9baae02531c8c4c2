package coppice

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// lifecycle is common to the controllers: each runs once, and is synced from some point on.
type lifecycle struct {
	started *atomic.Bool
	synced  chan struct{} // closed when synced
}

func newLifecycle() lifecycle {
	return lifecycle{started: new(atomic.Bool), synced: make(chan struct{})}
}

// start returns ErrAlreadyStarted unless it is called for the first time.
func (l lifecycle) start() error {
	if l.started.Swap(true) {
		return ErrAlreadyStarted
	}
	return nil
}

// setSynced is called once, by the Run for which start returned nil.
func (l lifecycle) setSynced() { close(l.synced) }

func (l lifecycle) isSynced() bool {
	select {
	case <-l.synced:
		return true
	default:
		return false
	}
}

func (l lifecycle) waitForSync(ctx context.Context) error {
	select {
	case <-l.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// completed returns a copy of config with our defaults for the clients of a controller.
func completed(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.UserAgent == "" {
		config.UserAgent = "coppice"
	}
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS = -1
	}
	if config.ContentType == "" {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	if config.WarningHandler == nil && config.WarningHandlerWithContext == nil {
		// Warnings are about deprecated versions, and the server determines which versions are
		// watched.
		config.WarningHandler = rest.NoWarnings{}
	}
	return config
}
