package preview

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Fate is the result of a deletion for an object.
type Fate string

// The fates.
const (
	// Deleted objects are gone in the end.
	Deleted Fate = "Deleted"
	// Waiting objects are being deleted, and stay until all their waits have ended.
	Waiting Fate = "Waiting"
	// Detached objects stay without some of their owner references.
	Detached Fate = "Detached"
	// Kept objects stay unchanged, although one of their owners is deleted.
	Kept Fate = "Kept"
	// Unknown objects have an owner that could not be read.
	Unknown Fate = "Unknown"
)

// Prediction is the effect of the requests.
type Prediction struct {
	// Outcomes are the outcomes of all objects that the requests concern, sorted by fate, step, resource, namespace and
	// name.
	Outcomes []Outcome
	// Counts are sorted by fate and kind.
	Counts []Count
	// Grace is the longest time that a node may take to end one of the pods. AtLeast is the longest time that the
	// preStop hooks of a pod sleep before its containers get the signal to end.
	Grace, AtLeast time.Duration
	// Budgets are the PodDisruptionBudgets that the deletion exceeds, sorted. AddBudgets sets them.
	Budgets []Budget
	// Unread are the resources that could not be read; the requests may concern their objects, too.
	Unread []inventory.Unread
	// UnreadAdmission says that policies or webhooks could not be read, and why; empty if no request needs them. They may
	// refuse a request, and are no decider of its object.
	UnreadAdmission string
	// Digest is a digest of the prediction: two predictions with the same digest predict the same for the same versions
	// of the same objects.
	Digest string
}

// Count counts the objects of a kind with one fate.
type Count struct {
	Fate    Fate
	Kind    ownership.Kind
	Objects int
}

// Outcome is the result of the deletion for one object.
type Outcome struct {
	Object *inventory.Object
	Fate   Fate
	// Race is true if the fate depends on which actor is first. Fate is then one of the possible fates.
	Race bool
	// By is the actor that requests the deletion; empty if no actor does, or if it was requested before.
	By Actor
	// Garbage is why the pod garbage collector ends a pod, instead of its node; empty if it does not.
	Garbage builtin.PodGarbage
	// Step is the step in which the object is deleted: after all objects with a lower one.
	Step int
	// Requested is true for an object that a request names; Refused is the server's answer if it refuses the request.
	Requested bool
	Refused   string
	// Refusal is the answer of the server to a write that it refuses; else nil. Deciders may refuse the deletion, and cannot
	// be foreseen: the fate of the object, and of those that depend on it, holds if they do not.
	Refusal  *Refusal
	Deciders []string
	// Protected is the reason why protection keeps an object from a cascading deletion (R28).
	Protected string
	// Finalizers and Owners are the final values of an object that stays.
	Finalizers []string
	Owners     []ownership.Reference
	// Lost are the owners whose references are removed; KeptBy are the owners that keep the object. Both are sorted.
	Lost, KeptBy []ownership.UID
	// Waits are the reasons why a waiting object waits.
	Waits []Wait
	// RecreatedBy is the controller that stays and may replace a deleted object, if any.
	RecreatedBy ownership.UID
}

// Refusal is the answer of the server to a write of an actor that it refuses.
type Refusal struct {
	refusal.Refusal

	To Actor
	// IsUpdate is true if it does not refuse a DELETE, but a change of finalizers or owner references; IsList, if it refuses
	// the list of an owner's resource, so that the collector does not see that the owner is gone.
	IsUpdate, IsList bool
}

// Reason is why an object waits.
type Reason string

// The reasons.
const (
	// OnFinalizer: the controller of a foreign finalizer has to remove it.
	OnFinalizer Reason = "Finalizer"
	// OnDependents: dependents that block a foreground deletion are still there.
	OnDependents Reason = "Dependents"
	// OnContents: a namespace is not empty, or a CustomResourceDefinition has instances.
	OnContents Reason = "Contents"
	// OnDiscovery: a group version does not answer, and may have objects in a namespace.
	OnDiscovery Reason = "Discovery"
	// OnBarrier: a group version does not answer, and may have dependents that the collector cannot see (R15).
	OnBarrier Reason = "Barrier"
	// OnUsers: pods use a PersistentVolumeClaim, or one is bound to a PersistentVolume.
	OnUsers Reason = "Users"
	// OnNode: the node of a pod does not answer, and so does not end the pod.
	OnNode Reason = "Node"
)

// Wait is one reason why an object waits.
type Wait struct {
	Reason Reason
	// Name is the name of the finalizer, of the node or of the group version. Why says why a group version holds the object.
	Name, Why string
	// Objects are the dependents, the contents or the users, sorted. Unseen names users that the inventory does not have.
	Objects []ownership.UID
	Unseen  []string
	// ServedBy is the controller that removes a finalizer; AddOwners sets it. AlsoDeleted is true if the deletion
	// also deletes that controller: then the controller may be gone before it has removed the finalizer.
	ServedBy    *finalizerowner.Answer
	AlsoDeleted bool
}

// AddOwners adds, to each finalizer that an object waits for, the controller that serves it.
func (p *Prediction) AddOwners(of func(o *inventory.Object, finalizer string) finalizerowner.Answer) {
	deleted := p.deleted()
	for n := range p.Outcomes {
		o := &p.Outcomes[n]
		for i := range o.Waits[:min(len(o.Waits), mostListed)] { // no report has more
			w := &o.Waits[i]
			if w.Reason == OnFinalizer {
				answer := of(o.Object, w.Name)
				w.ServedBy, w.AlsoDeleted = &answer, answer.Workload != "" && deleted[answer.Workload]
			}
		}
	}
}

// prediction returns the result of the play.
func (p *play) prediction(requests []Request, races map[ownership.UID]bool) Prediction {
	requested := make(map[ownership.UID]bool, len(requests))
	for _, r := range requests {
		requested[r.UID] = true
	}
	result := Prediction{Unread: p.inventory.Unread, Outcomes: make([]Outcome, 0, len(p.objects))}
	for _, o := range p.loaded {
		uid := o.UID
		if !requested[uid] && !races[uid] && !p.concerned(o) {
			continue
		}
		outcome := p.outcome(o)
		outcome.Requested, outcome.Race = requested[uid], races[uid]
		result.Outcomes = append(result.Outcomes, outcome)
		grace := p.graceOf(o)
		result.Grace = max(result.Grace, grace)
		result.AtLeast = max(result.AtLeast, min(grace, p.sleepOf(o)))
	}
	result.Outcomes = sorted(result.Outcomes)
	result.Counts = count(result.Outcomes)
	result.Digest = digest(result.Outcomes)
	return result
}

// concerned reports whether the deletion changes an object or one of its owners.
func (p *play) concerned(o *object) bool {
	return o.changed() || o.isHeld() || o.refusal != nil || slices.ContainsFunc(o.Owners, func(r ownership.Reference) bool {
		owner := p.objects[r.UID]
		return owner != nil && owner.UID != o.UID && owner.changed()
	})
}

func (p *play) outcome(o *object) Outcome {
	result := Outcome{Object: o.Object, By: o.by, Garbage: o.garbage, Refused: o.refused, Deciders: o.deciders}
	if o.removed {
		result.Fate, result.Step, result.RecreatedBy = Deleted, o.step, p.recreator(o)
		return result
	}
	result.Finalizers, result.Owners, result.Refusal = o.now.Finalizers, o.now.Owners, o.refusal
	if o.isHeld() {
		result.Protected = o.protection.held
	}
	kept := make(map[ownership.UID]bool, len(o.now.Owners))
	for _, r := range o.now.Owners {
		kept[r.UID] = true
	}
	for _, r := range o.Owners {
		if !kept[r.UID] {
			result.Lost = append(result.Lost, r.UID)
		}
	}
	slices.Sort(result.Lost)
	result.Lost = slices.Compact(result.Lost)
	facts, _ := verdict.Gather(p.graph, o.UID)
	for _, owner := range facts.Owners {
		switch owner.Standing {
		case verdict.Solid:
			result.KeptBy = append(result.KeptBy, owner.Reference.UID)
		case verdict.Unverified:
			result.Fate = Unknown
		case verdict.Waiting, verdict.Dangling, verdict.Unmapped, verdict.Misplaced:
		}
	}
	slices.Sort(result.KeptBy)
	result.KeptBy = slices.Compact(result.KeptBy)
	switch {
	case o.deleting:
		result.Fate, result.Waits = Waiting, p.waits(o, facts)
	case result.Fate == Unknown && len(result.KeptBy) == 0:
	case len(result.Lost) > 0:
		result.Fate = Detached
	default:
		result.Fate = Kept
	}
	return result
}

// waits returns the waits of an object that is being deleted.
func (p *play) waits(o *object, facts verdict.Facts) []Wait {
	var waits []Wait
	users, _ := p.claimUsers(o)
	ofVolume, isBound := p.waitOfVolume(o)
	ofClass, isNamed := p.waitOfClass(o)
	for _, f := range o.now.Finalizers {
		switch {
		case f == inuse.PVCProtection && len(users) > 0:
			waits = append(waits, Wait{Reason: OnUsers, Name: f, Objects: users})
		case f == inuse.PVProtection && isBound:
			waits = append(waits, ofVolume)
		case f == inuse.VACProtection && isNamed:
			waits = append(waits, ofClass)
		case f == instancesFinalizer:
			waits = append(waits, Wait{Reason: OnContents, Name: f, Objects: p.remaining(p.instances[p.defined(o)])})
		case isForeign(f):
			waits = append(waits, Wait{Reason: OnFinalizer, Name: f})
		case f == ownership.FinalizerForeground && len(facts.Blocking) > 0:
			waits = append(waits, Wait{Reason: OnDependents, Name: f, Objects: p.blocking(o)})
		case f == ownership.FinalizerOrphan && len(p.attached(o)) > 0:
			waits = append(waits, Wait{Reason: OnDependents, Name: f, Objects: p.attached(o)})
		}
	}
	for _, h := range o.holds {
		waits = append(waits, Wait{Reason: OnBarrier, Name: h.GroupVersion, Why: h.Why})
	}
	for _, f := range o.specFinalizers {
		if f == corev1.FinalizerKubernetes {
			waits = append(waits, p.waitsOfNamespace(o)...)
		} else {
			waits = append(waits, Wait{Reason: OnFinalizer, Name: string(f)})
		}
	}
	if pod := p.inventory.Pods[o.UID]; pod != nil && o.grace > 0 {
		waits = append(waits, Wait{Reason: OnNode, Name: pod.Node})
	}
	return waits
}

// blocking returns all dependents that block the deletion of an object. Gather returns only some of them.
func (p *play) blocking(o *object) []ownership.UID {
	return slices.Compact(slices.Sorted(p.graph.Blocking(o.UID)))
}

// attached returns the dependents from which an object is not detached yet.
func (p *play) attached(o *object) []ownership.UID {
	var uids []ownership.UID
	for _, dependent := range p.claimants[o.UID] {
		loaded := p.objects[dependent.UID]
		if loaded != nil && loaded.UID != o.UID && !loaded.removed && slices.ContainsFunc(loaded.now.Owners, func(r ownership.Reference) bool { return r.UID == o.UID }) {
			uids = append(uids, dependent.UID)
		}
	}
	slices.Sort(uids)
	return uids
}

// waitsOfNamespace returns the waits of the namespace controller.
func (p *play) waitsOfNamespace(o *object) []Wait {
	var waits []Wait
	remaining := p.remaining(p.contents[o.Name])
	if len(remaining) > 0 || p.undiscovered == nil {
		waits = append(waits, Wait{Reason: OnContents, Name: string(corev1.FinalizerKubernetes), Objects: remaining})
	}
	if p.undiscovered != nil {
		for gv := range p.undiscovered.Groups {
			if p.mayHaveContents(gv) {
				waits = append(waits, Wait{Reason: OnDiscovery, Name: gv.String()})
			}
		}
	}
	slices.SortFunc(waits, func(a, b Wait) int { return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Name, b.Name)) })
	return waits
}

// mayHaveContents reports whether a group version that does not answer holds namespaces: to Coppice's controller, one
// that it knew before does only if it has resources to delete (R22).
func (p *play) mayHaveContents(gv schema.GroupVersion) bool {
	return p.options.Order.IsUpstream() || !p.undiscovered.Remembered[gv] || slices.ContainsFunc(p.resources, func(r namespaces.Resource) bool {
		return r.GroupVersion() == gv
	})
}

// remaining returns the UIDs of the objects that still exist.
func (p *play) remaining(objects []*inventory.Object) []ownership.UID {
	var uids []ownership.UID
	for _, o := range objects {
		if loaded := p.objects[o.UID]; loaded != nil && !loaded.removed {
			uids = append(uids, o.UID)
		}
	}
	slices.Sort(uids)
	return uids
}

// recreator returns the controller of a deleted object, if it is not being deleted itself.
func (p *play) recreator(o *object) ownership.UID {
	for _, r := range o.Owners {
		owner := p.inventory.Object(r.UID)
		if r.Controller != ownership.True || owner == nil || owner.Phase != ownership.Active {
			continue
		}
		if played := p.objects[r.UID]; played == nil || !played.deleting && !played.removed {
			return r.UID
		}
	}
	return ""
}

// graceOf returns the time that the node of a pod may take to end it; zero if the node does not.
func (p *play) graceOf(o *object) time.Duration {
	if o.deleting && o.garbage == "" && o.Resource.GroupResource() == corev1.Resource("pods") {
		return max(0, o.deadline.Sub(p.options.Now))
	}
	return 0
}

// sleepOf returns how long a pod sleeps before its containers get the signal to end. It is zero for a pod that was
// already being deleted, which may have slept.
func (p *play) sleepOf(o *object) time.Duration {
	pod := p.inventory.Pods[o.UID]
	if pod == nil || o.Phase != ownership.Active {
		return 0
	}
	return pod.Sleep
}

// isDeleted reports whether the object is deleted, now or later.
func (o *Outcome) isDeleted() bool { return o.Fate == Deleted || o.Fate == Waiting }
