package preview

import (
	"container/heap"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// worker is an actor other than the collector and users.
type worker int

const (
	emptier          worker = iota // deletes the contents of namespaces and the instances of definitions
	node                           // ends pods
	podCollector                   // removes pods that no node ends
	claimController                // releases PersistentVolumeClaims
	volumeController               // releases PersistentVolumes
	classController                // releases VolumeAttributesClasses
	releaser                       // removes the finalizers of other controllers
	workers
)

// agenda has the objects that a worker must look at, by their marks: the objects whose deletion has begun, which were
// written, or which wait for an object that is gone. A look at all other objects would change nothing. So the time of
// a play grows with the number of changes, not with that of turns times objects.
type agenda struct {
	marks  marks
	listed map[int]bool
}

// assign puts an object on the agendas of the workers that may change it, if it is being deleted.
func (p *play) assign(o *object) {
	if !o.deleting || o.removed {
		return
	}
	switch o.Resource.GroupResource() {
	case corev1.Resource("namespaces"):
		p.agendas[emptier].add(o.mark)
	case corev1.Resource("pods"):
		p.agendas[node].add(o.mark)
		p.agendas[podCollector].add(o.mark)
	case corev1.Resource("persistentvolumeclaims"):
		p.agendas[claimController].add(o.mark)
	case corev1.Resource("persistentvolumes"):
		p.agendas[volumeController].add(o.mark)
	}
	if slices.Contains(o.now.Finalizers, inuse.VACProtection) {
		p.agendas[classController].add(o.mark)
	}
	if slices.Contains(o.now.Finalizers, instancesFinalizer) {
		p.agendas[emptier].add(o.mark)
	}
	if p.options.Released != nil {
		p.agendas[releaser].add(o.mark)
	}
}

// assignWaiting puts the objects on the agendas that may wait for an object that is marked or gone.
func (p *play) assignWaiting(o *object) {
	for _, above := range []*object{p.emptied[o.Namespace], p.undefined[o.Resource]} {
		if above != nil {
			p.assign(above)
		}
	}
	if !o.removed {
		return
	}
	switch o.Resource.GroupResource() {
	case corev1.Resource("pods"):
		p.assignClaims(o)
	case corev1.Resource("serviceaccounts"), corev1.Resource("services"):
		p.followed = append(p.followed, o)
	case corev1.Resource("nodes"):
		p.abandoned = append(p.abandoned, p.onNode[o.Name]...)
	}
	for _, used := range p.used[o.UID] {
		p.assign(used)
	}
	for _, protected := range p.outliving[o.UID] {
		p.freed = append(p.freed, protected.UID)
		p.assignWaiting(protected)
	}
}

// assignClaims puts the claims on the agendas that a pod has used.
func (p *play) assignClaims(pod *object) {
	claims := p.inventory.Resource(ownership.Kind{Kind: "PersistentVolumeClaim"})
	known := p.inventory.Pods[pod.UID]
	switch {
	case claims == nil:
	case known == nil:
		p.unreadRemoved[pod.Namespace]++
		if p.unreadRemoved[pod.Namespace] < len(p.unreadPods[pod.Namespace]) {
			return // each of the others may use any claim
		}
		for _, o := range p.contents[pod.Namespace] {
			if loaded := p.objects[o.UID]; o.Resource == claims && loaded != nil {
				p.assign(loaded)
			}
		}
	default:
		for _, c := range known.Claims {
			if claim := p.inventory.Named(claims, pod.Namespace, c.Name); claim != nil && p.objects[claim.UID] != nil {
				p.assign(p.objects[claim.UID])
			}
		}
	}
}

// each is one turn of a worker: it looks at the objects on its agenda that are marked now, in the order of their marks.
// What this puts on the agenda is for the next turn, unless it comes later in that order.
func (p *play) each(w worker, act func(*object)) {
	a, end, last := &p.agendas[w], len(p.ending), -1
	var later []int
	for len(a.marks) > 0 {
		mark := heap.Pop(&a.marks).(int)
		delete(a.listed, mark)
		if mark <= last || mark >= end {
			later = append(later, mark)
			continue
		}
		last = mark
		o := p.ending[mark]
		p.steps += 1 + len(o.now.Owners)
		if !o.removed {
			act(o)
		}
	}
	for _, mark := range later {
		a.add(mark)
	}
}

func (a agenda) hasMore() bool { return len(a.marks) > 0 }

func (a *agenda) add(mark int) {
	if a.listed == nil {
		a.listed = map[int]bool{}
	}
	if !a.listed[mark] {
		a.listed[mark] = true
		heap.Push(&a.marks, mark)
	}
}

// marks is a heap.
type marks []int

func (m marks) Len() int           { return len(m) }
func (m marks) Less(i, j int) bool { return m[i] < m[j] }
func (m marks) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }

// Push implements heap.Interface.
func (m *marks) Push(mark any) { *m = append(*m, mark.(int)) }

// Pop implements heap.Interface.
func (m *marks) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// tally counts the loaded objects of a resource in a namespace that exist.
type tally struct {
	remaining int
	active    int       // those that are not being deleted
	known     []*object // the active ones, and some that were
}

// tallyKey identifies a tally; the namespace is everywhere for the objects in all namespaces.
type tallyKey struct {
	namespace string
	resource  schema.GroupResource
}

const everywhere = "*"

// tally returns the tally of a resource in a namespace.
func (p *play) tally(namespace string, r schema.GroupResource) *tally {
	key := tallyKey{namespace, r}
	t := p.tallies[key]
	if t == nil {
		t = &tally{}
		p.tallies[key] = t
	}
	return t
}

// count adds a loaded object to its tallies.
func (p *play) count(o *object) {
	r := o.Resource.GroupResource()
	o.tallies = [...]*tally{p.tally(o.Namespace, r), p.tally(everywhere, r)}
	for _, t := range o.tallies {
		t.remaining++
		if !o.deleting {
			t.active++
			t.known = append(t.known, o)
		}
	}
}

// countMarked counts an object whose deletion begins.
func (o *object) countMarked() {
	for _, t := range o.tallies {
		t.active--
	}
}

// countRemoved counts an object that is gone, and was marked or not.
func (o *object) countRemoved() {
	for _, t := range o.tallies {
		t.remaining--
		if !o.deleting {
			t.active--
		}
	}
}

// actives returns the UIDs of the active objects, in no order.
func (t *tally) actives() []ownership.UID {
	t.known = slices.DeleteFunc(t.known, func(o *object) bool { return o.deleting || o.removed }) // for good
	uids := make([]ownership.UID, len(t.known))
	for n, o := range t.known {
		uids[n] = o.UID
	}
	return uids
}
