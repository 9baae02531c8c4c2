package placement

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// model is a cluster as lists of objects, and the placement's Cluster, which gets the same changes.
type model struct {
	t          *rapid.T
	cluster    *Cluster
	nodes      map[string]*corev1.Node
	pods       map[types.UID]*corev1.Pod
	namespaces map[string]labels.Set
	created    int
}

// TestAsTheOracle checks, after random histories, that each node is ruled out for the reason that a naive reading of
// the API's documentation gives. A failure prints the seed.
func TestAsTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, cluster: NewCluster(), nodes: map[string]*corev1.Node{}, pods: map[types.UID]*corev1.Pod{}, namespaces: map[string]labels.Set{}}
		for range rapid.IntRange(1, 5).Draw(t, "nodes") {
			m.setNode()
		}
		t.Repeat(map[string]func(*rapid.T){
			"node":      func(*rapid.T) { m.setNode() },
			"namespace": func(*rapid.T) { m.setNamespace() },
			"pod":       func(*rapid.T) { m.addPod() },
			"change":    func(*rapid.T) { m.changePod() },
			"place":     func(*rapid.T) { m.compare(m.newPod()) },
		})
	})
}

func (m *model) oneOf(label string, values ...string) string {
	return rapid.SampledFrom(values).Draw(m.t, label)
}

func (m *model) yes(label string) bool { return rapid.Bool().Draw(m.t, label) }

// setNode adds, changes or removes a node.
func (m *model) setNode() {
	name := m.oneOf("node", "n1", "n2", "n3", "n4")
	known := m.cluster.Node(name)
	if known != nil && len(m.nodes) > 1 && m.oneOf("node is", "changed", "changed", "gone") == "gone" {
		m.cluster.RemoveNode(name)
		delete(m.nodes, name)
		for uid, pod := range m.pods {
			if pod.Spec.NodeName == name {
				delete(m.pods, uid)
			}
		}
		return
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"host": name}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1000")}
	if zone := m.oneOf("zone", "", "a", "b"); zone != "" {
		n.Labels["zone"] = zone
	}
	if m.yes("tainted") {
		n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	}
	m.nodes[name] = n
	if known != nil {
		known.Update(n)
		return
	}
	m.cluster.AddNode(NewNode(n))
}

func (m *model) setNamespace() {
	name, team := m.oneOf("namespace", "x", "y"), m.oneOf("team", "a", "b", "gone")
	if team == "gone" {
		m.cluster.RemoveNamespace(name)
		delete(m.namespaces, name)
		return
	}
	m.namespaces[name] = labels.Set{"app": team}
	m.cluster.SetNamespace(name, m.namespaces[name])
}

func (m *model) labels() map[string]string {
	return map[string]string{"app": m.oneOf("app", "a", "b"), "version": m.oneOf("version", "1", "2")}
}

func (m *model) selector(label string) *metav1.LabelSelector {
	switch m.oneOf(label, "nil", "all", "a", "a", "not b") {
	case "all":
		return &metav1.LabelSelector{}
	case "a":
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	case "not b":
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"b"}}}}
	}
	return nil
}

func (m *model) terms(label string) []corev1.PodAffinityTerm {
	var all []corev1.PodAffinityTerm
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(m.t, label) {
		t := corev1.PodAffinityTerm{TopologyKey: m.oneOf("key", "zone", "host"), LabelSelector: m.selector("pods"), NamespaceSelector: m.selector("namespaces")}
		if m.yes("named namespaces") {
			t.Namespaces = []string{m.oneOf("of", "x", "y")}
		}
		all = append(all, t)
	}
	return all
}

func (m *model) weighted(label string) []corev1.WeightedPodAffinityTerm {
	var all []corev1.WeightedPodAffinityTerm
	for _, t := range m.terms(label) {
		all = append(all, corev1.WeightedPodAffinityTerm{Weight: int32(rapid.IntRange(1, 9).Draw(m.t, "weight")), PodAffinityTerm: t})
	}
	return all
}

func (m *model) newPod() *corev1.Pod {
	m.created++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(m.created)), Namespace: m.oneOf("in", "x", "y"), Labels: m.labels()}}
	p.Spec.Affinity = &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: m.terms("affinity"), PreferredDuringSchedulingIgnoredDuringExecution: m.weighted("preferred"),
		},
		PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: m.terms("anti-affinity"), PreferredDuringSchedulingIgnoredDuringExecution: m.weighted("rather not"),
		},
	}
	if m.yes("selective") {
		p.Spec.NodeSelector = map[string]string{"zone": "a"}
	}
	policies := []*corev1.NodeInclusionPolicy{nil, new(corev1.NodeInclusionPolicyHonor), new(corev1.NodeInclusionPolicyIgnore)}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(m.t, "constraints") {
		c := corev1.TopologySpreadConstraint{
			MaxSkew: int32(rapid.IntRange(1, 2).Draw(m.t, "skew")), TopologyKey: m.oneOf("key", "zone", "host"), WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: m.selector("pods"), NodeAffinityPolicy: rapid.SampledFrom(policies).Draw(m.t, "affinity policy"),
			NodeTaintsPolicy: rapid.SampledFrom(policies).Draw(m.t, "taints policy"),
		}
		if m.yes("domains") {
			c.MinDomains = new(int32(rapid.IntRange(1, 3).Draw(m.t, "at least")))
		}
		if m.yes("keys") {
			c.MatchLabelKeys = []string{"version", "none"}
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
	return p
}

func (m *model) addPod() {
	p := m.newPod()
	for name := range m.nodes {
		p.Spec.NodeName = max(p.Spec.NodeName, name) // any of them; the draws must not depend on the order of a map
	}
	if on := m.oneOf("on", "n1", "n2", "n3", "n4"); m.nodes[on] != nil {
		p.Spec.NodeName = on
	}
	m.pods[p.UID] = p
	m.cluster.Node(p.Spec.NodeName).Add(p)
}

// changePod marks, relabels, ends or removes a pod.
func (m *model) changePod() {
	uid := types.UID(fmt.Sprint(rapid.IntRange(1, max(1, m.created)).Draw(m.t, "pod")))
	old := m.pods[uid]
	if old == nil {
		return
	}
	p, node := old.DeepCopy(), m.cluster.Node(old.Spec.NodeName)
	switch m.oneOf("pod is", "leaving", "relabelled", "ended", "gone") {
	case "leaving":
		p.DeletionTimestamp = &metav1.Time{}
	case "relabelled":
		p.Labels = m.labels()
	case "ended":
		p.Status.Phase = corev1.PodSucceeded
		node.Add(p)
		delete(m.pods, uid)
		return
	case "gone":
		node.Remove(uid)
		delete(m.pods, uid)
		return
	}
	node.Add(p)
	m.pods[uid] = p
}

// compare compares the reasons that rule out each node, and the preferences for the pods there.
func (m *model) compare(pod *corev1.Pod) {
	r, err := m.cluster.newRequest(pod)
	if err != nil {
		m.t.Fatal(err)
	}
	for name, node := range m.nodes {
		got, want := r.peers.obstacle(m.cluster.Node(name)), m.expected(pod, node)
		if got != want {
			m.t.Fatalf("pod %+v on node %s: got %q, want %q", pod, name, got, want)
		}
		if got, _ := r.peers.score(m.cluster.Node(name)); got != m.preference(pod, node) {
			m.t.Fatalf("pod %+v on node %s: got weight %d, want %d", pod, name, got, m.preference(pod, node))
		}
	}
}

func (m *model) expected(pod *corev1.Pod, node *corev1.Node) string {
	for i := range pod.Spec.TopologySpreadConstraints {
		if reason := m.skew(pod, node, &pod.Spec.TopologySpreadConstraints[i]); reason != "" {
			return reason
		}
	}
	if !m.near(pod, node) {
		return "node(s) didn't match pod affinity rules"
	}
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		for _, other := range m.pods {
			if m.matches(term, pod, other) && m.together(node, other, term.TopologyKey) {
				return "node(s) didn't match pod anti-affinity rules"
			}
		}
	}
	for _, other := range m.pods {
		for _, term := range other.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			if m.matches(term, other, pod) && m.together(node, other, term.TopologyKey) {
				return "node(s) didn't satisfy existing pods anti-affinity rules"
			}
		}
	}
	return ""
}

// preference is the sum of the weights with which a pod and those near a node prefer each other.
func (m *model) preference(pod *corev1.Pod, node *corev1.Node) int64 {
	var sum int64
	weigh := func(of, about, placed *corev1.Pod, t corev1.PodAffinityTerm, weight int32) {
		if m.matches(t, of, about) && m.together(node, placed, t.TopologyKey) {
			sum += int64(weight)
		}
	}
	prefer := func(of, about, placed *corev1.Pod) {
		for _, t := range of.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			weigh(of, about, placed, t.PodAffinityTerm, t.Weight)
		}
		for _, t := range of.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			weigh(of, about, placed, t.PodAffinityTerm, -t.Weight)
		}
	}
	for _, other := range m.pods {
		prefer(pod, other, other)
		prefer(other, pod, other)
		for _, t := range other.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			weigh(other, pod, other, t, 1)
		}
	}
	return sum
}

// matches reports whether a term of one pod is about another.
func (m *model) matches(term corev1.PodAffinityTerm, of, other *corev1.Pod) bool {
	in := false
	if len(term.Namespaces) == 0 && term.NamespaceSelector == nil {
		in = other.Namespace == of.Namespace
	}
	for _, name := range term.Namespaces {
		in = in || name == other.Namespace
	}
	return (in || selects(term.NamespaceSelector, m.namespaces[other.Namespace])) && selects(term.LabelSelector, other.Labels)
}

func selects(s *metav1.LabelSelector, its map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(its))
}

// together reports whether a pod is in the domain of a node.
func (m *model) together(node *corev1.Node, pod *corev1.Pod, key string) bool {
	here, ok := node.Labels[key]
	there, also := m.nodes[pod.Spec.NodeName].Labels[key]
	return ok && also && here == there
}

func (m *model) near(pod *corev1.Pod, node *corev1.Node) bool {
	terms := pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	all := func(other *corev1.Pod) bool {
		for _, term := range terms {
			if !m.matches(term, pod, other) {
				return false
			}
		}
		return true
	}
	somewhere := false
	reached := make([]bool, len(terms))
	for _, other := range m.pods {
		for i, term := range terms {
			if _, has := m.nodes[other.Spec.NodeName].Labels[term.TopologyKey]; has && all(other) {
				somewhere = true
				reached[i] = reached[i] || m.together(node, other, term.TopologyKey)
			}
		}
	}
	for i, term := range terms {
		_, has := node.Labels[term.TopologyKey]
		if !has || !reached[i] && (somewhere || !all(pod)) {
			return false
		}
	}
	return true
}

func (m *model) skew(pod *corev1.Pod, node *corev1.Node, c *corev1.TopologySpreadConstraint) string {
	value, ok := node.Labels[c.TopologyKey]
	if !ok {
		return "node(s) didn't match pod topology spread constraints (missing required label)"
	}
	matches := func(other *corev1.Pod) bool {
		for _, key := range c.MatchLabelKeys {
			if its, has := pod.Labels[key]; has && other.Labels[key] != its {
				return false
			}
		}
		return selects(c.LabelSelector, other.Labels)
	}
	isEmpty := c.LabelSelector != nil && len(c.LabelSelector.MatchLabels)+len(c.LabelSelector.MatchExpressions)+len(c.MatchLabelKeys) == 0
	counts := map[string]int{}
	for name, n := range m.nodes {
		if !m.eligible(pod, n, c) {
			continue
		}
		domain := n.Labels[c.TopologyKey]
		counts[domain] += 0
		for _, other := range m.pods {
			if other.Spec.NodeName == name && other.Namespace == pod.Namespace && other.DeletionTimestamp == nil && matches(other) && !isEmpty {
				counts[domain]++
			}
		}
	}
	least := 0
	if len(counts) >= int(orOne(c.MinDomains)) {
		least = 1 << 30
		for _, count := range counts {
			least = min(least, count)
		}
	}
	after := counts[value]
	if matches(pod) {
		after++
	}
	if after-least > int(c.MaxSkew) {
		return "node(s) didn't match pod topology spread constraints"
	}
	return ""
}

func (m *model) eligible(pod *corev1.Pod, n *corev1.Node, c *corev1.TopologySpreadConstraint) bool {
	for _, other := range pod.Spec.TopologySpreadConstraints {
		if _, has := n.Labels[other.TopologyKey]; !has {
			return false
		}
	}
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
		for key, value := range pod.Spec.NodeSelector {
			if n.Labels[key] != value {
				return false
			}
		}
	}
	honor := c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	return !honor || len(n.Spec.Taints) == 0
}

func orOne(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}
