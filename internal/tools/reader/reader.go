// Package reader reads a cluster into an inventory: all resources that can be listed, metadata only,
// several at a time. It sends only GET requests, so it never changes the cluster.
//
// The main flow: Read discovers the served resources (discover.go), lists each resource page by page
// (list.go), and keeps the metadata that deletion depends on (object.go). A group that does not answer, or a
// resource that the user may not list, does not fail the reading: it is recorded as unread. Events are left
// out without a record, as the collector leaves them out (R8): there are many of them, and they own nothing.
//
// A question about objects of one namespace nearly always needs only that namespace: the dependents of a
// namespaced object are in its namespace (R5). Options.Scope confines the reading to it, and inventory.Missing
// lists the kinds that must also be read (missing.go).
//
// The graph of a running collector has most of these facts. Neighborhood finds the objects of a question in it
// (inventory.SelectConcerned), and reads only the few objects for which the graph is not enough (neighborhood.go).
//
// Explanations, previews and audits also need facts beyond metadata: the workload of a controller, its Lease and the
// RBAC rules, the state of nodes, volumes, PodDisruptionBudgets, protection, and webhooks that may deny a deletion.
// Facts reads the facts that a decision needs (facts.go).
package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Options configure a reading.
type Options struct {
	// Now is the time of the reading, for the inventory.
	Now time.Time
	// Namespaces are read one by one if the user may not list all.
	Namespaces []string
	// Scope, if set, is called with the served resources, and confines the reading. Missing, if set, is then
	// called with the result, and returns the kinds that must still be read.
	Scope   func(served *inventory.Inventory) Scope
	Missing func(read *inventory.Inventory) inventory.Missing
	// Pods: read whole pods, instead of their metadata.
	Pods bool
	// Parallel is the number of lists that are read at a time; 0 stands for 8.
	Parallel int
	// Defaults, if set, returns the default modes of protection: objects of these resources are marked as protected.
	Defaults func(ctx context.Context) (protection.Defaults, error)
	// Progress, if set, is called while resources are read, by one goroutine at a time.
	Progress func(Progress)
}

// Scope confines a reading. Cluster-scoped objects are read in any case, and Leases, by which controllers show
// that they work.
type Scope struct {
	// Namespaces are the namespaces to read; nil for all.
	Namespaces []string
	// Beyond: also read the objects of other namespaces that have an owner of a cluster-scoped kind. This lists
	// all objects of these namespaces, but does not keep the others.
	Beyond bool
}

// Progress is the progress of the reading.
type Progress struct {
	Read, Resources int // resources read so far, and all resources
	Objects         int // objects read so far
}

// defaultParallel keeps a server of two cores busy, and leaves most of its seats to others.
const defaultParallel = 8

// reader reads one inventory.
type reader struct {
	discovery  *discovery.DiscoveryClient
	metadata   metadata.Interface
	kubernetes kubernetes.Interface
	options    Options
	streams    bool // the server encodes lists as it sends them

	mu       sync.Mutex
	progress Progress             // guarded by mu
	result   *inventory.Inventory // guarded by mu
}

// Read reads a cluster. It fails if discovery fails, if not a single resource can be listed, or if ctx
// ends.
func Read(ctx context.Context, config *rest.Config, o Options) (*inventory.Inventory, error) {
	r, err := newReader(config, o)
	if err != nil {
		return nil, err
	}
	resources, unread, err := discover(ctx, r.discovery)
	if err != nil {
		return nil, err
	}
	r.result.Resources, r.result.Unread = resources.all, slices.Clone(unread)
	if o.Scope != nil {
		served := &inventory.Inventory{Resources: resources.all, Unread: unread}
		served.Index()
		scope := o.Scope(served)
		r.result.Within, r.result.Beyond = scope.Namespaces, scope.Beyond
	}
	r.streams = r.serverStreams(ctx)
	if err := r.readAll(ctx, resources.listable); err != nil {
		return nil, err
	}
	if err := r.readMissing(ctx, resources.listable, unread); err != nil {
		return nil, err
	}
	r.markDefaults(ctx, o.Defaults)
	return r.result, r.finish(len(resources.listable))
}

// newReader makes the clients. The server limits the rate of requests; config's own limits do not apply, since
// a user waits for the result.
func newReader(config *rest.Config, o Options) (*reader, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	// The server warns about deprecated versions, but the reader reads the versions that the server prefers.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	// On one machine, compressing takes longer than sending.
	config.DisableCompression = config.DisableCompression || isLocal(config)
	r := &reader{options: o, result: &inventory.Inventory{Read: o.Now}}
	var err error
	if r.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client for discovery: %w", err)
	}
	if r.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client for metadata: %w", err)
	}
	if r.kubernetes, err = kubernetes.NewForConfig(Protobuf(config)); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return r, nil
}

// streamsSince is the minor version of Kubernetes since which its API server answers lists from its watch cache,
// consistently, and encodes them object by object. Before that, it would make the whole answer in memory.
const streamsSince = 34

// serverStreams reports whether the server can be asked for whole lists.
func (r *reader) serverStreams(ctx context.Context) bool {
	of, err := r.discovery.ServerVersionWithContext(ctx)
	if err != nil {
		return false
	}
	v, err := version.ParseGeneric(of.GitVersion)
	return err == nil && v.AtLeast(version.MajorMinor(1, streamsSince))
}

// isLocal reports whether the server is on this machine.
func isLocal(config *rest.Config) bool {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return false
	}
	ip := net.ParseIP(server.Hostname())
	return server.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// Protobuf returns a copy of config for a client of Kubernetes' own types, which every server can encode as
// protobuf: whole pods, workloads and nodes are large.
func Protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = protobufType
	config.AcceptContentTypes = protobufType + ",application/json"
	return config
}

// markDefaults marks the objects that are protected by default (R28), as their labels mark others. A user who may not
// read the defaults of a server gets none.
func (r *reader) markDefaults(ctx context.Context, read func(context.Context) (protection.Defaults, error)) {
	if read == nil {
		return
	}
	defaults, err := read(ctx)
	if err != nil || len(defaults) == 0 {
		return
	}
	for _, o := range r.result.Objects {
		if o.Resource != nil && o.Labels.Get(protection.Label) != protection.None {
			_, hasDefault := defaults[o.Resource.GroupResource()]
			o.Protected = o.Protected || hasDefault
		}
	}
}

// readAll lists the resources, and reads namespaces whole.
func (r *reader) readAll(ctx context.Context, resources []*inventory.Resource) error {
	r.progress.Resources += len(resources)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cmp.Or(r.options.Parallel, defaultParallel))
	group.Go(func() error { return r.readNamespaces(ctx) })
	for _, resource := range resources {
		group.Go(func() error {
			if err := r.list(ctx, resource); err != nil {
				return err
			}
			r.advance(1, 0)
			return nil
		})
	}
	return group.Wait()
}

// readNamespaces reads namespaces whole: the reasons why one stays are in its spec and status. If they cannot
// be listed, the result has no Namespaces.
func (r *reader) readNamespaces(ctx context.Context) error {
	found := make(map[ownership.UID]*corev1.Namespace)
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := r.kubernetes.CoreV1().Namespaces().List(ctx, options)
		if err != nil {
			return unless(ctx, err)
		}
		for i := range page.Items {
			n := &page.Items[i]
			n.ManagedFields = nil
			found[ownership.UID(n.UID)] = n
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Namespaces = found
	return nil
}

// unless returns an error only if ctx has ended: other failed reads are left out.
func unless(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("read the cluster: %w", err)
	}
	return nil
}

func (r *reader) advance(resources, objects int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.Read += resources
	r.progress.Objects += objects
	if r.options.Progress != nil {
		r.options.Progress(r.progress)
	}
}

// keep adds objects to the result, and pods if they are pods.
func (r *reader) keep(objects []*inventory.Object, pods map[ownership.UID]*inventory.Pod) {
	r.mu.Lock()
	r.result.Objects = append(r.result.Objects, objects...)
	if pods != nil && r.result.Pods == nil {
		r.result.Pods = make(map[ownership.UID]*inventory.Pod, len(pods))
	}
	maps.Copy(r.result.Pods, pods)
	r.mu.Unlock()
	r.advance(0, len(objects))
}

// missed records a resource that could not be read.
func (r *reader) missed(u inventory.Unread) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Unread = append(r.result.Unread, u)
}

// sort sorts the result, so that the same cluster gives the same inventory.
func (r *reader) sort() {
	i := r.result
	slices.SortFunc(i.Unread, func(a, b inventory.Unread) int {
		return cmp.Or(strings.Compare(a.Resource.Group, b.Resource.Group), strings.Compare(a.Resource.Resource, b.Resource.Resource), strings.Compare(a.Namespace, b.Namespace))
	})
}

// finish completes the result.
func (r *reader) finish(listable int) error {
	r.sort()
	i := r.result
	if len(i.Objects) == 0 && len(i.Unread) >= listable {
		why := "the server serves no resource that can be listed"
		if len(i.Unread) > 0 {
			why = i.Unread[0].Why
		}
		return errors.New("no resource can be read: " + why)
	}
	i.Index()
	return nil
}
