package apiserver

import (
	"context"
	"errors"
	"maps"

	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/kubelet"
)

// Companions are the parts of the control plane that run in the process of the server, as far as the server uses them.
// Each may be nil. They must be safe for concurrent use.
type Companions struct {
	// Backlog returns how many objects of a namespace wait for the collector. The number limits how many owner
	// references may be added in the namespace (package ownerreferences).
	Backlog func(namespace string) int
	// Requested observes deletion requests and their users (deleteflow.Config.OnRequest).
	Requested func(deleteflow.Requested)
	// HasFinalizer reports whether any object has a finalizer, which protected objects may outlive (R28).
	HasFinalizer func(finalizer string) (bool, error)
	// Nodes are the agents of nodes.
	Nodes kubelet.Nodes
	// Components are the checks of other components, by name, for componentstatuses.
	Components map[string]func(context.Context) error
}

// companions returns the current companions. Its methods are for a server without companions, too.
type companions func() Companions

// requested is deleteflow.Config.OnRequest.
func (c companions) requested(a deleteflow.Requested) {
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

// nodes is kubelet.Config.Local.
func (c companions) nodes() kubelet.Nodes { return c().Nodes }

// components returns the checks of all components, among them the store.
func (c companions) components(store *etcd.Store) func() map[string]func(context.Context) error {
	return func() map[string]func(context.Context) error {
		all := map[string]func(context.Context) error{"etcd-0": store.Healthy}
		maps.Copy(all, c().Components)
		return all
	}
}
