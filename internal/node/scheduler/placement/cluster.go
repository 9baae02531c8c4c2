package placement

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Cluster is the set of nodes with the pods on them. Create one with NewCluster.
type Cluster struct {
	nodes      map[string]*Node
	order      []*Node               // the nodes in the order in which Place visits them
	first      int                   // where Place starts
	namespaces map[string]labels.Set // their labels
	// avoided maps texts of terms to the required anti-affinity terms of the pods on nodes. Pods of
	// one template share them.
	avoided map[string]*bond
	// attracting maps texts to their terms of preferred affinity and anti-affinity, and of required affinity.
	attracting map[string]*bond
	// groups are the pods on nodes by namespace and by the text of their labels. It is nil until a
	// pod has a constraint on other pods.
	groups map[string]map[string]*group
}

// bond is a term about other pods, with the number of pods on each node that have it.
type bond struct {
	term
	text  string
	nodes map[*Node]int
}

// group is the set of pods in a namespace that have the same labels: every selector matches all or none.
type group struct {
	namespace, text string
	labels          labels.Set
	nodes           map[*Node]tally
}

// tally is a number of pods, and the number of them that are being deleted.
type tally struct{ all, terminating int }

// peering records where a pod on a node is counted. Nil: nowhere.
type peering struct {
	group             *group
	avoids, attracted []*bond
	of                *Cluster
}

// NewCluster returns a cluster without nodes.
func NewCluster() *Cluster {
	return &Cluster{nodes: map[string]*Node{}, namespaces: map[string]labels.Set{}, avoided: map[string]*bond{}, attracting: map[string]*bond{}}
}

// Node returns a node by name, or nil.
func (c *Cluster) Node(name string) *Node { return c.nodes[name] }

// AddNode adds a node, with the pods on it. Its name must be new.
func (c *Cluster) AddNode(n *Node) {
	c.nodes[n.Name()] = n
	c.order = append(c.order, n)
	n.cluster = c
	for uid, u := range n.pods {
		u.peering = c.join(n, u.pod)
		n.pods[uid] = u
	}
}

// RemoveNode removes a node, with the pods on it.
func (c *Cluster) RemoveNode(name string) {
	n := c.nodes[name]
	if n == nil {
		return
	}
	for uid := range n.pods {
		n.Remove(uid)
	}
	n.cluster = nil
	delete(c.nodes, name)
	c.order = slices.DeleteFunc(c.order, func(other *Node) bool { return other == n })
	c.first %= max(1, len(c.order))
}

// SetNamespace records the labels of a namespace, and reports whether they have changed.
func (c *Cluster) SetNamespace(name string, now labels.Set) bool {
	was, known := c.namespaces[name]
	c.namespaces[name] = now
	return !known || !maps.Equal(was, now)
}

// RemoveNamespace forgets the labels of a namespace.
func (c *Cluster) RemoveNamespace(name string) { delete(c.namespaces, name) }

// join counts a pod that is on a node.
func (c *Cluster) join(n *Node, pod *corev1.Pod) *peering {
	// The API server has refused invalid terms. A term that is invalid all the same is ignored.
	avoids, _ := requiredAntiAffinity(pod)
	attracts, _ := attraction(pod)
	if len(avoids)+len(attracts) == 0 && c.groups == nil {
		return nil
	}
	p := &peering{of: c, avoids: bindTo(c.avoided, n, avoids), attracted: bindTo(c.attracting, n, attracts)}
	if c.groups != nil {
		p.group = c.joinGroup(n, pod)
	}
	return p
}

// bindTo counts a pod on a node that has these terms.
func bindTo(bonds map[string]*bond, n *Node, terms []term) []*bond {
	var all []*bond
	for _, t := range terms {
		text := t.text()
		b := bonds[text]
		if b == nil {
			b = &bond{term: t, text: text, nodes: map[*Node]int{}}
			bonds[text] = b
		}
		b.nodes[n]++
		all = append(all, b)
	}
	return all
}

// release undoes bindTo.
func release(bonds map[string]*bond, n *Node, its []*bond) {
	for _, b := range its {
		if b.nodes[n]--; b.nodes[n] == 0 {
			delete(b.nodes, n)
		}
		if len(b.nodes) == 0 {
			delete(bonds, b.text)
		}
	}
}

func (c *Cluster) joinGroup(n *Node, pod *corev1.Pod) *group {
	text := labels.Set(pod.Labels).String()
	of := c.groups[pod.Namespace]
	if of == nil {
		of = map[string]*group{}
		c.groups[pod.Namespace] = of
	}
	g := of[text]
	if g == nil {
		g = &group{namespace: pod.Namespace, text: text, labels: pod.Labels, nodes: map[*Node]tally{}}
		of[text] = g
	}
	g.count(n, pod, 1)
	return g
}

func (g *group) count(n *Node, pod *corev1.Pod, sign int) {
	t := g.nodes[n]
	t.all += sign
	if pod.DeletionTimestamp != nil {
		t.terminating += sign
	}
	if t.all == 0 {
		delete(g.nodes, n)
		return
	}
	g.nodes[n] = t
}

// leave undoes join.
func (p *peering) leave(n *Node, pod *corev1.Pod) {
	if p == nil {
		return
	}
	release(p.of.avoided, n, p.avoids)
	release(p.of.attracting, n, p.attracted)
	if g := p.group; g != nil {
		g.count(n, pod, -1)
		if len(g.nodes) == 0 {
			delete(p.of.groups[g.namespace], g.text)
		}
	}
}

// groupsIn returns the groups of pods that a term matches. The first call counts all pods.
func (c *Cluster) groupsIn(t *term) iter.Seq[*group] {
	c.group()
	return func(yield func(*group) bool) {
		for namespace, of := range c.groups {
			if !t.isAbout(namespace, c.namespaces[namespace]) {
				continue
			}
			for _, g := range of {
				if t.selector.Matches(g.labels) && !yield(g) {
					return
				}
			}
		}
	}
}

// group starts to group the pods on nodes, if it has not yet.
func (c *Cluster) group() {
	if c.groups != nil {
		return
	}
	c.groups = map[string]map[string]*group{}
	for _, n := range c.order {
		for uid, u := range n.pods {
			if u.peering == nil {
				u.peering = &peering{of: c}
				n.pods[uid] = u
			}
			u.peering.group = c.joinGroup(n, u.pod)
		}
	}
}
