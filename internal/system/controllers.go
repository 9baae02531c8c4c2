package system

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/definitions"
	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	collectorclient "github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/collect/process"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/controller/volumeprotection"
	"github.com/coppice-dev/coppice/internal/node/agent"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/admission"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
	"github.com/coppice-dev/coppice/internal/tools/web"
	toolsapi "github.com/coppice-dev/coppice/internal/tools/web/api"
	"github.com/coppice-dev/coppice/internal/tools/web/page"
)

// controllersPrefix is the prefix of the paths that the API server itself also serves.
const controllersPrefix = "/coppice"

// elect runs the controllers while this process leads. The collector and the namespace controller observe all the time,
// so that they work as soon as it leads; the other controllers begin from lists.
func (p *controlPlane) elect(ctx context.Context) error {
	config, err := p.api.LeaderElection()
	if err != nil {
		return err
	}
	lease := process.Lease{Namespace: metav1.NamespaceSystem, Name: bootstrappolicy.ControllersLease, Times: process.FastLeaseTimes(), Log: p.options.Log}
	controllers, err := newControllers(p.options, p.api)
	if err != nil {
		return err
	}
	work := func(ctx context.Context) error {
		return p.runControllers(ctx, controllers, process.Controllers.Lead, func() {})
	}
	if controllers.Collector == nil && controllers.Namespaces == nil {
		return lease.RunAlways(ctx, config, &p.diagnostics.role, work)
	}
	return lease.RunWarm(ctx, config, &p.diagnostics.role, controllers, work)
}

// runControllers runs the controllers until ctx ends, the collector and the namespace controller by run. It calls
// answering once these answer requests. It may then be called again, if run may.
func (p *controlPlane) runControllers(
	ctx context.Context, controllers metrics.Controllers, run func(process.Controllers, context.Context) error, answering func(),
) error {
	o, api := p.options, p.api
	group, ctx := errgroup.WithContext(ctx)
	var nodes atomic.Pointer[agent.Agent]
	if o.runsCoppice() {
		reporter, err := newDefinitions(o, api)
		if err != nil {
			return err
		}
		controllers.Metrics = slices.Clone(controllers.Metrics)
		controllers.AddDefinitions(reporter)
		controllers.Others = func(deleted []report.HeldObject) []string { return ending(nodes.Load(), deleted) }
		p.diagnostics.set(diagnosticsOf(controllers, api, o.Confirm))
		defer p.diagnostics.set(nil)
		p.reset.settle.Store(new(controllers.Settle))
		defer p.reset.settle.Store(nil)
		if controllers.Collector != nil {
			p.companions.change(func(c *apiserver.Companions) { accompany(c, controllers.Collector) })
			defer p.companions.change(func(c *apiserver.Companions) { c.Backlog, c.HasFinalizer, c.Requested = nil, nil, nil })
		}
		group.Go(func() error { return run(controllers.Controllers, ctx) })
	}
	answering()
	if o.VolumeProtection == InProcess {
		config, err := api.ProtectionController()
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("create the client of the protection: %w", err)
		}
		protector, err := volumeprotection.New(volumeprotection.Config{Client: client, Logger: o.Log})
		if err != nil {
			return err
		}
		group.Go(func() error { return protector.Run(ctx) })
	}
	defer p.reset.workloads.Store(nil)
	parts, err := p.newParts(ctx, &nodes)
	if err != nil {
		return err
	}
	for _, run := range parts {
		group.Go(run)
	}
	return group.Wait()
}

// companions are the current companions of the API server. The zero value is ready to use.
type companions struct {
	changing sync.Mutex // held while current is replaced
	current  atomic.Pointer[apiserver.Companions]
}

// change replaces the companions by a changed copy.
func (c *companions) change(change func(*apiserver.Companions)) {
	c.changing.Lock()
	defer c.changing.Unlock()
	next := c.get()
	next.Components = maps.Clone(next.Components)
	change(&next)
	c.current.Store(&next)
}

// get is apiserver.Config.Companions.
func (c *companions) get() apiserver.Companions {
	if current := c.current.Load(); current != nil {
		return *current
	}
	return apiserver.Companions{}
}

// accompany makes the collector a companion.
func accompany(c *apiserver.Companions, of *collector.Collector) {
	stories := of.Parts().Stories
	c.Backlog, c.HasFinalizer = of.Backlog, of.Carries
	c.Requested = func(a deleteflow.Requested) {
		stories.Requested(story.Request{
			Key: a.Request, UID: ownership.UID(a.UID), By: story.By{User: a.User, Agent: a.Agent}, Policy: string(a.Policy),
		})
	}
}

// newParts returns the workload controllers, the nodes and the scheduler, as far as they run in this
// process. They share one informer of pods, the most numerous objects; all three may read all pods. Each
// adds an index to it, so they are created sequentially, before any of them runs.
func (p *controlPlane) newParts(ctx context.Context, running *atomic.Pointer[agent.Agent]) (parts []func() error, err error) {
	o, api := p.options, p.api
	var pods, namespaces, nodeObjects cache.SharedIndexInformer
	if o.Workloads == InProcess {
		shared, err := newControllerContext(o, api)
		if err != nil {
			return nil, err
		}
		p.reset.workloads.Store(shared)
		pods, namespaces = shared.Informers.Pods.Informer(), shared.Informers.Namespaces.Informer()
		nodeObjects = shared.Informers.Nodes.Informer()
		quotas, err := newResourceQuotas(o, api, shared)
		if err != nil {
			return nil, err
		}
		workloads := func() error { return runWorkloads(ctx, o, api, shared) }
		parts = append(parts, p.asComponent(controllersComponent, workloads), func() error { return quotas.Run(ctx) })
	}
	if o.Workloads == Elsewhere {
		addresses, err := newServiceAddresses(o, api)
		if err != nil {
			return nil, err
		}
		parts = append(parts, func() error { return addresses(ctx) })
	}
	if o.Nodes.Nodes > 0 {
		nodes, err := p.newNodes(pods, nodeObjects)
		if err != nil {
			return nil, err
		}
		running.Store(nodes)
		parts = append(parts, func() error { return p.runNodes(ctx, nodes) })
	}
	if o.Scheduler {
		scheduler, err := newScheduler(o, api, pods, namespaces)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p.asComponent(schedulerComponent, func() error { return scheduler.Run(ctx) }))
	}
	return parts, nil
}

// The names of components for componentstatuses. They are Kubernetes'.
const (
	controllersComponent = "controller-manager"
	schedulerComponent   = "scheduler"
)

// asComponent returns a part that appears as a healthy component while it runs. If it fails, the process
// ends.
func (p *controlPlane) asComponent(name string, run func() error) func() error {
	return func() error {
		p.companions.change(func(c *apiserver.Companions) {
			if c.Components == nil {
				c.Components = map[string]func(context.Context) error{}
			}
			c.Components[name] = func(context.Context) error { return nil }
		})
		defer p.companions.change(func(c *apiserver.Companions) { delete(c.Components, name) })
		return run()
	}
}

// newControllers returns the collector and the namespace controller. Each has its own user, with only the
// permissions that it needs.
func newControllers(o completedOptions, api *apiserver.Server) (controllers metrics.Controllers, err error) {
	controllers.Program, controllers.Also = "coppice up", o.furtherControllers()
	if o.GarbageCollector == InProcess {
		config, err := api.Collector()
		if err != nil {
			return controllers, err
		}
		if err := controllers.AddCollector(config, collector.Options{Logger: o.Log, WrapMetadata: api.CollectorMetadata}); err != nil {
			return controllers, err
		}
	}
	if o.NamespaceController == InProcess {
		config, err := api.NamespaceController()
		if err != nil {
			return controllers, err
		}
		if err := controllers.AddNamespaceController(config, namespaces.Options{
			DeletionOrder: o.NamespaceDeletionOrder, Logger: o.Log, WrapMetadata: api.NamespaceControllerMetadata,
		}); err != nil {
			return controllers, err
		}
	}
	return controllers, nil
}

// newDefinitions returns the controller that reports definitions whose instances cannot be deleted.
func newDefinitions(o completedOptions, api *apiserver.Server) (*definitions.Controller, error) {
	client, err := apiextensions.NewForConfig(api.Client())
	if err != nil {
		return nil, fmt.Errorf("create the client of the definitions: %w", err)
	}
	events, err := collectorclient.NewEventClient(api.Client(), definitions.Mapping{}, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	return definitions.New(definitions.Config{Informer: api.Definitions(), Client: client, Events: events, Clock: clock.RealClock{}, Log: o.Log}), nil
}

// furtherControllers returns the names in kube-controller-manager of the other controllers in this process that remove
// finalizers.
func (o *completedOptions) furtherControllers() (names []string) {
	if o.VolumeProtection == InProcess {
		names = append(names, "persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller", "volumeattributesclass-protection-controller")
	}
	if o.Workloads == InProcess {
		names = append(names, "job-controller", "resourceclaim-controller", "service-cidr-controller", "pod-garbage-collector-controller")
	}
	return names
}

// diagnostics serves the diagnostics of the controllers through the API server, to administrators. A
// standby process responds with the identity of the leader.
type diagnostics struct {
	role process.Role

	mu      sync.Mutex
	handler http.Handler // guarded by mu; nil while no controllers run here
}

func (d *diagnostics) set(handler http.Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handler = handler
}

// serve registers the paths. The API server serves its own metrics under the usual path.
func (d *diagnostics) serve(api *apiserver.Server) {
	isReady := func() error { return nil } // the API server has its own path
	answer := usersOnly(web.StandBy(d.role.StandsBy, isReady, d))
	for _, path := range slices.Concat([]string{web.Status, web.Records, web.Settled, web.Graph}, toolsapi.Paths()) {
		api.Handle(path, answer)
	}
	api.HandlePrefix(toolsapi.Stories+"/", answer)
	for _, path := range page.Paths() {
		api.Handle(path, page.Handler())
	}
	api.Handle(controllersPrefix+web.Metrics, http.StripPrefix(controllersPrefix, answer))
}

// usersOnly refuses nodes and components of a control plane: upstream's, and ours, which have additional restrictions.
func usersOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who, ok := request.UserFrom(r.Context()); ok {
			if err := toolsapi.CheckUser(who.GetName(), who.GetGroups()); err != nil {
				http.Error(w, escape.Line(err.Error()), http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// diagnosticsOf returns the handler of the diagnostics of the controllers. Paths that name objects regardless
// of the user are for administrators. The paths of the API are for all users, and show only objects that the
// user may list.
func diagnosticsOf(controllers metrics.Controllers, api *apiserver.Server, limits protection.Limits) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(toolsapi.Prefix+"/", toolsapi.Handler(toolsapi.Of(controllers.Controllers, admission.New(), limits), ownAccess(api)))
	mux.Handle("/", web.Handler(web.Of(controllers)))
	return mux
}

// ownAccess returns the user of a request as the API server has authenticated it, with permissions from the
// server's authorizer.
func ownAccess(api *apiserver.Server) toolsapi.Access {
	authorize := api.Authorizer()
	return func(r *http.Request) (toolsapi.Caller, error) {
		who, ok := request.UserFrom(r.Context())
		if !ok {
			return toolsapi.Caller{}, toolsapi.ErrUnauthenticated
		}
		mayList := func(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error) {
			decision, _, err := authorize.Authorize(ctx, authorizer.AttributesRecord{
				User: who, Verb: "list", Namespace: namespace, ResourceRequest: true,
				APIGroup: resource.Group, APIVersion: "*", Resource: resource.Resource,
			})
			if err != nil && decision != authorizer.DecisionAllow {
				return false, fmt.Errorf("find out what the user may list: %w", err)
			}
			return decision == authorizer.DecisionAllow, nil
		}
		config := api.Client()
		config.Impersonate = rest.ImpersonationConfig{UserName: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: who.GetExtra()}
		return toolsapi.Caller{User: who.GetName(), MayList: mayList, Config: config}, nil
	}
}

// ServeHTTP implements http.Handler.
func (d *diagnostics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	handler := d.handler
	d.mu.Unlock()
	if handler == nil {
		http.Error(w, "no controllers run in this process", http.StatusServiceUnavailable)
		return
	}
	handler.ServeHTTP(w, r)
}
