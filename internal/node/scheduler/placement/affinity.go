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
	weight            int64 // of a preferred term, negative for anti-affinity
}

// newTerm reads a term of a pod in a namespace.
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

// newWeighted reads preferred terms and multiplies their weights by sign.
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

// attraction returns the terms by which a pod on a node attracts or repels others: the terms of its
// preferred affinity and anti-affinity and, with the least weight, of its required affinity.
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

// text is the same for terms that are written in the same way.
func (t *term) text() string {
	return strings.Join([]string{strconv.FormatInt(t.weight, 10), t.topologyKey, strings.Join(t.namespaces, ","), textOf(t.namespaceSelector), textOf(t.selector)}, "|")
}

// textOf distinguishes a selector that matches nothing from one that matches everything.
func textOf(s labels.Selector) string {
	if _, selectable := s.Requirements(); !selectable {
		return "-"
	}
	return s.String()
}

// isAbout reports whether a term applies to the pods of a namespace with the labels its.
func (t *term) isAbout(namespace string, its labels.Set) bool {
	return slices.Contains(t.namespaces, namespace) || t.namespaceSelector.Matches(its)
}

// domain is the set of nodes that have a label with this value.
type domain struct{ key, value string }

// domains maps topology domains to numbers of pods or to sums of weights.
type domains map[domain]int64

func (d domains) add(n *Node, key string, amount int64) {
	if value, ok := n.object.Labels[key]; ok {
		d[domain{key, value}] += amount
	}
}

// at returns the number for the domain of a node.
func (d domains) at(n *Node, key string) int64 {
	value, ok := n.object.Labels[key]
	if !ok {
		return 0
	}
	return d[domain{key, value}]
}

// peers are the constraints and preferences between a pod that needs a node and the pods on nodes.
type peers struct {
	affinity, antiAffinity, preferred []term

	near        domains  // pods that match all terms of the affinity
	isFirst     bool     // there are none, and the pod itself matches
	apart       domains  // pods that match a term of the anti-affinity
	avoidedBy   domains  // pods whose anti-affinity matches this one
	avoidedKeys []string // the topology keys of avoidedBy
	weights     domains  // sums of the weights of preferred terms, of the pod and of others that match it
	weighedKeys []string // the topology keys of weights

	required, soft []spread
}

// peersOf returns the peers of a pod. It returns nil if there are no constraints and no preferences.
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

// read reads a pod's constraints on others.
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

// readAffinity reads a pod's affinity terms and its preferred terms.
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

// countAvoiding counts the pods whose required anti-affinity matches a pod.
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

// countAttracting adds the weights of the preferred terms of pods on nodes that match a pod.
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

// weigh records that the domains of a topology key have weights.
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

// obstacle returns the reason why the pods on a node or near it exclude a pod, or "".
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

// isNear reports whether the node's domains have the pods that the affinity requires. The first of
// several pods with an affinity to each other may go to any node with the labels.
func (p *peers) isNear(n *Node) bool {
	isFar := func(t term) bool {
		_, has := n.object.Labels[t.topologyKey]
		return !has || !p.isFirst && p.near.at(n, t.topologyKey) == 0
	}
	return !slices.ContainsFunc(p.affinity, isFar)
}

// prefer reports whether other pods make a difference between the nodes that fit.
func (p *peers) prefer() bool { return p != nil && len(p.weighedKeys)+len(p.soft) > 0 }

// score returns the sum of the preferences between the pod and the pods near a node, and the number of pods from which
// the pod should be spread.
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

// selectors returns the selectors of the required constraints.
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
