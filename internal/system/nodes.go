package system

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/node/agent"
	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/cri"
	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/simulated"
	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
	"github.com/coppice-dev/coppice/internal/node/scheduler"
)

// nodesDir is the directory in the data directory for an agent with real containers.
const nodesDir = "node"

// clearTimeout bounds the removal of all containers of an ephemeral control plane.
const clearTimeout = time.Minute

// machine is the container runtime of this process's nodes, with what its pods need.
type machine struct {
	setup      *nodeconfig.Setup
	references *references
	clock      *simulated.Clock // nil unless MovableNodeClock
}

// openMachine opens the container runtime of this process's nodes; it returns nil if there are no nodes.
func openMachine(ctx context.Context, o completedOptions, dir *workDir) (*machine, error) {
	if o.Nodes.Nodes == 0 {
		return nil, nil // no nodes are a valid choice
	}
	m, nodes := &machine{references: &references{}}, o.Nodes
	nodes.Dir, nodes.Version, nodes.Log, nodes.Objects = dir.join(nodesDir), o.Version, o.Log, m.references
	if o.MovableNodeClock {
		m.clock = simulated.NewClock()
		nodes.Clock = m.clock
	}
	var err error
	if m.setup, err = nodeconfig.Open(ctx, nodes); err != nil {
		return nil, err
	}
	return m, nil
}

// clear removes the containers.
func (m *machine) clear(ctx context.Context, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTimeout)
	defer cancel()
	if err := m.setup.Clear(ctx); err != nil {
		log.ErrorContext(ctx, "containers not removed", "error", err)
	}
}

// references reads the objects to which pods with real containers refer. The runtime is opened before the
// API server, so the source of the objects is set later.
type references struct {
	client atomic.Pointer[kubernetes.Clientset]
	server atomic.Pointer[string]
}

// Server implements cri.Objects.
func (r *references) Server() string {
	if server := r.server.Load(); server != nil {
		return *server
	}
	return ""
}

var errNotServed = errors.New("the API is not served yet")

// ConfigMap implements cri.Objects.
func (r *references) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	client := r.client.Load()
	if client == nil {
		return nil, errNotServed
	}
	return cri.FromAPI(client, r.Server()).ConfigMap(ctx, namespace, name)
}

// Secret implements cri.Objects.
func (r *references) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	client := r.client.Load()
	if client == nil {
		return nil, errNotServed
	}
	return cri.FromAPI(client, r.Server()).Secret(ctx, namespace, name)
}

// Services implements cri.Objects.
func (r *references) Services(ctx context.Context, namespace string) ([]corev1.Service, error) {
	client := r.client.Load()
	if client == nil {
		return nil, errNotServed
	}
	return cri.FromAPI(client, r.Server()).Services(ctx, namespace)
}

// Token implements cri.Objects.
func (r *references) Token(
	ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	client := r.client.Load()
	if client == nil {
		return nil, errNotServed
	}
	return cri.FromAPI(client, r.Server()).Token(ctx, namespace, account, request)
}

// TrustBundle implements cri.Objects.
func (r *references) TrustBundle(ctx context.Context, name string) (*certificatesv1.ClusterTrustBundle, error) {
	client := r.client.Load()
	if client == nil {
		return nil, errNotServed
	}
	return cri.FromAPI(client, r.Server()).TrustBundle(ctx, name)
}

// TrustBundles implements cri.Objects.
func (r *references) TrustBundles(ctx context.Context, signer string, selector labels.Selector) ([]certificatesv1.ClusterTrustBundle, error) {
	client := r.client.Load()
	if client == nil {
		return nil, errNotServed
	}
	return cri.FromAPI(client, r.Server()).TrustBundles(ctx, signer, selector)
}

// RequestCertificate implements cri.Objects.
func (r *references) RequestCertificate(ctx context.Context, request *certificatesv1.PodCertificateRequest) (*certificatesv1.PodCertificateRequest, error) {
	client := r.client.Load()
	if client == nil {
		return nil, errNotServed
	}
	return cri.FromAPI(client, r.Server()).RequestCertificate(ctx, request)
}

// CertificateRequest implements cri.Objects.
func (r *references) CertificateRequest(ctx context.Context, node, namespace, name string) (*certificatesv1.PodCertificateRequest, error) {
	client := r.client.Load()
	if client == nil {
		return nil, errNotServed
	}
	return cri.FromAPI(client, r.Server()).CertificateRequest(ctx, node, namespace, name)
}

// newNodes returns the agent of the nodes of this process.
func (p *controlPlane) newNodes(pods, objects cache.SharedIndexInformer) (*agent.Agent, error) {
	o, api, machine := p.options, p.api, p.machine
	access, err := api.NodeAgent()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("create the client of the node agent: %w", err)
	}
	if o.Nodes.Runtime == nodeconfig.CRI {
		// With the permissions of the one node, which may read objects that its pods refer to. The agent of
		// all nodes may not read Secrets.
		reader, err := kubernetes.NewForConfig(api.Node(machine.setup.Nodes[0].Name))
		if err != nil {
			return nil, fmt.Errorf("create the client of the node: %w", err)
		}
		machine.references.client.Store(reader)
	}
	config := agent.Config{
		Client: client, Runtime: machine.setup.Runtime, Nodes: machine.setup.Nodes, Logger: o.Log,
		Pods: pods, NodeObjects: objects, Lease: leaseWithin(o.NodeGrace),
	}
	if machine.clock != nil {
		config.Clock, config.MovedByHand = machine.clock, true
	}
	return agent.New(config)
}

// leaseWithin returns the duration of node Leases for a grace period of nodes.
func leaseWithin(grace time.Duration) time.Duration {
	return min(agent.DefaultLease, grace*4/5)
}

// runNodes runs the nodes until ctx ends.
func (p *controlPlane) runNodes(ctx context.Context, nodes *agent.Agent) error {
	p.companions.change(func(c *apiserver.Companions) { c.Nodes = localNodes{nodes} })
	defer p.companions.change(func(c *apiserver.Companions) { c.Nodes = nil })
	return nodes.Run(ctx)
}

// localNodes are the nodes of this process, as kubelet.Nodes.
type localNodes struct{ *agent.Agent }

// Handler implements kubelet.Nodes.
func (n localNodes) Handler(node string) (http.Handler, error) {
	served, err := n.Only(node)
	return kubeletapi.Handler(served), err
}

func newScheduler(o completedOptions, api *apiserver.Server, pods, namespaces cache.SharedIndexInformer) (*scheduler.Scheduler, error) {
	config, err := api.Scheduler()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client of the scheduler: %w", err)
	}
	return scheduler.New(scheduler.Config{Client: client, Logger: o.Log, Pods: pods, Namespaces: namespaces})
}

// ending returns the pending work of the nodes for the pods among objects that are being deleted.
func ending(nodes *agent.Agent, deleted []report.HeldObject) []string {
	if nodes == nil {
		return nil
	}
	versions := make(map[types.UID]string)
	for _, o := range deleted {
		if o.Kind == "Pod" {
			versions[o.UID] = o.ResourceVersion
		}
	}
	return nodes.Ending(versions)
}
