// Package preview foretells what a deletion will do: which objects go, in which steps and by whom;
// which lose owner references; which stay, and what keeps them; which hang, and on what. It does
// no I/O and reads no clock.
//
// It has no rules of its own. It plays the deletion on a copy, with the packages that act:
//
//	deletion.Decide     what a DELETE does to an object: the server
//	verdict.Decide      what follows for an object from its owners: the collector
//	namespaces.Next     what of a namespace is deleted next: the namespace controller
//	protection.Decide   whether an object says that it is not to be deleted
//	volumeprotection    whether a volume claim is in use: the controller that protects it
//
// The main flow: New indexes an inventory; Predict plays the requests until nothing changes any
// more (play.go, collect.go, contents.go), and compares the copy with the inventory (outcome.go).
// The copy has only what the deletion reaches: an object is loaded when somebody decides about it.
// What is decided elsewhere in the cluster meanwhile is left out.
//
// Several actors work at the same time, and some outcomes depend on who is first. So the deletion
// is played in several schedules; what differs between them is called a race (race.go).
package preview

import (
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Request is one DELETE, in the order in which they are made.
type Request struct {
	UID ownership.UID
	// Propagation is the policy that the DELETE asks for; empty for none, which leaves it to the
	// object and its kind (R17).
	Propagation metav1.DeletionPropagation
}

// Options are what a prediction assumes.
type Options struct {
	// Now is the time of the DELETE.
	Now time.Time
	// Order is the order in which the contents of namespaces are deleted.
	Order namespaces.Order
	// RepeatedReplaces tells whether a DELETE of an object that is being deleted replaces the policy, as on
	// kube-apiserver, and does not only end it (R19). It is asked if there is such a DELETE. Nil: it does not.
	RepeatedReplaces func() bool
	// Released tells of a foreign finalizer of an object whether its controller removes it once
	// the object is being deleted. Nil: none is removed.
	Released func(o *inventory.Object, finalizer string) bool
	// Lost tells of a node that is there whether it does not answer, so that it ends no pods. Nil: all
	// do.
	Lost func(node string) bool
	// Volume returns a PersistentVolume, and the claim of the name in its claimRef, nil if there is none. Nil:
	// no volume can be read.
	Volume func(name string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error)
	// Protection returns how the server protects an object that says that it is protected (R28), and
	// what of the others is there that it outlives; false if the server does not. Nil: it does not.
	Protection func(o *inventory.Object) (protection.Protection, []protection.Left, bool)
}

// Cluster is an inventory that deletions are predicted in. It may be used concurrently.
type Cluster struct {
	inventory *inventory.Inventory
	// claimants are the objects that name a uid as an owner, rightly or not.
	claimants map[ownership.UID][]*inventory.Object
	// contents are the objects of each namespace.
	contents map[string][]*inventory.Object
	// instances are the objects of each resource.
	instances map[*inventory.Resource][]*inventory.Object
	// resources are those that a namespace is emptied of; undiscovered are the group versions that may
	// have more of them, and do not answer: nil if all do.
	resources    []namespaces.Resource
	undiscovered *namespaces.Incomplete
}

// New indexes an inventory, which must be complete and must not change any more.
func New(inv *inventory.Inventory) *Cluster {
	w := &Cluster{
		inventory: inv,
		claimants: make(map[ownership.UID][]*inventory.Object, len(inv.Objects)),
		contents:  map[string][]*inventory.Object{},
		instances: map[*inventory.Resource][]*inventory.Object{},
	}
	for _, o := range inv.Objects {
		for n, owner := range o.Owners {
			if !named(o.Owners[:n], owner.UID) {
				w.claimants[owner.UID] = append(w.claimants[owner.UID], o)
			}
		}
		if o.Namespace != "" {
			w.contents[o.Namespace] = append(w.contents[o.Namespace], o)
		}
		w.instances[o.Resource] = append(w.instances[o.Resource], o)
	}
	for _, r := range inv.Resources {
		if r.Namespaced && r.Deletable {
			w.resources = append(w.resources, namespaces.Resource{GroupVersionResource: r.GroupVersionResource})
		}
	}
	for _, u := range inv.Unread {
		if u.Resource.Resource != "" {
			continue
		}
		if w.undiscovered == nil {
			w.undiscovered = &namespaces.Incomplete{Groups: map[schema.GroupVersion]error{}}
		}
		w.undiscovered.Groups[u.Resource.GroupVersion()] = errors.New(u.Why)
	}
	return w
}

// survey begins a sync of the namespace controller.
func (w *Cluster) survey(order namespaces.Order) *namespaces.Survey {
	s := &namespaces.Survey{Resources: w.resources, Order: order}
	if w.undiscovered != nil {
		s.Discovery = w.undiscovered
	}
	return s
}

// Predict foretells what the requests do. What is being deleted already counts, as far as the
// requests reach it.
func (w *Cluster) Predict(requests []Request, o Options) Prediction {
	all := schedules(len(requests))
	first := w.play(requests, o, all[0])
	races := map[ownership.UID]bool{}
	if !first.isCertain(requests) {
		for _, s := range slices.Concat(all[1:], randomSchedules(len(first.objects))) {
			first.compare(w.play(requests, o, s), races)
		}
	}
	for uid := range races {
		first.load(w.inventory.Object(uid)) // what only another schedule has reached is told, too
	}
	first.settle()
	return first.prediction(requests, races)
}

// play plays the requests in one schedule.
func (w *Cluster) play(requests []Request, o Options, s schedule) *play {
	p := newPlay(w, o, s)
	for _, r := range requests {
		p.request(r)
		if s.patient {
			p.settle()
		}
	}
	p.settle()
	return p
}

// named reports whether owner references include a uid.
func named(owners []ownership.Reference, uid ownership.UID) bool {
	for n := range owners {
		if owners[n].UID == uid {
			return true
		}
	}
	return false
}
