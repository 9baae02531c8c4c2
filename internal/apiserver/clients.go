package apiserver

import (
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
	"github.com/coppice-dev/coppice/internal/collect/protected"
)

// Client returns the configuration of a client that reaches the server as an administrator,
// within this process and without a socket. It has no rate limit.
func (s *Server) Client() *rest.Config { return rest.CopyConfig(s.loopback) }

// Collector is like Client, as the user of the garbage collector.
func (s *Server) Collector() (*rest.Config, error) { return s.as(bootstrappolicy.Collector) }

// NamespaceController is like Client, as the user of the namespace controller.
func (s *Server) NamespaceController() (*rest.Config, error) {
	return s.as(bootstrappolicy.NamespaceController)
}

// CollectorMetadata returns a client that lists and watches metadata as the user of the garbage collector,
// straight from the store. It leaves all other calls to next.
func (s *Server) CollectorMetadata(next metadata.Interface) metadata.Interface {
	return s.metadata.Client(componentUser(bootstrappolicy.Collector), next)
}

// NamespaceControllerMetadata is like CollectorMetadata, as the user of the namespace controller.
func (s *Server) NamespaceControllerMetadata(next metadata.Interface) metadata.Interface {
	return s.metadata.Client(componentUser(bootstrappolicy.NamespaceController), next)
}

// componentUser returns the user as which requests of a component are authenticated.
func componentUser(name string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}
}

// Workloads is like Client, as the user of the workload controllers.
func (s *Server) Workloads() (*rest.Config, error) {
	config, err := s.as(bootstrappolicy.WorkloadControllers)
	if err != nil {
		return nil, err
	}
	// The controllers retry refused requests; parking sends deletions of protected objects once a minute
	// only.
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return protected.NewParkingTransport(next, clock.RealClock{})
	})
	return config, nil
}

// SharePod is the transformation of an informer of pods in this process: it drops their managed fields, and makes them
// share their memory with the watch cache of the server. Nobody may change them.
func (s *Server) SharePod(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return s.caches.storages.SharePod(pod), nil
	}
	return object, nil // the last known state of a pod that is gone: its transformation is past
}

// ProtectionController is like Client, as the user of the volume protection controller.
func (s *Server) ProtectionController() (*rest.Config, error) {
	return s.as(bootstrappolicy.ProtectionController)
}

// ResourceQuotaController is like Client, as the user of the ResourceQuota controller. Admission adds its
// charges to the usage that this controller counts, so the controller's watches of objects must be no later
// than its watch of ResourceQuotas.
func (s *Server) ResourceQuotaController() (*rest.Config, error) {
	config, err := s.as(bootstrappolicy.ResourceQuotaController)
	if err != nil {
		return nil, err
	}
	config.Wrap(inprocess.Prompt)
	return config, nil
}

// StorageVersionMigrator is like Client, as the user of the controller that rewrites stored objects.
func (s *Server) StorageVersionMigrator() (*rest.Config, error) {
	return s.as(bootstrappolicy.StorageVersionMigrator)
}

// HorizontalPodAutoscaler is like Client, as the user of the HorizontalPodAutoscaler controller.
func (s *Server) HorizontalPodAutoscaler() (*rest.Config, error) {
	return s.as(bootstrappolicy.HorizontalPodAutoscaler)
}

// TokensController is like Client, as the user of the controller that puts service account tokens into
// Secrets.
func (s *Server) TokensController() (*rest.Config, error) {
	return s.as(bootstrappolicy.TokensController)
}

// SignForSecret returns a token of a service account that is valid while the Secret contains it.
func (s *Server) SignForSecret(account *corev1.ServiceAccount, secret string) (string, error) {
	return s.access.SignForSecret(account, secret)
}

// LeaderElection is like Client, as the user that acquires and renews the Lease
// bootstrappolicy.ControllersLease in kube-system.
func (s *Server) LeaderElection() (*rest.Config, error) {
	return s.as(bootstrappolicy.LeaderElection)
}

// NodeAgent is like Client, as the user of the agent of this process's nodes.
func (s *Server) NodeAgent() (*rest.Config, error) { return s.as(bootstrappolicy.NodeAgent) }

// Scheduler is like Client, as the user of the scheduler.
func (s *Server) Scheduler() (*rest.Config, error) { return s.as(bootstrappolicy.Scheduler) }

// Node is like Client, as the node of that name, with the permissions of an agent that has a
// credential of that node.
func (s *Server) Node(name string) *rest.Config {
	config := s.Client()
	config.Impersonate = rest.ImpersonationConfig{UserName: bootstrappolicy.NodeUserPrefix + name, Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	return config
}

func (s *Server) as(component string) (*rest.Config, error) {
	config := s.Client()
	token, err := s.access.Components.Token(component)
	config.BearerToken = token
	return config, err
}

// RestartFaults begins the draws of the current faults anew, so that the same requests have the same faults again.
func (s *Server) RestartFaults() { s.faults.Restart() }

// RunControllers runs the controllers of the control plane until ctx ends, or they do. Faults may stop them, and start
// them again.
func (s *Server) RunControllers(ctx context.Context, run func(context.Context) error) error {
	return s.faults.Controllers(ctx, run)
}
