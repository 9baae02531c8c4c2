// Package preview predicts the effects of a deletion: which objects are deleted, in which order and by which actor;
// which objects lose owner references; which objects stay, and why; which deletions hang, and on which finalizer,
// object or node. It does no I/O and reads no clock.
//
// It has no rules of its own. It simulates the deletion on a copy, with the packages that decide in the cluster:
//
//	deletion.Decide       the API server: the effect of a DELETE on an object
//	verdict.Decide        the collector: the effect of an object's owners on the object
//	namespaces.Next       our namespace controller: the contents to delete next; sweep.go has upstream's
//	apiservice.Outage     the collector's barrier: the owners that it holds because a group does not answer
//	protection.Decide     whether an object is marked as protected from deletion
//	inuse                 the volume protection controllers: whether a volume or a claim is in use
//	builtin.PodGarbageOf  the pod garbage collector: the pods that no kubelet ends
//
// The main flow: New indexes an inventory; Predict simulates the requests until nothing changes any more (play.go,
// agenda.go, collect.go, contents.go), and compares the copy with the inventory (outcome.go). The copy has only the
// objects that the deletion reaches: an object is loaded when an actor decides about it. Other changes in the cluster
// in the meantime are ignored.
//
// Several actors work at the same time, and some outcomes depend on which actor is first. So the deletion is
// simulated in several schedules; a difference between them is called a race (race.go).
package preview

import (
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Request is one DELETE. Requests are made in the order of their slice.
type Request struct {
	UID ownership.UID
	// Propagation is the policy that the DELETE names. If it is empty, the object and its kind decide (R17).
	Propagation metav1.DeletionPropagation
}

// RequestsOf returns a DELETE of each object, with the same policy.
func RequestsOf(uids []ownership.UID, policy metav1.DeletionPropagation) []Request {
	requests := make([]Request, len(uids))
	for n, uid := range uids {
		requests[n] = Request{UID: uid, Propagation: policy}
	}
	return requests
}

// Options are the assumptions of a prediction.
type Options struct {
	// Now is the time of the DELETE.
	Now time.Time
	// Order is the order in which the contents of namespaces are deleted.
	Order namespaces.Order
	// RepeatedReplaces reports whether a second DELETE of an object that is being deleted replaces the policy, as on
	// kube-apiserver, instead of only ending it (R19). It is called only if there is such a DELETE. Nil: it does not.
	RepeatedReplaces func() bool
	// Released reports whether the controller of a foreign finalizer removes it once the object is being deleted. Nil:
	// no controller does.
	Released func(o *inventory.Object, finalizer string) bool
	// Node returns the state of a node that the inventory has, or of which it is not known whether it exists. Nil: all
	// nodes are ready.
	Node func(name string) builtin.NodeState
	// Volume returns the PersistentVolume with a name. Nil: no volume can be read.
	Volume func(name string) inventory.Fact[inventory.Volume]
	// Class returns the objects that name a VolumeAttributesClass. Nil: they cannot be read.
	Class func(name string) inventory.Fact[[]inventory.ClassUser]
	// Protection returns how the server protects an object that is marked as protected (R28). Nil: the server protects
	// no object.
	Protection func(o *inventory.Object) inventory.Fact[inventory.Protection]
	// Admission predicts the answer of admission to a write. Nil: admission refuses nothing.
	Admission func(w Write) Judgement
	// Conversion returns the refusal of a request for an instance of a CustomResourceDefinition that cannot be converted, or
	// nil. Nil: all can be converted.
	Conversion func(o *inventory.Object, use Use) *refusal.Refusal
	// Holds returns the group versions in which an owner may have dependents that the collector cannot see, so that it
	// keeps a finalizer (R15). Nil: there are none.
	Holds func(o *inventory.Object, finalizer string) []Hold
	// Tokens returns the token Secrets in a namespace. Nil: there are none.
	Tokens func(namespace string) []inventory.Token
	// Follows reports whether the controllers run that delete token Secrets and Endpoints. Nil: they do.
	Follows func() bool
	// IsPreliminary reports whether one of the answers above was a guess, so that the prediction is not needed: Predict
	// then simulates one schedule only, to ask for the rest. Nil: it does not.
	IsPreliminary func() bool
}

// Cluster is an inventory with the indexes for predictions. It is safe for concurrent use.
type Cluster struct {
	inventory *inventory.Inventory
	// claimants are the objects that name a UID as an owner, rightly or wrongly.
	claimants map[ownership.UID][]*inventory.Object
	// contents are the objects of each namespace.
	contents map[string][]*inventory.Object
	// instances are the objects of each resource.
	instances map[*inventory.Resource][]*inventory.Object
	// users are the pods that name a PersistentVolumeClaim; unreadPods are the pods of each namespace of which only the
	// metadata is known, so that they may use any claim.
	users      map[types.NamespacedName][]*inventory.Object
	unreadPods map[string][]*inventory.Object
	// nodes are the nodes by name; onNode are the pods that are bound to each.
	nodes  map[string]*inventory.Object
	onNode map[string][]*inventory.Object
	// resources are the resources that the namespace controller deletes; undiscovered are the group versions that do
	// not answer and may have more resources: nil if all answer.
	resources    []namespaces.Resource
	undiscovered *namespaces.Incomplete
	// unconverted are the resources that could not be listed because their objects cannot be converted, with the refusal;
	// by namespace, which is empty for all.
	unconverted map[tallyKey]refusal.Refusal
}

// New indexes an inventory, which must be complete and must not change any more.
func New(inv *inventory.Inventory) *Cluster {
	w := &Cluster{
		inventory: inv,
		claimants: make(map[ownership.UID][]*inventory.Object, len(inv.Objects)),
		contents:  map[string][]*inventory.Object{},
		instances: map[*inventory.Resource][]*inventory.Object{},
		users:     map[types.NamespacedName][]*inventory.Object{}, unreadPods: map[string][]*inventory.Object{},
		nodes: map[string]*inventory.Object{}, onNode: map[string][]*inventory.Object{}, unconverted: map[tallyKey]refusal.Refusal{},
	}
	for _, o := range inv.Objects {
		for _, owner := range o.Owners {
			addOnce(w.claimants, owner.UID, o)
		}
		switch o.Kind {
		case inventory.PodKind():
			w.addPod(o)
		case inventory.NodeKind():
			w.nodes[o.Name] = o
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
		w.addUnread(u)
	}
	return w
}

// addUnread adds what could not be read: objects that cannot be converted, or a group version that does not answer.
func (w *Cluster) addUnread(u inventory.Unread) {
	if u.Resource.Resource != "" {
		if r, ok := refusal.In(u.Why); ok && r.By == refusal.ByConversion {
			w.unconverted[tallyKey{u.Namespace, u.Resource.GroupResource()}] = r
		}
		return
	}
	if w.undiscovered == nil {
		w.undiscovered = &namespaces.Incomplete{Groups: map[schema.GroupVersion]error{}, Remembered: map[schema.GroupVersion]bool{}}
	}
	gv := u.Resource.GroupVersion()
	w.undiscovered.Groups[gv] = errors.New(u.Why)
	if slices.ContainsFunc(w.inventory.Resources, func(r *inventory.Resource) bool { return r.GroupVersion() == gv }) {
		w.undiscovered.Remembered[gv] = true
	}
}

// addOnce adds an object to a list, unless it is the last one there.
func addOnce[K comparable](lists map[K][]*inventory.Object, key K, o *inventory.Object) {
	if known := lists[key]; len(known) == 0 || known[len(known)-1] != o {
		lists[key] = append(known, o)
	}
}

func (w *Cluster) addPod(o *inventory.Object) {
	pod := w.inventory.Pods[o.UID]
	if pod == nil {
		w.unreadPods[o.Namespace] = append(w.unreadPods[o.Namespace], o)
		return
	}
	if pod.Node != "" {
		w.onNode[pod.Node] = append(w.onNode[pod.Node], o)
	}
	for _, c := range pod.Claims {
		addOnce(w.users, types.NamespacedName{Namespace: o.Namespace, Name: c.Name}, o)
	}
}

// survey begins a sync of our namespace controller.
func (w *Cluster) survey(order namespaces.Order) *namespaces.Survey {
	s := &namespaces.Survey{Resources: w.resources, Order: order}
	if w.undiscovered != nil {
		s.Discovery = w.undiscovered
	}
	return s
}

// Predict predicts the effects of the requests. Objects that are already being deleted count if the requests reach
// them.
func (w *Cluster) Predict(requests []Request, o Options) Prediction {
	all := schedules(len(requests))
	first := w.play(requests, o, all[0])
	races := map[ownership.UID]bool{}
	if o.IsPreliminary != nil && o.IsPreliminary() {
		return first.prediction(requests, races)
	}
	if !first.isCertain(requests) {
		for _, s := range slices.Concat(all[1:], randomSchedules(len(first.objects))) {
			first.compare(w.play(requests, o, s), races)
		}
	}
	for uid := range races {
		first.load(w.inventory.Object(uid)) // the prediction includes objects that only another schedule reaches
	}
	first.settle()
	return first.prediction(requests, races)
}

// play simulates the requests in one schedule.
func (w *Cluster) play(requests []Request, o Options, s schedule) *play {
	p := newPlay(w, o, s)
	for _, r := range requests {
		p.request(r)
		if s.patient && p.steps <= mostPatience*p.size {
			p.settle()
		}
	}
	p.settle()
	return p
}

// mostPatience bounds the work of a patient schedule, in steps for each object and owner reference. If each of n
// requests writes an object with n owners, as foreground deletions of all its owners do, a settled copy after each
// request would take n² steps. The user of such a schedule waits after the first requests only.
const mostPatience = 32
