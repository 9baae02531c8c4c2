package preview

import (
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/deletion"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// firstVersion is above every resourceVersion of a server, so that simulated objects are newer than the inventory.
const firstVersion = uint64(1) << 60

// play is the copy for one simulated deletion: the storage of a server, and the graph of a collector whose watches
// are never late.
type play struct {
	*Cluster
	options  Options
	schedule schedule

	objects map[ownership.UID]*object // the loaded objects
	loaded  []*object                 // the same, in the order of their loads
	graph   *ownership.Graph
	queue   map[ownership.UID]bool // objects that the collector must reconsider
	ending  []*object              // objects that are being deleted, in the order of their marks
	agendas [workers]agenda        // the objects of ending that the other actors must look at
	version uint64                 // of the last write
	step    int
	size    int // loaded objects, and their owner references
	steps   int // objects that an actor has considered, and the owner references of these

	tallies map[tallyKey]*tally // of the loaded objects
	// These find the objects that wait for another one: namespaces by name and definitions by the resource that they
	// define, both while their contents are being deleted; volumes and classes by the UID of an object that uses them;
	// protected objects by the UID of an object that they outlive.
	emptied   map[string]*object
	undefined map[*inventory.Resource]*object
	used      map[ownership.UID][]*object
	outliving map[ownership.UID][]*object
	// These are results of stored.
	metadata metav1.PartialObjectMetadata
	asPod    corev1.Pod
	// unreadRemoved counts the pods of Cluster.unreadPods that are gone, by namespace.
	unreadRemoved map[string]int
	freed         []ownership.UID     // protected objects that outlive fewer objects now
	repeated      []ownership.UID     // objects that the server refuses to delete to upstream's collector
	repeatedAt    uint64              // the version at which these were last tried again
	abandoned     []*inventory.Object // pods whose nodes have been deleted
	followed      []*object           // ServiceAccounts and Services that are gone
}

// object is an object in the copy.
type object struct {
	*inventory.Object // as it was read

	now ownership.Object // as it is in the copy

	deleting       bool
	mark           int // index into ending, if it is being deleted
	deadline       time.Time
	grace          int64                  // in seconds
	specFinalizers []corev1.FinalizerName // of a namespace
	removed        bool
	tallies        [2]*tally // those that count it

	by      Actor              // the first actor that requested the deletion
	garbage builtin.PodGarbage // why the pod garbage collector has ended it, instead of a node; empty if it has not
	step    int                // in which it was deleted
	refused string             // why a request was refused

	refusal  *Refusal // the last one of the server; nil if it has refused nothing
	deciders []string // what may refuse a write, and cannot be foreseen

	holds []Hold // what keeps the collector's finalizer, after its last attempt to remove it

	protection *protected // nil before the lookup, or if the object has none

	dependentsLoaded, contentsLoaded bool
}

func newPlay(w *Cluster, o Options, s schedule) *play {
	p := &play{
		Cluster: w, options: o, schedule: s,
		objects: map[ownership.UID]*object{},
		graph:   ownership.New(),
		queue:   map[ownership.UID]bool{},
		version: firstVersion,
		tallies: map[tallyKey]*tally{},
		emptied: map[string]*object{}, undefined: map[*inventory.Resource]*object{},
		used: map[ownership.UID][]*object{}, outliving: map[ownership.UID][]*object{},
		unreadRemoved: map[string]int{},
	}
	for _, r := range w.inventory.Resources {
		scope := ownership.Cluster
		if r.Namespaced {
			scope = ownership.Namespaced
		}
		p.graph.SetScope(r.OwnerKind(), scope)
	}
	return p
}

// reserve makes room for more objects at once, if they are the most.
func (p *play) reserve(more int) {
	if more > len(p.objects) {
		roomy := make(map[ownership.UID]*object, len(p.objects)+more)
		maps.Copy(roomy, p.objects)
		p.objects = roomy
		p.loaded = slices.Grow(p.loaded, more)
	}
}

// load copies an object, unless it was copied before.
func (p *play) load(o *inventory.Object) *object {
	if known := p.objects[o.UID]; known != nil {
		return known
	}
	loaded := &object{Object: o, now: o.Object, deleting: o.Phase != ownership.Active}
	loaded.deadline, loaded.grace = o.Deadline(), int64(o.Grace/time.Second)
	if o.Resource.GroupResource() == corev1.Resource("namespaces") {
		loaded.specFinalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		if ns := p.inventory.Namespaces[o.UID]; ns != nil {
			loaded.specFinalizers = slices.Clone(ns.Spec.Finalizers)
		}
	}
	p.objects[o.UID], p.loaded = loaded, append(p.loaded, loaded)
	p.size += 1 + len(o.Owners)
	p.count(loaded)
	if loaded.deleting {
		p.end(loaded)
	}
	p.enqueue(p.graph.Observe(o.Object))
	return loaded
}

// loadDependents copies all objects that name an object as their owner: a change of the owner may affect these
// claims.
func (p *play) loadDependents(o *object) {
	if o.dependentsLoaded {
		return
	}
	o.dependentsLoaded = true
	for _, dependent := range p.claimants[o.UID] {
		p.load(dependent)
	}
}

// end begins the deletion of an object.
func (p *play) end(o *object) {
	if !o.deleting {
		o.countMarked()
		o.deleting = true
	}
	o.mark = len(p.ending)
	p.ending = append(p.ending, o)
	p.assign(o)
	p.assignWaiting(o)
}

func (p *play) enqueue(uids []ownership.UID) {
	for _, uid := range uids {
		p.queue[uid] = true
	}
}

// request makes the DELETE of a user.
func (p *play) request(r Request) {
	o := p.inventory.Object(r.UID)
	if o == nil {
		return
	}
	loaded := p.load(o)
	if err := p.delete(loaded, r.Propagation, ByUser); err != nil {
		loaded.refused = err.Error()
	}
}

// delete makes a DELETE (R17-R19).
func (p *play) delete(o *object, policy metav1.DeletionPropagation, by Actor) error {
	options := &metav1.DeleteOptions{}
	if policy != "" {
		options.PropagationPolicy = &policy
	}
	return p.deleteWith(o, options, by)
}

func (p *play) deleteWith(o *object, options *metav1.DeleteOptions, by Actor) error {
	if o.removed {
		return nil
	}
	p.guardInstances(o)
	strategy := builtin.StrategyOf(o.Resource.GroupResource())
	strategy.RepeatedReplaces = o.deleting && p.options.RepeatedReplaces != nil && p.options.RepeatedReplaces()
	plan, err := deletion.Decide(p.stored(o), options, strategy, p.options.Now)
	if err != nil {
		return err
	}
	if _, keeps := plan.(deletion.Keep); keeps && strategy.RepeatedReplaces && o.grace > 0 {
		return nil // kube-apiserver asks nobody about a grace period that goes on
	}
	use := Read
	if _, marks := plan.(deletion.Mark); marks {
		use = Change
	}
	if by != ByServer { // which has listed the instances before
		if err := p.convert(o, by, use); err != nil {
			return err
		}
	}
	if err := p.protect(o, by); err != nil { // our server looks at it before admission
		return err
	}
	if err := p.admit(o, options, by); err != nil {
		return err
	}
	if o.by == "" && !o.deleting {
		o.by = by
	}
	if o.refusal != nil && o.refusal.To != ByUser && !o.refusal.IsUpdate {
		o.refusal = nil // another actor may do it
	}
	switch plan := plan.(type) {
	case deletion.Remove:
		p.remove(o)
	case deletion.Mark:
		o.now.Finalizers = plan.Finalizers
		o.deadline, o.grace = plan.DeletionTimestamp.Time, plan.GracePeriodSeconds
		if !o.deleting {
			p.end(o)
		}
		p.write(o)
	case deletion.Keep:
	}
	return nil
}

// write stores the present state of an object, or removes the object if nothing holds it any more (R18).
func (p *play) write(o *object) {
	if o.deleting && deletion.Finished(p.stored(o), builtin.StrategyOf(o.Resource.GroupResource())) {
		p.remove(o)
		return
	}
	if o.deleting {
		p.loadDependents(o)
		p.assign(o)
	}
	p.version++
	o.now.ResourceVersion = strconv.FormatUint(p.version, 10)
	o.now.Phase = ownership.PhaseOf(o.deleting, o.now.Finalizers)
	p.enqueue(p.graph.Observe(o.now))
}

func (p *play) remove(o *object) {
	p.loadDependents(o)
	for _, r := range o.now.Owners {
		// Owners in foreground deletion may have waited for this object.
		if owner := p.inventory.Object(r.UID); owner != nil && owner.Phase != ownership.Active {
			p.load(owner)
		}
	}
	o.countRemoved()
	o.removed, o.step = true, p.step
	p.assignWaiting(o)
	p.version++
	p.enqueue(p.seen(o, p.graph.Forget(o.UID, strconv.FormatUint(p.version, 10))))
}

// stored returns an object as the server stores it, with the fields that the strategy of its kind reads. The next call may
// change it.
func (p *play) stored(o *object) runtime.Object {
	m := metav1.ObjectMeta{
		Name: o.Name, Namespace: o.Namespace, UID: types.UID(o.UID), Finalizers: slices.Clone(o.now.Finalizers),
	}
	if o.deleting {
		m.DeletionTimestamp = &metav1.Time{Time: o.deadline}
		m.DeletionGracePeriodSeconds = &o.grace
	}
	switch o.Resource.GroupResource() {
	case corev1.Resource("pods"):
		return p.pod(o, m)
	case corev1.Resource("namespaces"):
		return &corev1.Namespace{ObjectMeta: m, Spec: corev1.NamespaceSpec{Finalizers: o.specFinalizers}}
	}
	p.metadata.ObjectMeta = m
	return &p.metadata
}

// pod returns a pod. If the inventory has only its metadata, it counts as running, with the default grace period.
func (p *play) pod(o *object, m metav1.ObjectMeta) *corev1.Pod {
	known := p.inventory.Pods[o.UID]
	if known == nil {
		known = &inventory.Pod{Node: "unknown", Grace: corev1.DefaultTerminationGracePeriodSeconds * time.Second}
	}
	p.asPod = known.Object(m)
	return &p.asPod
}

// settle lets all actors work until nothing changes any more.
func (p *play) settle() {
	for p.turn() {
	}
}

// turn is one turn of all actors. It returns false if nothing has changed, and nobody has more to do.
func (p *play) turn() bool {
	before := p.version
	p.step++
	p.enqueue(p.freed)
	p.freed = nil
	if !p.schedule.late {
		p.collect()
	}
	p.each(emptier, p.empty)
	p.each(node, p.endPod)
	p.each(claimController, p.freeClaim)
	p.each(volumeController, p.freeVolume)
	p.each(classController, p.freeClass)
	p.each(releaser, p.release)
	if p.schedule.late && p.version == before {
		p.collect()
	}
	if p.version == before && len(p.queue) == 0 {
		p.follow()
	}
	if p.version == before && len(p.queue)+len(p.followed) == 0 { // all others are done long before
		p.collectPods()
	}
	if p.repeatedAt != p.version && (!p.schedule.late || p.version == before) {
		p.repeatedAt = p.version
		p.enqueue(p.repeated)
	}
	return p.version != before || len(p.queue)+len(p.abandoned)+len(p.followed) > 0 || slices.ContainsFunc(p.agendas[:], agenda.hasMore)
}
