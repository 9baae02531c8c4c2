package apiserver

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/apiserver/aggregation"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/accesscontrol"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
	"github.com/coppice-dev/coppice/internal/apiserver/systemobjects"
)

// leaseRemoval bounds how long the removal of the server's Lease may delay the shutdown: the store may
// already be gone.
const leaseRemoval = time.Second

// aggregatedHook returns when the server knows which API groups other servers serve.
const aggregatedHook = "aggregated-api-groups"

// hooks are the parts of the server that the hooks use.
type hooks struct {
	config      completedConfig
	client      kubernetes.Interface
	informers   informers.SharedInformerFactory
	access      *accesscontrol.AccessControl
	roles       *rbac.Aggregator
	aggregation *aggregation.Aggregator
	start       *start
	defaults    func(runtime.Object) // sets the defaults of a built-in object
	// confirmations are nil if no deletion needs a confirmation.
	confirmations *confirmations
	*registration
}

// postStartHook runs after the server has begun to serve. The server becomes ready when all of these hooks have returned.
type postStartHook struct {
	name string
	hook func(context.Context) error
}

// addHooks adds the post-start hooks and the pre-shutdown hook.
func addHooks(generic *genericapiserver.GenericAPIServer, h hooks) error {
	for _, p := range h.postStart() {
		if err := generic.AddPostStartHook(p.name, untilStopped(p.hook)); err != nil {
			return fmt.Errorf("add hook %s: %w", p.name, err)
		}
	}
	// The hook runs while the server still serves requests, so that other servers observe the withdrawal.
	if err := generic.AddPreShutdownHook("kubernetes-service", h.withdraw); err != nil {
		return fmt.Errorf("add hook kubernetes-service: %w", err)
	}
	return nil
}

// postStart returns the post-start hooks. A hook that kube-apiserver also has keeps its name: test suites wait for
// /readyz/poststarthook/rbac/bootstrap-roles.
func (h hooks) postStart() []postStartHook {
	log, now, services := h.config.Log, h.config.Now, h.config.Services
	namespaces := make(chan struct{}) // closed when the system namespaces exist
	return []postStartHook{
		{"start-informers", func(ctx context.Context) error {
			h.informers.Start(ctx.Done())
			return nil
		}},
		{"rbac/bootstrap-roles", func(ctx context.Context) error {
			if err := bootstrappolicy.Ensure(ctx, log, h.client.RbacV1(), h.access.Policy); err != nil {
				return err
			}
			go h.roles.Run(ctx) // not earlier: it would remove rules from aggregated roles whose sources do not exist yet
			return nil
		}},
		{"priority-and-fairness-config-producer", func(ctx context.Context) error {
			if err := systemobjects.EnsureFlowSchemas(ctx, log, h.client.FlowcontrolV1()); err != nil {
				return err
			}
			return systemobjects.KeepFlowSchemas(ctx, log, h.client.FlowcontrolV1(), h.informers, h.defaults)
		}},
		{"start-system-namespaces-controller", func(ctx context.Context) error {
			if err := systemobjects.EnsureNamespaces(ctx, log, h.client.CoreV1()); err != nil {
				return err
			}
			close(namespaces)
			return systemobjects.KeepNamespaces(ctx, log, h.informers.Core().V1().Namespaces().Informer(), h.client.CoreV1())
		}},
		{"scheduling/bootstrap-system-priority-classes", func(ctx context.Context) error {
			return systemobjects.EnsurePriorityClasses(ctx, log, h.client.SchedulingV1())
		}},
		{"service-cidr", func(ctx context.Context) error {
			if err := systemobjects.EnsureServiceCIDR(ctx, log, h.client.NetworkingV1(), services.Addresses); err != nil {
				return err
			}
			return systemobjects.KeepServiceCIDR(ctx, log, h.informers.Networking().V1().ServiceCIDRs().Informer(), h.client.NetworkingV1(), services.Addresses)
		}},
		{aggregatedHook, h.aggregation.Ensure},
		{"api-services", h.runAggregation},
		{"extension-apiserver-authentication", func(ctx context.Context) error {
			return systemobjects.EnsureAuthentication(ctx, log, h.client, h.config.Authority, now)
		}},
		{"kubernetes-service", func(ctx context.Context) error {
			h.publisher.Start(ctx)
			return nil
		}},
		{"identity-lease", func(ctx context.Context) error {
			select {
			case <-namespaces: // it logs an error if its namespace does not exist
				return h.identity.Start(ctx.Done())
			case <-ctx.Done():
				return nil
			}
		}},
		{"token-tracking", func(ctx context.Context) error {
			go func() { _ = systemobjects.EnsureTokenTracking(ctx, log, h.client.CoreV1(), now) }() // it fails only when ctx ends
			return nil
		}},
		{"confirmations", h.confirmations.run},
		{"announce-readiness", func(ctx context.Context) error {
			go h.start.announce(ctx, log, h.client) // in the background: the server becomes ready after this hook
			go h.start.gate.run(ctx, h.start.ready, h.hasRead)
			return nil
		}},
	}
}

// runAggregation starts aggregation and the registration in the background, and returns when the server's own groups are
// registered.
func (h hooks) runAggregation(ctx context.Context) error {
	for name, run := range map[string]func(context.Context) error{"aggregation": h.aggregation.Run, "registration of API groups": h.registrar.Run} {
		go func() {
			if err := run(ctx); err != nil {
				h.config.Log.ErrorContext(ctx, "stopped", "part", name, "error", err)
			}
		}()
	}
	return h.registrar.Ensure(ctx)
}

// withdraw removes the Lease and the endpoint that announce this server.
func (h hooks) withdraw() error {
	limit := time.NewTimer(leaseRemoval)
	defer limit.Stop()
	removed := make(chan struct{})
	go func() {
		h.identity.Stop()
		close(removed)
	}()
	h.publisher.Stop()
	select {
	case <-removed:
	case <-limit.C:
	}
	return nil
}

// untilStopped drops the error of a hook that has not finished when the server stops: k8s.io/apiserver
// would exit the process because of it.
func untilStopped(hook func(context.Context) error) genericapiserver.PostStartHookFunc {
	return func(h genericapiserver.PostStartHookContext) error {
		if err := hook(h); err != nil && h.Err() == nil {
			return err
		}
		return nil
	}
}
