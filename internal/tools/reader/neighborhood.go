package reader

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// fewObjects of a resource in one namespace are read one by one; for more, the namespace is listed.
const fewObjects = 16

// neighborhoodParallel bounds the parallel requests of Neighborhood: they are small, and a user waits.
const neighborhoodParallel = 16

// Known is a running collector's view of a cluster.
type Known struct {
	// View runs a function on the ownership graph.
	View func(func(g *ownership.Graph))
	// Resources are the served resources, Unread the resources whose objects are not in the graph.
	Resources []*inventory.Resource
	Unread    []inventory.Unread
}

// NeighborhoodOptions configure Neighborhood.
type NeighborhoodOptions struct {
	Now time.Time
	// IsBuiltIn reports whether the controller of a finalizer is known without a look at workloads. For any
	// other finalizer, the metadata of all Deployments, StatefulSets and DaemonSets is read, and all pods: a controller
	// may be a pod without such a workload.
	IsBuiltIn func(finalizer string) bool
	// Defaults, if set, returns the default modes of protection, as in Options.
	Defaults func(ctx context.Context) (protection.Defaults, error)
}

// Neighborhood reads the part of a cluster that the deletion of some objects concerns: the objects that the deletion
// reaches, and the objects that keep or block them. It finds them in the graph of a running collector, and
// reads only the few objects whose metadata says more than the graph. For these objects, the part gives the
// same results as the whole cluster.
func Neighborhood(ctx context.Context, config *rest.Config, known Known, uids []ownership.UID, o NeighborhoodOptions) (*inventory.Inventory, error) {
	r, err := newReader(config, Options{Now: o.Now, Pods: true})
	if err != nil {
		return nil, err
	}
	r.result.Resources, r.result.Unread = known.Resources, slices.Clone(known.Unread)
	r.result.Pods, r.result.Namespaces = map[ownership.UID]*inventory.Pod{}, map[ownership.UID]*corev1.Namespace{}
	n := &neighborhood{reader: r, objects: map[ownership.UID]*inventory.Object{}, converters: make(map[ownership.Kind]*converter)}
	if err := n.selectConcerned(ctx, known, uids); err != nil {
		return nil, err
	}
	s := n.selection
	for _, objects := range []map[ownership.UID]ownership.Object{s.Members, s.Asides} {
		for uid, object := range objects {
			n.keepKnown(uid, object)
		}
	}
	if err := n.read(ctx, o.IsBuiltIn); err != nil {
		return nil, err
	}
	n.addNodes(known)
	r.result.Objects = slices.Collect(maps.Values(n.objects))
	r.markDefaults(ctx, o.Defaults)
	r.sort()
	r.result.Index()
	return r.result, nil
}

// neighborhood is one call of Neighborhood.
type neighborhood struct {
	*reader
	selection *inventory.Selection

	mu         sync.Mutex
	objects    map[ownership.UID]*inventory.Object // guarded by mu
	converters map[ownership.Kind]*converter       // guarded by mu
}

// selectConcerned selects the objects that a question concerns, and those that the graph does not lead to.
func (n *neighborhood) selectConcerned(ctx context.Context, known Known, uids []ownership.UID) error {
	asked := make(map[ownership.UID]bool)
	for {
		n.selection = inventory.SelectConcerned(known.View, known.Resources, uids)
		more, err := n.named(ctx, asked)
		if err != nil || len(more) == 0 {
			return err
		}
		uids = slices.Concat(uids, more)
	}
}

// keepKnown keeps an object as the graph has it, unless its kind is no longer served.
func (n *neighborhood) keepKnown(uid ownership.UID, object ownership.Object) {
	if r := n.selection.Resources[object.Kind]; r != nil {
		n.objects[uid] = &inventory.Object{Object: object, Resource: r}
	}
}

// keepRead keeps an object as the server has it.
func (n *neighborhood) keepRead(r *inventory.Resource, meta *metav1.ObjectMeta) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.converters[r.OwnerKind()]
	if c == nil {
		c = newConverter(r)
		n.converters[r.OwnerKind()] = c
	}
	n.objects[ownership.UID(meta.UID)] = c.object(meta)
}

// place is a resource in a namespace.
type place struct {
	resource  *inventory.Resource
	namespace string
}

// read reads the members for which the graph is not enough: pods and namespaces whole, and the metadata of
// objects that are being deleted, are protected or have finalizers.
func (n *neighborhood) read(ctx context.Context, isBuiltIn func(string) bool) error {
	wanted := make(map[place][]ownership.Object)
	needsWorkloads := false
	for _, o := range n.selection.Members {
		hasForeign := slices.ContainsFunc(o.Finalizers, func(f string) bool { return !isBuiltIn(f) })
		needsWorkloads = needsWorkloads || hasForeign
		isWhole := o.Kind == inventory.PodKind() || o.Kind == ownership.Kind{Kind: "Namespace"}
		if r := n.selection.Resources[o.Kind]; r != nil && (isWhole || o.Protected || len(o.Finalizers) > 0 || o.Phase != ownership.Active) {
			at := place{r, o.Namespace}
			wanted[at] = append(wanted[at], o)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(neighborhoodParallel)
	for at, objects := range wanted {
		if len(objects) > fewObjects {
			group.Go(func() error { return n.readAll(ctx, at, objects) })
			continue
		}
		for _, o := range objects {
			group.Go(func() error { return n.readOne(ctx, at, o) })
		}
	}
	if needsWorkloads {
		for _, kind := range append(inventory.WorkloadKinds(), inventory.PodKind()) {
			if r := n.selection.Resources[kind]; r != nil {
				group.Go(func() error { return n.readAll(ctx, place{resource: r}, nil) })
			}
		}
	}
	return group.Wait()
}

// readOne reads one object. It drops the object if it is gone, or if its name has another UID now. A server that does not serve
// the kind for a moment also answers 404.
func (n *neighborhood) readOne(ctx context.Context, at place, o ownership.Object) error {
	meta, err := n.get(ctx, at, o)
	switch {
	case refusal.IsGone(err, o.Name):
		n.drop(o.UID)
	case err != nil:
		return n.missedAt(ctx, at, err)
	case ownership.UID(meta.UID) != o.UID:
		n.drop(o.UID)
	default:
		n.keepRead(at.resource, meta)
	}
	return nil
}

func (n *neighborhood) get(ctx context.Context, at place, o ownership.Object) (*metav1.ObjectMeta, error) {
	switch at.resource.GroupResource() {
	case corev1.Resource("pods"):
		pod, err := n.kubernetes.CoreV1().Pods(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
		if err == nil && ownership.UID(pod.UID) == o.UID {
			n.keepPod(o.UID, inventory.NewPod(pod))
		}
		return &pod.ObjectMeta, err
	case corev1.Resource("namespaces"):
		namespace, err := n.kubernetes.CoreV1().Namespaces().Get(ctx, o.Name, metav1.GetOptions{})
		if err == nil && ownership.UID(namespace.UID) == o.UID {
			n.mu.Lock()
			n.result.Namespaces[o.UID] = namespace
			n.mu.Unlock()
		}
		return &namespace.ObjectMeta, err
	default:
		meta, err := n.metadata.Resource(at.resource.GroupVersionResource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return &meta.ObjectMeta, nil
	}
}

func (n *neighborhood) keepPod(uid ownership.UID, pod *inventory.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.result.Pods[uid] = pod
}

func (n *neighborhood) drop(uid ownership.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.objects, uid)
}

// readAll lists the objects of a resource in a namespace, or in all namespaces. It keeps the wanted
// objects; all, if wanted is nil.
func (n *neighborhood) readAll(ctx context.Context, at place, wanted []ownership.Object) error {
	pending := make(map[ownership.UID]bool, len(wanted))
	for i := range wanted {
		pending[wanted[i].UID] = true
	}
	err := n.each(ctx, at.resource, part{namespace: at.namespace, isPods: n.readsPods(at.resource)}, func(meta *metav1.ObjectMeta, pod *inventory.Pod) {
		uid := ownership.UID(meta.UID)
		if wanted != nil && !pending[uid] {
			return
		}
		delete(pending, uid)
		n.keepRead(at.resource, meta)
		if pod != nil {
			n.keepPod(uid, pod)
		}
	})
	if err != nil {
		return n.missedAt(ctx, at, err)
	}
	for uid := range pending {
		n.drop(uid) // gone
	}
	return nil
}

// missedAt records a failed read; the objects stay as the graph has them.
func (n *neighborhood) missedAt(ctx context.Context, at place, err error) error {
	if err := unless(ctx, err); err != nil {
		return fmt.Errorf("read %s: %w", at.resource.GroupResource(), err)
	}
	u := unread(at.resource, at.namespace, err)
	n.reader.mu.Lock()
	defer n.reader.mu.Unlock()
	if !slices.ContainsFunc(n.result.Unread, func(other inventory.Unread) bool {
		return other.Resource == u.Resource && other.Namespace == u.Namespace
	}) {
		n.result.Unread = append(n.result.Unread, u)
	}
	return nil
}

// addNodes adds the nodes of the pods: the deletion of a pod depends on whether its node exists.
func (n *neighborhood) addNodes(known Known) {
	names := make(map[string]bool)
	for _, pod := range n.result.Pods {
		names[pod.Node] = true
	}
	if len(names) == 0 {
		return
	}
	wanted := ownership.Selector{Names: make(map[ownership.Name]bool, len(names))}
	for name := range names {
		wanted.Names[ownership.Name{Location: ownership.Location{Kind: inventory.NodeKind()}, Name: name}] = true
	}
	ownership.Survey(known.View, func(g *ownership.Graph, from ownership.Cursor) ownership.Cursor {
		uids, next := g.Selected(from, &wanted)
		for _, uid := range uids {
			if _, there := n.objects[uid]; !there {
				object, _ := g.Object(uid)
				n.keepKnown(uid, object)
			}
		}
		return next
	})
}
