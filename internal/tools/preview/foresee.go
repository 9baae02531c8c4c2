package preview

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// foresee asks for the facts that the simulation certainly needs, or very likely: a simulation that lacks a fact has to
// begin again. The simulation itself asks for all others. Each object in a namespace that is deleted gets a DELETE, for
// which the server may convert it, and which its protection and admission may refuse; a node ends each of its pods.
func (p *Predictor) foresee() {
	if len(p.question.Requests) == 0 {
		return // what has begun may need no DELETE
	}
	policies, webhooks := p.facts.AllPolicies(), p.facts.AllWebhooks()
	isJudged := len(policies.Value)+len(webhooks.Value) > 0 && p.question.Judge != nil
	if isJudged {
		p.facts.AllDeleters()
	}
	for _, r := range p.question.Requests {
		namespace := p.inventory.Object(r.UID)
		if namespace == nil || namespace.Resource.GroupResource() != corev1.Resource("namespaces") ||
			builtin.Kept(namespace.Resource.GroupResource(), namespace.Name) != "" {
			continue
		}
		for _, o := range p.cluster.contents[namespace.Name] {
			p.foreseeOf(o)
			if isJudged && o.Phase == ownership.Active && p.isJudged(o) {
				p.facts.Body(namespace)
				p.facts.Body(o)
			}
		}
	}
}

// isJudged reports whether the rules of a policy or of a webhook match the DELETE of an object.
func (p *Predictor) isJudged(o *inventory.Object) bool {
	matching := p.matching(Write{Object: o})
	return len(matching.Policies)+len(matching.Webhooks) > 0
}

// foreseeOf asks for the facts about an object in a namespace that is deleted, without admission.
func (p *Predictor) foreseeOf(o *inventory.Object) {
	if crd := p.definitionOf(o.Resource); crd != nil {
		p.facts.Definition(crd)
	}
	if o.Protected && o.Phase == ownership.Active {
		p.facts.Protection(o)
	}
	if !p.question.AssumeReleased && slices.Contains(o.Finalizers, batchv1.JobTrackingFinalizer) {
		p.isTracked(o)
	}
	if pod := p.inventory.Pods[o.UID]; pod != nil && pod.Node != "" && !p.cluster.isNodeGone(pod.Node) {
		p.facts.Node(pod.Node)
		p.facts.Replaces() // a node ends a pod by another DELETE
	}
}
