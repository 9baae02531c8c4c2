package apiserver

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/poststart"
	"github.com/coppice-dev/coppice/internal/apiserver/priorityfairness"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/apiserver/systemobjects"
)

// leaseRemoval bounds how long the removal of the server's Lease may delay the shutdown: the store may
// already be gone.
const leaseRemoval = time.Second

// aggregatedHook returns when the server knows which API groups other servers serve.
const aggregatedHook = "aggregated-api-groups"

// addHooks adds the post-start hooks and the pre-shutdown hook. The server becomes ready after all post-start hooks
// have returned. A hook that kube-apiserver also has keeps its name: test suites wait for
// /readyz/poststarthook/rbac/bootstrap-roles. defaults sets the defaults of a built-in object.
func (s *Server) addHooks(services core.ServiceRanges, now func() time.Time, defaults func(runtime.Object)) error {
	hooks := []struct {
		name string
		hook func(context.Context) error
	}{
		{"start-informers", func(ctx context.Context) error {
			s.informers.Start(ctx.Done())
			return nil
		}},
		{"rbac/bootstrap-roles", func(ctx context.Context) error {
			if err := bootstrappolicy.Ensure(ctx, s.log, s.client.RbacV1(), s.access.Policy); err != nil {
				return err
			}
			go s.aggregator.Run(ctx) // not earlier: it would remove rules from aggregated roles whose sources do not exist yet
			return nil
		}},
		{"priority-and-fairness-config-producer", func(ctx context.Context) error {
			if err := priorityfairness.EnsureDefaults(ctx, s.log, s.client.FlowcontrolV1()); err != nil {
				return err
			}
			return priorityfairness.Keep(ctx, s.log, s.client.FlowcontrolV1(), s.informers, defaults)
		}},
		{"start-system-namespaces-controller", func(ctx context.Context) error {
			if err := systemobjects.EnsureNamespaces(ctx, s.log, s.client.CoreV1()); err != nil {
				return err
			}
			return systemobjects.KeepNamespaces(ctx, s.log, s.informers.Core().V1().Namespaces().Informer(), s.client.CoreV1())
		}},
		{"scheduling/bootstrap-system-priority-classes", func(ctx context.Context) error {
			return systemobjects.EnsurePriorityClasses(ctx, s.log, s.client.SchedulingV1())
		}},
		{"service-cidr", func(ctx context.Context) error {
			if err := systemobjects.EnsureServiceCIDR(ctx, s.log, s.client.NetworkingV1(), services.Addresses); err != nil {
				return err
			}
			return systemobjects.KeepServiceCIDR(ctx, s.log, s.informers.Networking().V1().ServiceCIDRs().Informer(), s.client.NetworkingV1(), services.Addresses)
		}},
		{aggregatedHook, s.aggregation.Ensure},
		{"api-services", s.runAggregation},
		{"extension-apiserver-authentication", func(ctx context.Context) error {
			return systemobjects.EnsureAuthentication(ctx, s.log, s.client, s.authority, now)
		}},
		{"kubernetes-service", func(ctx context.Context) error {
			s.publisher.Start(ctx)
			return nil
		}},
		{"identity-lease", func(ctx context.Context) error {
			return s.identity.Start(ctx.Done())
		}},
		{"token-tracking", func(ctx context.Context) error {
			go func() { _ = systemobjects.EnsureTokenTracking(ctx, s.log, s.client.CoreV1(), now) }() // it fails only when ctx ends
			return nil
		}},
		{"announce-readiness", func(ctx context.Context) error {
			go s.announceReadiness(ctx) // in the background: the server becomes ready after this hook
			go s.gate.run(ctx, s.ready, s.hasRead)
			return nil
		}},
	}
	for _, h := range hooks {
		if err := s.generic.AddPostStartHook(h.name, untilStopped(h.hook)); err != nil {
			return fmt.Errorf("add hook %s: %w", h.name, err)
		}
	}
	// The hook runs while the server still serves requests, so that other servers observe the withdrawal.
	if err := s.generic.AddPreShutdownHook("kubernetes-service", s.withdraw); err != nil {
		return fmt.Errorf("add hook kubernetes-service: %w", err)
	}
	return nil
}

// withdraw removes the Lease and the endpoint that announce this server.
func (s *Server) withdraw() error {
	limit := time.NewTimer(leaseRemoval)
	defer limit.Stop()
	removed := make(chan struct{})
	go func() {
		s.identity.Stop()
		close(removed)
	}()
	s.publisher.Stop()
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

// announceReadiness closes ready when /readyz succeeds.
func (s *Server) announceReadiness(ctx context.Context) {
	err := poststart.Retry(ctx, s.log, "become ready", func(ctx context.Context) error {
		return s.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err == nil {
		s.readyOnce.Do(func() { close(s.ready) })
	}
}
