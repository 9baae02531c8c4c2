package preview

import (
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Judge decides about a DELETE as the admission of an API server would. It does no I/O, and is safe for concurrent use.
type Judge interface {
	Decide(d Deletion) Judgement
}

// Deletion is a DELETE in the terms of admission. Policies and Webhooks are those whose rules match.
type Deletion struct {
	Resource *inventory.Resource
	Object   *unstructured.Unstructured
	// Namespace is the namespace of the object, or the object itself if it is one; nil for other cluster-scoped objects.
	Namespace   *unstructured.Unstructured
	Propagation metav1.DeletionPropagation
	User        authenticationv1.UserInfo
	Policies    []inventory.Policy
	Webhooks    []inventory.Webhook
}

// Judgement predicts the answer of admission to a DELETE.
type Judgement struct {
	// Refusal is not nil if the server refuses the DELETE.
	Refusal *refusal.Refusal
	// Deciders may refuse it, and cannot be foreseen: webhooks that answer, and policies with expressions about unknown
	// facts.
	Deciders []string
}

// admit returns an error if the server refuses the DELETE of an actor.
func (p *play) admit(o *object, options *metav1.DeleteOptions, by Actor) error {
	if p.options.Admission == nil || by == ByServer { // which deletes instances of a definition without admission
		return nil
	}
	policy := metav1.DeletionPropagation("")
	if options.PropagationPolicy != nil {
		policy = *options.PropagationPolicy
	}
	judgement := p.options.Admission(o.Object, policy, by)
	for _, d := range judgement.Deciders {
		if !slices.Contains(o.deciders, d) {
			o.deciders = append(o.deciders, d)
		}
	}
	if judgement.Refusal == nil {
		return nil
	}
	o.refusal, o.refusedTo = judgement.Refusal, by
	return errors.New(judgement.Refusal.String())
}

// admission predicts the answer of admission to the DELETE of an actor.
func (p *Predictor) admission(o *inventory.Object, policy metav1.DeletionPropagation, by Actor) Judgement {
	if why := builtin.Kept(o.Resource.GroupResource(), o.Name); why != "" {
		return Judgement{Refusal: &refusal.Refusal{By: refusal.ByServer, Message: why}}
	}
	key := judged{o.UID, policy, by}
	if known, ok := p.judgements[key]; ok {
		return known
	}
	misses := p.facts.Misses()
	judgement := p.judge(o, policy, by)
	if p.facts.Misses() == misses {
		p.judgements[key] = judgement
	}
	return judgement
}

// judged identifies a DELETE.
type judged struct {
	uid    ownership.UID
	policy metav1.DeletionPropagation
	by     Actor
}

func (p *Predictor) judge(o *inventory.Object, policy metav1.DeletionPropagation, by Actor) Judgement {
	d := Deletion{Resource: o.Resource, Propagation: policy}
	for _, one := range p.facts.AllPolicies().Value { // none if they could not be read
		if one.Concerns(admissionregistrationv1.Delete, o.Resource) {
			d.Policies = append(d.Policies, one)
		}
	}
	for _, one := range p.facts.AllWebhooks().Value {
		if one.Concerns(admissionregistrationv1.Delete, o.Resource) {
			d.Webhooks = append(d.Webhooks, one)
		}
	}
	if len(d.Policies)+len(d.Webhooks) == 0 {
		return Judgement{}
	}
	if p.question.Judge == nil {
		return d.withoutJudge("no expressions are evaluated here")
	}
	deleters, body := p.facts.AllDeleters(), p.facts.Body(o)
	if why := deleters.Unread + body.Unread; why != "" {
		return d.withoutJudge(why)
	}
	d.Object, d.User = body.Value, p.userOf(by, o, deleters.Value)
	if namespace := p.namespaceOf(o); namespace != nil {
		fact := p.facts.Body(namespace)
		if fact.Unread != "" {
			return d.withoutJudge(fact.Unread)
		}
		d.Namespace = fact.Value
	}
	return p.question.Judge.Decide(d)
}

// userOf returns the user that deletes an object as an actor.
func (p *Predictor) userOf(by Actor, o *inventory.Object, d inventory.Deleters) authenticationv1.UserInfo {
	switch by {
	case ByCollector:
		return d.Collector
	case ByNamespaceController:
		return d.NamespaceController
	case ByNode:
		node := ""
		if pod := p.inventory.Pods[o.UID]; pod != nil {
			node = pod.Node
		}
		return authenticationv1.UserInfo{Username: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}
	case ByUser, ByServer:
	}
	return d.Requester
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
func (d *Deletion) withoutJudge(why string) Judgement {
	var judgement Judgement
	for i := range d.Policies {
		judgement.Deciders = append(judgement.Deciders, fmt.Sprintf("ValidatingAdmissionPolicy %s: %s", d.Policies[i].Name, why))
	}
	for i := range d.Webhooks {
		w := &d.Webhooks[i]
		switch {
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
