package placement

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
)

// spread is a topology spread constraint with the numbers of pods.
type spread struct {
	topologyKey      string
	selector         labels.Selector
	maxSkew          int
	minDomains       int
	affinity, taints bool           // whether only nodes count that the pod's affinity, or its tolerations, admit
	itself           int            // 1 if the pod itself counts
	counts           map[string]int // pods by value of the label
	least            int            // the smallest number of pods of a domain
}

// newSpreads reads the topology spread constraints of a pod: the required and the soft ones.
func newSpreads(pod *corev1.Pod) (required, soft []spread, err error) {
	for i := range pod.Spec.TopologySpreadConstraints {
		constraint := &pod.Spec.TopologySpreadConstraints[i]
		s, err := newSpread(constraint, pod)
		if err != nil {
			return nil, nil, err
		}
		if constraint.WhenUnsatisfiable == corev1.DoNotSchedule {
			required = append(required, s)
		} else {
			soft = append(soft, s)
		}
	}
	return required, soft, nil
}

func newSpread(c *corev1.TopologySpreadConstraint, pod *corev1.Pod) (spread, error) {
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return spread{}, fmt.Errorf("label selector: %w", err)
	}
	s := spread{
		topologyKey: c.TopologyKey, selector: withKeys(selector, c.MatchLabelKeys, pod.Labels),
		maxSkew: int(c.MaxSkew), minDomains: int(ptr.Deref(c.MinDomains, 1)),
		affinity: ptr.Deref(c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) == corev1.NodeInclusionPolicyHonor,
		taints:   ptr.Deref(c.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore) == corev1.NodeInclusionPolicyHonor,
		counts:   map[string]int{},
	}
	if s.selector.Matches(labels.Set(pod.Labels)) {
		s.itself = 1
	}
	return s, nil
}

// withKeys adds the pod's values of labels to a selector. The server has done so when it created
// the pod, unless the pod is from a server before Kubernetes 1.34.
func withKeys(selector labels.Selector, keys []string, of map[string]string) labels.Selector {
	if _, selectable := selector.Requirements(); !selectable {
		return selector
	}
	wanted := labels.Set{}
	for _, key := range keys {
		if value, ok := of[key]; ok {
			wanted[key] = value
		}
	}
	if len(wanted) == 0 {
		return selector
	}
	its, _ := wanted.AsSelectorPreValidated().Requirements()
	return selector.DeepCopySelector().Add(its...)
}

// countSpread counts the pods that a pod's constraints select, by domain.
func (c *Cluster) countSpread(constraints []spread, pod *corev1.Pod, affinity nodeaffinity.RequiredNodeAffinity) {
	if len(constraints) == 0 {
		return
	}
	on := make([]map[*Node]int, len(constraints))
	for i := range constraints {
		on[i] = c.podsOfSpread(&constraints[i], pod.Namespace)
	}
	for _, n := range c.order {
		if !hasKeys(n, constraints) {
			continue
		}
		for i := range constraints {
			if s := &constraints[i]; s.includes(n, pod, affinity) {
				s.counts[n.object.Labels[s.topologyKey]] += on[i][n]
			}
		}
	}
	for i := range constraints {
		s := &constraints[i]
		if len(s.counts) < s.minDomains {
			continue // the minimum is 0, as there are too few domains
		}
		s.least = math.MaxInt32
		for _, count := range s.counts {
			s.least = min(s.least, count)
		}
	}
}

// podsOfSpread returns the number of pods that a constraint selects on each node, except pods that
// are being deleted. A constraint whose selector matches everything selects none.
func (c *Cluster) podsOfSpread(s *spread, namespace string) map[*Node]int {
	if s.selector.Empty() {
		return nil
	}
	on := map[*Node]int{}
	for g := range c.groupsIn(&term{selector: s.selector, namespaces: []string{namespace}, namespaceSelector: labels.Nothing()}) {
		for n, count := range g.nodes {
			on[n] += count.all - count.terminating
		}
	}
	return on
}

// hasKeys reports whether a node is in a domain of every constraint.
func hasKeys(n *Node, constraints []spread) bool {
	for i := range constraints {
		if _, ok := n.object.Labels[constraints[i].topologyKey]; !ok {
			return false
		}
	}
	return true
}

// includes reports whether the pods on a node count, by the policies of the constraint.
func (s *spread) includes(n *Node, pod *corev1.Pod, affinity nodeaffinity.RequiredNodeAffinity) bool {
	if s.affinity {
		if matches, _ := affinity.Match(n.object); !matches {
			return false
		}
	}
	if !s.taints {
		return true
	}
	_, tainted := untolerated(pod, n, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
	return !tainted
}

// obstacle returns the reason why the pod on a node would violate the constraint, or "".
func (s *spread) obstacle(n *Node) string {
	const mismatch = "node(s) didn't match pod topology spread constraints"
	value, ok := n.object.Labels[s.topologyKey]
	switch {
	case !ok:
		return mismatch + " (missing required label)"
	case s.counts[value]+s.itself-s.least > s.maxSkew:
		return mismatch
	}
	return ""
}
