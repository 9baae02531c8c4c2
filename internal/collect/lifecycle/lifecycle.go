// Package lifecycle has the common parts of this module's controllers: each runs once and is synced from some
// point on. It also has the defaults of their clients.
package lifecycle

import (
	"context"
	"errors"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

var (
	// ErrAlreadyStarted is the error of a second Start.
	ErrAlreadyStarted = errors.New("started more than once")
	// ErrNotSynced means that a controller has not read the state of the server yet.
	ErrNotSynced = errors.New("not synced")
)

// Lifecycle tracks whether a controller was started and is synced. Make one with New. It is safe for
// concurrent use.
type Lifecycle struct {
	started *atomic.Bool
	synced  chan struct{} // closed when synced
}

// New returns the lifecycle of a controller that was not started.
func New() Lifecycle {
	return Lifecycle{started: new(atomic.Bool), synced: make(chan struct{})}
}

// Start returns ErrAlreadyStarted unless it is called for the first time.
func (l Lifecycle) Start() error {
	if l.started.Swap(true) {
		return ErrAlreadyStarted
	}
	return nil
}

// SetSynced is called once, by the caller for which Start returned nil.
func (l Lifecycle) SetSynced() { close(l.synced) }

// IsSynced reports whether SetSynced was called.
func (l Lifecycle) IsSynced() bool {
	select {
	case <-l.synced:
		return true
	default:
		return false
	}
}

// WaitForSync waits until IsSynced. It returns the error of ctx if that ends first.
func (l Lifecycle) WaitForSync(ctx context.Context) error {
	select {
	case <-l.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Completed returns a copy of config with our defaults for the clients of a controller.
func Completed(config *rest.Config) *rest.Config {
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
