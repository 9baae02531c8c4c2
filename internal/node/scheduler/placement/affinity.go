package placement

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// term is a term of a pod's affinity or anti-affinity to other pods.
type term struct {
	topologyKey       string
	selector          labels.Selector
	namespaces        []string
	namespaceSelector labels.Selector
	weight            int64 // of a preferred one, negative if the pods are to be avoided
}

// newTerm reads a term of a pod of that namespace.
func newTerm(t *corev1.PodAffinityTerm, namespace string) (term, error) {
	selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		return term{}, fmt.Errorf("label selector: %w", err)
	}
	of, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
	if err != nil {
		return term{}, fmt.Errorf("namespace selector: %w", err)
	}
	namespaces := t.Namespaces
	if len(namespaces) == 0 && t.NamespaceSelector == nil {
		namespaces = []string{namespace}
	}
	return term{topologyKey: t.TopologyKey, selector: selector, namespaces: namespaces, namespaceSelector: of}, nil
}

func newTerms(list []corev1.PodAffinityTerm, namespace string) ([]term, error) {
	var all []term
	for i := range list {
		t, err := newTerm(&list[i], namespace)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// newWeighted reads preferred terms, whose weights count with that sign.
func newWeighted(list []corev1.WeightedPodAffinityTerm, namespace string, sign int64) ([]term, error) {
	var all []term
	for i := range list {
		t, err := newTerm(&list[i].PodAffinityTerm, namespace)
		if err != nil {
			return nil, err
		}
		t.weight = sign * int64(list[i].Weight)
		all = append(all, t)
	}
	return all, nil
}

func requiredAntiAffinity(pod *corev1.Pod) ([]term, error) {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return newTerms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, pod.Namespace)
	}
	return nil, nil
}

// attraction returns the terms by which a pod on a node attracts others, or repels them: those of
// its preferred affinity and anti-affinity, and, with the least weight, of its required affinity.
func attraction(pod *corev1.Pod) ([]term, error) {
	own := peers{}
	if err := own.readAffinity(pod); err != nil {
		return nil, err
	}
	all := own.preferred
	for _, t := range own.affinity {
		t.weight = 1
		all = append(all, t)
	}
	return all, nil
}

// text is the same for terms that mean the same, unless they are written differently.
func (t *term) text() string {
	return strings.Join([]string{strconv.FormatInt(t.weight, 10), t.topologyKey, strings.Join(t.namespaces, ","), textOf(t.namespaceSelector), textOf(t.selector)}, "|")
}

// textOf tells a selector that matches nothing from one that matches everything.
func textOf(s labels.Selector) string {
	if _, selectable := s.Requirements(); !selectable {
		return "-"
	}
	return s.String()
}

// isAbout reports whether a term is about the pods of a namespace.
func (t *term) isAbout(namespace string, its labels.Set) bool {
	return slices.Contains(t.namespaces, namespace) || t.namespaceSelector.Matches(its)
}

// domain is the nodes that have a label with that value.
type domain struct{ key, value string }

// domains are numbers of pods, or sums of weights, by topology domain.
type domains map[domain]int64

func (d domains) add(n *Node, key string, amount int64) {
	if value, ok := n.object.Labels[key]; ok {
		d[domain{key, value}] += amount
	}
}

// at returns the number for the domain that a node is in.
func (d domains) at(n *Node, key string) int64 {
	value, ok := n.object.Labels[key]
	if !ok {
		return 0
	}
	return d[domain{key, value}]
}

// peers is what the pods on the nodes mean for a pod that is to be placed.
type peers struct {
	affinity, antiAffinity, preferred []term

	near        domains  // pods that match all terms of the affinity
	isFirst     bool     // there are none, and the pod itself would be one
	apart       domains  // pods that match a term of the anti-affinity
	avoidedBy   domains  // pods whose anti-affinity is about this one
	avoidedKeys []string // the topology keys of avoidedBy
	weights     domains  // sums of the weights of preferred terms, its own and those of others about it
	weighedKeys []string // the topology keys of weights

	required, soft []spread
}

// peersOf returns what the pods on the nodes mean for a pod; nil if nothing.
func (c *Cluster) peersOf(pod *corev1.Pod, nodes nodeaffinity.RequiredNodeAffinity) (*peers, error) {
	affinity := pod.Spec.Affinity
	constrained := len(pod.Spec.TopologySpreadConstraints) > 0 || affinity != nil && (affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil)
	if !constrained && len(c.avoided)+len(c.attracting) == 0 {
		return nil, nil
	}
	p := &peers{}
	p.countAvoiding(c, pod)
	p.countAttracting(c, pod)
	if !constrained {
		if len(p.avoidedBy)+len(p.weights) == 0 {
			return nil, nil
		}
		return p, nil
	}
	if err := p.read(pod); err != nil {
		return nil, err
	}
	p.countNear(c, pod)
	p.apart = domains{}
	for i := range p.antiAffinity {
		c.countMatching(&p.antiAffinity[i], p.apart, 1)
	}
	for i := range p.preferred {
		c.countMatching(&p.preferred[i], p.weights, p.preferred[i].weight)
		p.weigh(p.preferred[i].topologyKey)
	}
	c.countSpread(p.required, pod, nodes)
	c.countSpread(p.soft, pod, nodes)
	return p, nil
}

// read reads the constraints that a pod has on others.
func (p *peers) read(pod *corev1.Pod) error {
	err := p.readAffinity(pod)
	if err == nil {
		p.antiAffinity, err = requiredAntiAffinity(pod)
	}
	if err == nil {
		p.required, p.soft, err = newSpreads(pod)
	}
	if err != nil {
		return fmt.Errorf("constraints on other pods: %w", err)
	}
	return nil
}

// readAffinity reads a pod's affinity, and what it prefers.
func (p *peers) readAffinity(pod *corev1.Pod) error {
	a := pod.Spec.Affinity
	if a == nil {
		return nil
	}
	var errs [3]error
	if near := a.PodAffinity; near != nil {
		p.affinity, errs[0] = newTerms(near.RequiredDuringSchedulingIgnoredDuringExecution, pod.Namespace)
		p.preferred, errs[1] = newWeighted(near.PreferredDuringSchedulingIgnoredDuringExecution, pod.Namespace, 1)
	}
	if apart := a.PodAntiAffinity; apart != nil {
		var rather []term
		rather, errs[2] = newWeighted(apart.PreferredDuringSchedulingIgnoredDuringExecution, pod.Namespace, -1)
		p.preferred = append(p.preferred, rather...)
	}
	return errors.Join(errs[:]...)
}

// countAvoiding counts the pods whose required anti-affinity is about a pod.
func (p *peers) countAvoiding(c *Cluster, pod *corev1.Pod) {
	its := c.namespaces[pod.Namespace]
	p.avoidedBy = domains{}
	for _, a := range c.avoided {
		if !a.isAbout(pod.Namespace, its) || !a.selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		for n, count := range a.nodes {
			p.avoidedBy.add(n, a.topologyKey, int64(count))
		}
		if !slices.Contains(p.avoidedKeys, a.topologyKey) {
			p.avoidedKeys = append(p.avoidedKeys, a.topologyKey)
		}
	}
}

// countAttracting adds the weights of what the pods on nodes prefer about a pod.
func (p *peers) countAttracting(c *Cluster, pod *corev1.Pod) {
	its := c.namespaces[pod.Namespace]
	p.weights = domains{}
	for _, b := range c.attracting {
		if !b.isAbout(pod.Namespace, its) || !b.selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		for n, count := range b.nodes {
			p.weights.add(n, b.topologyKey, b.weight*int64(count))
		}
		p.weigh(b.topologyKey)
	}
}

// weigh notes that there are weights for the domains of a topology key.
func (p *peers) weigh(key string) {
	if !slices.Contains(p.weighedKeys, key) {
		p.weighedKeys = append(p.weighedKeys, key)
	}
}

// countMatching adds amount to the domains of a term for each pod that it matches.
func (c *Cluster) countMatching(t *term, to domains, amount int64) {
	for g := range c.groupsIn(t) {
		for n, count := range g.nodes {
			to.add(n, t.topologyKey, amount*int64(count.all))
		}
	}
}

// countNear counts the pods that match every term of the affinity.
func (p *peers) countNear(c *Cluster, pod *corev1.Pod) {
	p.near = domains{}
	if len(p.affinity) == 0 {
		return
	}
	matchesAll := func(namespace string, set labels.Set) bool {
		return !slices.ContainsFunc(p.affinity, func(t term) bool {
			return !t.isAbout(namespace, c.namespaces[namespace]) || !t.selector.Matches(set)
		})
	}
	for g := range c.groupsIn(&p.affinity[0]) {
		if !matchesAll(g.namespace, g.labels) {
			continue
		}
		for n, count := range g.nodes {
			for i := range p.affinity {
				p.near.add(n, p.affinity[i].topologyKey, int64(count.all))
			}
		}
	}
	p.isFirst = len(p.near) == 0 && matchesAll(pod.Namespace, pod.Labels)
}

// obstacle returns why a pod cannot be with the pods that are on a node or near it; "" if it can.
func (p *peers) obstacle(n *Node) string {
	if p == nil {
		return ""
	}
	for i := range p.required {
		if reason := p.required[i].obstacle(n); reason != "" {
			return reason
		}
	}
	isTaken := func(t term) bool { return p.apart.at(n, t.topologyKey) > 0 }
	isAvoided := func(key string) bool { return p.avoidedBy.at(n, key) > 0 }
	switch {
	case !p.isNear(n):
		return "node(s) didn't match pod affinity rules"
	case slices.ContainsFunc(p.antiAffinity, isTaken):
		return "node(s) didn't match pod anti-affinity rules"
	case slices.ContainsFunc(p.avoidedKeys, isAvoided):
		return "node(s) didn't satisfy existing pods anti-affinity rules"
	}
	return ""
}

// isNear reports whether the pods that the affinity is about are in the node's domain. The first
// one of pods that have an affinity to each other may go wherever the node has the labels.
func (p *peers) isNear(n *Node) bool {
	isFar := func(t term) bool {
		_, has := n.object.Labels[t.topologyKey]
		return !has || !p.isFirst && p.near.at(n, t.topologyKey) == 0
	}
	return !slices.ContainsFunc(p.affinity, isFar)
}

// prefer reports whether pods make a difference between nodes on which the pod may be.
func (p *peers) prefer() bool { return p != nil && len(p.weighedKeys)+len(p.soft) > 0 }

// score returns how much the pod prefers a node for the pods near it, and these prefer it, and how many there are from
// which it should be spread.
func (p *peers) score(n *Node) (near int64, crowd float64) {
	if !p.prefer() {
		return 0, 0
	}
	for _, key := range p.weighedKeys {
		near += p.weights.at(n, key)
	}
	for i := range p.soft {
		s := &p.soft[i]
		value, ok := n.object.Labels[s.topologyKey]
		if !ok {
			return near, math.Inf(1)
		}
		// The fewer domains there are, the more pods each has.
		crowd += float64(s.counts[value]) * math.Log(float64(len(s.counts)+2))
	}
	return near, crowd
}

// selectors returns what the required constraints select.
func (p *peers) selectors() []labels.Selector {
	if p == nil {
		return nil
	}
	var all []labels.Selector
	for _, t := range slices.Concat(p.affinity, p.antiAffinity) {
		all = append(all, t.selector)
	}
	for i := range p.required {
		all = append(all, p.required[i].selector)
	}
	return all
}
