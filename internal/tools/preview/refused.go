package preview

import (
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Judge decides about a request as the admission of an API server would. It does no I/O, and is safe for concurrent use.
type Judge interface {
	Decide(r Review) Judgement
}

// Review is a DELETE, or an UPDATE, in the terms of admission. Policies and Webhooks are those whose rules match.
type Review struct {
	Resource *inventory.Resource
	Object   *unstructured.Unstructured
	// After is the object after an UPDATE; nil for a DELETE.
	After *unstructured.Unstructured
	// Namespace is the namespace of the object, or the object itself if it is one; nil for other cluster-scoped objects.
	Namespace   *unstructured.Unstructured
	Propagation metav1.DeletionPropagation
	User        authenticationv1.UserInfo
	Policies    []inventory.Policy
	Webhooks    []inventory.Webhook
	// Unread says that policies or webhooks could not be read, and why; empty if all were.
	Unread string
}

// Judgement predicts the answer of admission to a request.
type Judgement struct {
	// Refusal is not nil if the server refuses the request.
	Refusal *refusal.Refusal
	// Deciders may refuse it, and cannot be foreseen: webhooks that answer, and policies with expressions about unknown
	// facts.
	Deciders []string
}

// Write is a DELETE of an actor, or an UPDATE that changes owner references or finalizers.
type Write struct {
	Object *inventory.Object
	By     Actor
	// Propagation is the policy of a DELETE.
	Propagation metav1.DeletionPropagation
	// Update has the changes of an UPDATE; nil for a DELETE.
	Update *Update
}

// Update are the metadata before and after an UPDATE. Deleted is the deletionTimestamp; zero for an object that is not
// being deleted.
type Update struct {
	Before, After ownership.Object
	Deleted       time.Time
}

// admit returns an error if the server refuses the DELETE of an actor.
func (p *play) admit(o *object, options *metav1.DeleteOptions, by Actor) error {
	w := Write{Object: o.Object, By: by}
	if options.PropagationPolicy != nil {
		w.Propagation = *options.PropagationPolicy
	}
	return p.judge(o, w)
}

// update makes an UPDATE of an actor, unless the server refuses it, which may also refuse one that changes nothing. It
// reports whether it has made it.
func (p *play) update(o *object, by Actor, change func(*ownership.Object)) bool {
	after := o.now
	change(&after)
	w := Write{Object: o.Object, By: by, Update: &Update{Before: o.now, After: after}}
	if o.deleting {
		w.Update.Deleted = o.deadline
	}
	if p.convert(o, by, Change) != nil {
		o.refusal.IsUpdate = true
		return false
	}
	if p.judge(o, w) != nil {
		return false
	}
	if !slices.Equal(after.Owners, o.now.Owners) || !slices.Equal(after.Finalizers, o.now.Finalizers) {
		o.now = after
		p.write(o)
	}
	return true
}

// judge returns an error if the server refuses a write.
func (p *play) judge(o *object, w Write) error {
	if p.options.Admission == nil || w.By == ByServer || w.By == byUnknown { // the server needs no admission
		return nil
	}
	judgement := p.options.Admission(w)
	for _, d := range judgement.Deciders {
		o.addDecider(d)
	}
	if judgement.Refusal == nil {
		return nil
	}
	o.refusal = &Refusal{Refusal: *judgement.Refusal, To: w.By, IsUpdate: w.Update != nil}
	return errors.New(judgement.Refusal.String())
}

func (o *object) addDecider(d string) {
	if !slices.Contains(o.deciders, d) {
		o.deciders = append(o.deciders, d)
	}
}

// admission predicts the answer of admission to a write. Policies and webhooks that could not be read decide nothing
// here: the report mentions them once.
func (p *Predictor) admission(w Write) Judgement {
	if why := builtin.Kept(w.Object.Resource.GroupResource(), w.Object.Name); why != "" && w.Update == nil {
		return Judgement{Refusal: &refusal.Refusal{By: refusal.ByServer, Message: why}}
	}
	matching := p.matching(w)
	p.unreadAdmission = matching.Unread
	return p.judged(w, matching)
}

// judged predicts the answer of the policies and webhooks that match a write, once for equal writes.
func (p *Predictor) judged(w Write, matching Review) Judgement {
	if len(matching.Policies)+len(matching.Webhooks) == 0 {
		return Judgement{}
	}
	key := judged{w.Object.UID, w.Propagation, w.By, w.Update.String()}
	if known, ok := p.judgements[key]; ok {
		return known
	}
	misses := p.facts.Misses()
	judgement := p.judge(w, matching)
	if p.facts.Misses() == misses {
		p.judgements[key] = judgement
	}
	return judgement
}

// judged identifies a write.
type judged struct {
	uid    ownership.UID
	policy metav1.DeletionPropagation
	by     Actor
	update string
}

// String identifies the changes of an UPDATE; it is empty for a DELETE.
func (u *Update) String() string {
	if u == nil {
		return ""
	}
	return fmt.Sprintf("%q %v to %q %v, %t", u.Before.Finalizers, u.Before.Owners, u.After.Finalizers, u.After.Owners, u.Deleted.IsZero())
}

// matching returns a review with the policies and webhooks whose rules match a write.
func (p *Predictor) matching(w Write) Review {
	key := matchKey{w.Object.Resource, admissionregistrationv1.Delete}
	if w.Update != nil {
		key.operation = admissionregistrationv1.Update
	}
	if known, ok := p.matches[key]; ok {
		return known
	}
	misses := p.facts.Misses()
	r := Matching(p.facts, key.resource, key.operation)
	if p.facts.Misses() == misses {
		p.matches[key] = r
	}
	return r
}

// Matching returns a review with the policies and webhooks whose rules match.
func Matching(facts *inventory.Facts, resource *inventory.Resource, operation admissionregistrationv1.OperationType) Review {
	policies, webhooks := facts.AllPolicies(), facts.AllWebhooks()
	r := Review{Resource: resource, Unread: unreadOf(policies.Unread, webhooks.Unread)}
	for _, one := range policies.Value {
		if one.Concerns(operation, resource) {
			r.Policies = append(r.Policies, one)
		}
	}
	for _, one := range webhooks.Value {
		if one.Concerns(operation, resource) {
			r.Webhooks = append(r.Webhooks, one)
		}
	}
	return r
}

// unreadOf says which of policies and webhooks could not be read, with the reasons; empty if both were.
func unreadOf(policies, webhooks string) string {
	switch {
	case policies != "" && webhooks != "" && policies != webhooks:
		return "policies and webhooks could not be read: " + policies + ", and " + webhooks
	case policies != "" && webhooks != "":
		return "policies and webhooks could not be read: " + policies
	case policies != "":
		return "policies could not be read: " + policies
	case webhooks != "":
		return "webhooks could not be read: " + webhooks
	}
	return ""
}

// matchKey identifies the writes that the same rules match.
type matchKey struct {
	resource  *inventory.Resource
	operation admissionregistrationv1.OperationType
}

// judge predicts the answer to a write. The review names the policies and webhooks that match it.
func (p *Predictor) judge(w Write, r Review) Judgement {
	r.Propagation = w.Propagation
	if p.question.Judge != nil {
		deleters := p.facts.AllDeleters()
		if deleters.Unread != "" {
			return r.withoutJudge(deleters.Unread)
		}
		r.User = UserOf(w.By, w.Object, p.inventory.Pods[w.Object.UID], deleters.Value)
	}
	return r.Foresee(p.question.Judge, p.facts, w.Object, p.namespaceOf(w.Object), w.Update)
}

// Foresee predicts the answer to a DELETE, or to an UPDATE, with the whole object and its namespace from the facts.
// Without a judge, each policy or webhook with expressions or selectors counts as one that decides.
func (r Review) Foresee(judge Judge, facts *inventory.Facts, o, namespace *inventory.Object, update *Update) Judgement {
	if judge == nil {
		return r.withoutJudge("no expressions are evaluated here")
	}
	body := facts.Body(o)
	if body.Unread != "" {
		return r.withoutJudge(body.Unread)
	}
	r.Object = body.Value
	if update != nil {
		r.Object, r.After = update.applied(body.Value)
	}
	if namespace != nil {
		fact := facts.Body(namespace)
		if fact.Unread != "" {
			return r.withoutJudge(fact.Unread)
		}
		r.Namespace = fact.Value
	}
	return judge.Decide(r)
}

// applied returns an object before and after the UPDATE.
func (u *Update) applied(body *unstructured.Unstructured) (before, after *unstructured.Unstructured) {
	before, after = body.DeepCopy(), body.DeepCopy()
	for object, as := range map[*unstructured.Unstructured]ownership.Object{before: u.Before, after: u.After} {
		object.SetFinalizers(noneAsNil(as.Finalizers))
		object.SetOwnerReferences(ownersOf(as, body.GetOwnerReferences()))
		if !u.Deleted.IsZero() && body.GetDeletionTimestamp() == nil {
			object.SetDeletionTimestamp(&metav1.Time{Time: u.Deleted})
		}
	}
	return before, after
}

// noneAsNil returns nil for an empty list: the server stores no empty ones, and expressions ask whether there is a list.
func noneAsNil[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

// ownersOf returns the owner references of an object in the copy, as they are in the whole object.
func ownersOf(o ownership.Object, all []metav1.OwnerReference) []metav1.OwnerReference {
	var kept []metav1.OwnerReference
	for _, r := range o.Owners {
		at := slices.IndexFunc(all, func(one metav1.OwnerReference) bool { return ownership.UID(one.UID) == r.UID && one.Name == r.Name })
		if at < 0 {
			continue // its UID is long, and is known by a digest only
		}
		one := all[at]
		if one.BlockOwnerDeletion != nil && *one.BlockOwnerDeletion != r.Blocking() {
			one.BlockOwnerDeletion = new(r.Blocking())
		}
		kept = append(kept, one)
	}
	return kept
}

// namespaceOf returns the namespace of an object, or the object itself if it is one.
func (p *Predictor) namespaceOf(o *inventory.Object) *inventory.Object {
	namespaces := p.inventory.Resource(ownership.Kind{Kind: "Namespace"})
	switch {
	case namespaces == nil:
		return nil
	case o.Resource == namespaces:
		return o
	case o.Namespace == "":
		return nil
	}
	return p.inventory.Named(namespaces, "", o.Namespace)
}

// withoutJudge is the judgement when the object, or its expressions, are unknown: a dead webhook without selectors
// refuses, everything else decides.
func (r *Review) withoutJudge(why string) Judgement {
	var judgement Judgement
	for i := range r.Policies {
		judgement.Deciders = append(judgement.Deciders, fmt.Sprintf("ValidatingAdmissionPolicy %s: %s", r.Policies[i].Name, why))
	}
	for i := range r.Webhooks {
		w := &r.Webhooks[i]
		switch {
		case w.IsIgnored():
		case !w.IsDead():
			judgement.Deciders = append(judgement.Deciders, w.String())
		case w.IsSelective():
			judgement.Deciders = append(judgement.Deciders, w.String()+": "+why)
		case judgement.Refusal == nil:
			judgement.Refusal = w.Dead()
		}
	}
	return judgement
}
