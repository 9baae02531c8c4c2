package coppice

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/lifecycle"
	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/collect/protected/cascade"
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
	stages := namespaces.ParseStages(text)
	if len(stages) == 0 {
		return DefaultDeletionOrder(), nil
	}
	if _, err := namespaces.NewOrder(stages); err != nil {
		return nil, err
	}
	return stages, nil
}

// String returns the order in the form that ParseDeletionOrder reads.
func (o DeletionOrder) String() string {
	stages := make([]string, len(o))
	for i, resources := range o {
		names := make([]string, len(resources))
		for j, r := range resources {
			names[j] = r.String()
		}
		stages[i] = strings.Join(names, ",")
	}
	return strings.Join(stages, ";")
}

// NamespaceOptions are the options of a NamespaceController. The zero value is usable.
type NamespaceOptions struct {
	// DeletionOrder is the order in which contents are deleted. Default: DefaultDeletionOrder.
	DeletionOrder DeletionOrder
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
	lifecycle  lifecycle.Lifecycle
	controller *namespaces.Controller
	metrics    *metrics.Set
}

// NewNamespaceController returns a namespace controller for the server of config. It sends no
// request, and neither changes nor keeps config. The identity of config needs the verbs list and
// delete on all resources, get and watch on namespaces, and update on namespaces/status and
// namespaces/finalize. With deletecollection on all resources it is faster.
func NewNamespaceController(config *rest.Config, options NamespaceOptions) (*NamespaceController, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	order, err := namespaces.NewOrder(options.DeletionOrder)
	if err != nil {
		return nil, fmt.Errorf("DeletionOrder: %w", err)
	}
	c := &NamespaceController{lifecycle: lifecycle.New()}
	c.metrics = metrics.ForNamespaces(c.lifecycle.IsSynced)
	config = lifecycle.Completed(config)
	config.Wrap(c.metrics.Transport)
	config.Wrap(cascade.Transport)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	contents, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make metadata client: %w", err)
	}
	if options.WrapMetadata != nil {
		contents = options.WrapMetadata(contents)
	}
	c.controller, err = namespaces.New(namespaces.Config{Client: client, Metadata: contents, Order: order, Logger: options.Logger})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run runs the controller until ctx ends, and returns when everything that it started has ended. It
// waits for a server that cannot be reached. A second call returns ErrAlreadyStarted.
func (c *NamespaceController) Run(ctx context.Context) error {
	if err := c.lifecycle.Start(); err != nil {
		return fmt.Errorf("namespace controller: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel() // a controller that failed will never be synced
		ended <- c.controller.Run(ctx)
	}()
	if c.controller.WaitForSync(ctx) == nil {
		c.lifecycle.SetSynced()
	}
	return <-ended
}

// Synced reports whether the controller has listed the namespaces and is working.
func (c *NamespaceController) Synced() bool { return c.lifecycle.IsSynced() }

// WaitForSync waits until Synced. It returns the error of ctx if that ends first.
func (c *NamespaceController) WaitForSync(ctx context.Context) error {
	return c.lifecycle.WaitForSync(ctx)
}

// Ready returns nil when the controller is synced, and otherwise an error that wraps ErrNotSynced.
func (c *NamespaceController) Ready() error {
	if c.Synced() {
		return nil
	}
	return fmt.Errorf("%w: the namespaces are not listed yet", ErrNotSynced)
}
