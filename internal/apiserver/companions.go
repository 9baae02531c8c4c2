package apiserver

import (
	"context"
	"errors"

	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
)

// Companions are functions of the garbage collector in the process of the server. Each may be nil. They must be
// safe for concurrent use.
type Companions struct {
	// Backlog returns how many objects of a namespace wait for the collector. The number limits how many owner
	// references may be added in the namespace (package ownerreferences).
	Backlog func(namespace string) int
	// Requested observes deletion requests and their users (deleteflow.Config.Asked).
	Requested func(deleteflow.Asked)
	// HasFinalizer reports whether any object has a finalizer, which protected objects may outlive (R28).
	HasFinalizer func(finalizer string) (bool, error)
}

// companions returns the current companions. Its methods are for a server without companions, too.
type companions func() Companions

// requested is deleteflow.Config.Asked.
func (c companions) requested(a deleteflow.Asked) {
	if requested := c().Requested; requested != nil {
		requested(a)
	}
}

// backlog returns how many objects of a namespace wait for the collector; 0 if that is unknown.
func (c companions) backlog(namespace string) int {
	if backlog := c().Backlog; backlog != nil {
		return backlog(namespace)
	}
	return 0
}

// hasFinalizer reports whether any object has a finalizer.
func (c companions) hasFinalizer(_ context.Context, finalizer string) (bool, error) {
	if has := c().HasFinalizer; has != nil {
		return has(finalizer)
	}
	return false, errors.New("no collector runs in this process, which would know")
}
