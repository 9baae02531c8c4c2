package coppice

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
)

// EverythingElse is the name, in a DeletionOrder, of all resources that no stage names.
const EverythingElse = namespaces.EverythingElse

// DeletionOrder is the order in which the contents of a terminating namespace are deleted.
// It consists of stages, which are sets of resources. The objects of a stage are deleted
// together, when the previous stage is empty. One stage is EverythingElse alone:
//
//	coppice.DeletionOrder{
//		{{Resource: "pods"}},
//		{{Resource: coppice.EverythingElse}},
//		{{Group: "rbac.authorization.k8s.io", Resource: "roles"}},
//	}
type DeletionOrder [][]schema.GroupResource

// DefaultDeletionOrder returns the default order of a NamespaceController: pods; everything else;
// Roles, RoleBindings and NetworkPolicies.
func DefaultDeletionOrder() DeletionOrder { return namespaces.DefaultStages() }

// ParseDeletionOrder parses an order such as
// "pods;*;secrets,roles.rbac.authorization.k8s.io", in which * is EverythingElse. An empty
// text is the default order.
func ParseDeletionOrder(text string) (DeletionOrder, error) {
	return namespaces.ParseDeletionOrder(text)
}

// String returns the order in the form that ParseDeletionOrder reads.
func (o DeletionOrder) String() string { return namespaces.FormatStages(o) }

// NamespaceOptions are the options of a NamespaceController. The zero value is usable.
type NamespaceOptions struct {
	// DeletionOrder is the order in which contents are deleted. Default: DefaultDeletionOrder.
	DeletionOrder DeletionOrder
	// Settle is the minimum time that a terminating namespace is kept; its contents are deleted meanwhile. A creation that
	// the server has admitted before the deletion, and that a webhook delays, may add an object until then. Otherwise the
	// object would stay behind in a namespace that is gone. Default: 5 s, as upstream. Negative: none, for tests on servers
	// without slow webhooks.
	Settle time.Duration
	// WrapMetadata, if set, is put around the client that lists contents by their metadata, as in
	// Options.
	WrapMetadata func(metadata.Interface) metadata.Interface
	// Logger gets a line at level Info for each change. Default: no log.
	Logger *slog.Logger
}

// NamespaceController deletes the contents of terminating namespaces and then finalizes the
// namespaces. A cluster has such a controller in its kube-controller-manager; this one is for
// servers without one. Create one with NewNamespaceController.
type NamespaceController struct {
	controller *namespaces.Controller
	metrics    *metrics.Set
}

// NewNamespaceController returns a namespace controller for the server of config. It sends no
// request, and neither changes nor keeps config. The identity of config needs the verbs list and
// delete on all resources, get and watch on namespaces, and update on namespaces/status and
// namespaces/finalize. With deletecollection on all resources it is faster.
func NewNamespaceController(config *rest.Config, options NamespaceOptions) (*NamespaceController, error) {
	c, set, err := metrics.NewNamespaceController(config, namespaces.Options{
		DeletionOrder: options.DeletionOrder, Settle: max(0, cmp.Or(options.Settle, namespaces.DefaultSettle)),
		WrapMetadata: options.WrapMetadata, Logger: options.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &NamespaceController{c, set}, nil
}

// Run runs the controller until ctx ends, and returns when everything that it started has ended. It
// waits for a server that cannot be reached. A second call returns ErrAlreadyStarted.
func (c *NamespaceController) Run(ctx context.Context) error { return c.controller.Run(ctx) }

// Synced reports whether the controller has listed the namespaces and is working.
func (c *NamespaceController) Synced() bool { return c.controller.Synced() }

// WaitForSync waits until Synced. It returns the error of ctx if that ends first.
func (c *NamespaceController) WaitForSync(ctx context.Context) error {
	return c.controller.WaitForSync(ctx)
}

// Ready returns nil when the controller is synced, and otherwise an error that wraps ErrNotSynced.
func (c *NamespaceController) Ready() error { return c.controller.Ready() }
