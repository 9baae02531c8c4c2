package preview

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// foresee asks for the facts that the simulation certainly needs, or very likely: a simulation that lacks a fact has to
// begin again. The simulation itself asks for all others. Each object in a namespace that is deleted gets a DELETE, which
// admission judges; a node ends each of its pods.
func (p *Predictor) foresee() {
	policies, webhooks := p.facts.AllPolicies(), p.facts.AllWebhooks()
	isJudged := len(policies.Value)+len(webhooks.Value) > 0 && p.question.Judge != nil
	if isJudged {
		p.facts.AllDeleters()
	}
	for _, r := range p.question.Requests {
		namespace := p.inventory.Object(r.UID)
		if namespace == nil || namespace.Resource.GroupResource() != corev1.Resource("namespaces") {
			continue
		}
		for _, o := range p.cluster.contents[namespace.Name] {
			p.foreseeNode(o)
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

// foreseeNode asks for the node of a pod, unless the inventory shows that it does not exist.
func (p *Predictor) foreseeNode(o *inventory.Object) {
	pod := p.inventory.Pods[o.UID]
	if pod == nil || pod.Node == "" || p.cluster.isNodeGone(pod.Node) {
		return
	}
	p.facts.Node(pod.Node)
}
