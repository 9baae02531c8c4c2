package system

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice"
	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/node/agent"
	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/cri"
	"github.com/coppice-dev/coppice/internal/node/agent/movableclock"
	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/node/agent/nodeserver"
	"github.com/coppice-dev/coppice/internal/node/scheduler"
)

// nodesDir is the directory in the data directory for an agent with real containers.
const nodesDir = "node"

// clearTimeout bounds the removal of all containers of an ephemeral control plane.
const clearTimeout = time.Minute

// openMachine opens the container runtime of this process's nodes, if there is one. closeMachine removes
// the containers if the control plane is ephemeral.
func openMachine(ctx context.Context, o *Options, dir *workDir) (closeMachine func(), err error) {
	if o.Nodes.Nodes == 0 {
		return func() {}, nil
	}
	o.references = &references{}
	o.Nodes.Dir, o.Nodes.Version, o.Nodes.Log, o.Nodes.Objects = dir.join(nodesDir), o.Version, o.Log, o.references
	if o.MovableNodeClock {
		o.nodeClock = movableclock.New()
		o.Nodes.Clock = o.nodeClock
	}
	o.machine, err = nodeconfig.Open(ctx, o.Nodes)
	if err != nil {
		return nil, err
	}
	return func() {
		if !o.Ephemeral {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTimeout)
		defer cancel()
		if err := o.machine.Clear(ctx); err != nil {
			o.Log.ErrorContext(ctx, "containers not removed", "error", err)
		}
	}, nil
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

// newNodes returns the agent of the nodes of this process.
func newNodes(o Options, api *apiserver.Server, pods, objects cache.SharedIndexInformer) (*agent.Agent, error) {
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
		reader, err := kubernetes.NewForConfig(api.Node(o.machine.Nodes[0].Name))
		if err != nil {
			return nil, fmt.Errorf("create the client of the node: %w", err)
		}
		o.references.client.Store(reader)
	}
	config := agent.Config{
		Client: client, Runtime: o.machine.Runtime, Nodes: o.machine.Nodes, Logger: o.Log,
		Pods: pods, NodeObjects: objects, Lease: leaseWithin(o.NodeGrace),
	}
	if o.nodeClock != nil {
		config.Clock, config.MovedByHand = o.nodeClock, true
	}
	return agent.New(config)
}

// leaseWithin returns the duration of node Leases for a grace period of nodes.
func leaseWithin(grace time.Duration) time.Duration {
	if grace == 0 {
		return agent.DefaultLease
	}
	return min(agent.DefaultLease, grace*4/5)
}

// runNodes runs the nodes until ctx ends.
func runNodes(ctx context.Context, api *apiserver.Server, nodes *agent.Agent) error {
	api.ServeLogs(nodes.Logs)
	defer api.ServeLogs(nil)
	api.ServeStreams(nodes.Stream)
	defer api.ServeStreams(nil)
	api.ServeAgents(func(node string) (http.Handler, error) {
		served, err := nodes.Only(node)
		return nodeserver.Handler(served), err
	})
	defer api.ServeAgents(nil)
	return nodes.Run(ctx)
}

func newScheduler(o Options, api *apiserver.Server, pods, namespaces cache.SharedIndexInformer) (*scheduler.Scheduler, error) {
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
func ending(nodes *agent.Agent, deleted []coppice.HeldObject) []string {
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
