package crowd

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Number identifies an object of a Population.
type Number uint32

// Population maps numbers to objects. It does not change, and is safe for concurrent use.
type Population struct {
	Kinds      []*Kind
	Objects    int
	cohorts    []*cohort // by first number
	words      map[string]*cohort
	namespaces []string
}

// cohort is a range of objects of one kind. Those of one owner, and those of one namespace, are neighbours, so that a
// number tells the owner and the namespace.
type cohort struct {
	kind     *Kind
	word     string
	first    Number
	count    int
	owner    *cohort // nil if the objects have no owner
	root     *cohort // the owners' owners, and so on
	children []*cohort
	suffix   suffix
	constant []byte // the encoded metadata that all objects of the cohort have
}

const (
	// leastObjects is the size at which all kinds have an object.
	leastObjects = 1000
	// mostObjects bounds the numbers, and so the digits of a name and of a resourceVersion.
	mostObjects = 50_000_000
	// mostDependents is the number of dependents of one cohort that an object may have: the last letter of a generated
	// name distinguishes them.
	mostDependents = len(alphabet)
	// perNamespace is the number of objects for each namespace, within the bounds of namespacesOf.
	perNamespace = 5000
	// remainder is the cohort that rounding makes larger or smaller.
	remainder = "settings"
)

// NewPopulation returns a population of that many objects.
func NewPopulation(objects int) (*Population, error) {
	if objects < leastObjects || objects > mostObjects {
		return nil, fmt.Errorf("%d objects are not between %d and %d", objects, leastObjects, mostObjects)
	}
	p := &Population{Objects: objects, words: map[string]*cohort{}, namespaces: namespacesOf(objects)}
	byResource := map[string]*Kind{}
	for i, line := range served() {
		k := parseKind(line)
		k.index = i
		p.Kinds = append(p.Kinds, k)
		byResource[k.Resource] = k
	}
	for _, r := range rows() {
		c := &cohort{kind: byResource[r.resource], word: r.word, owner: p.words[r.owner], suffix: r.suffix}
		c.root = c
		if c.owner != nil {
			c.root = c.owner.root
			c.owner.children = append(c.owner.children, c)
		}
		p.words[r.word] = c
		p.cohorts = append(p.cohorts, c)
		c.kind.cohorts = append(c.kind.cohorts, c)
	}
	return p, p.number()
}

// number gives each cohort its numbers.
func (p *Population) number() error {
	shares, counted := 0, 0
	for _, r := range rows() {
		shares += r.share
	}
	for i, r := range rows() {
		p.cohorts[i].count = (p.Objects*r.share + shares - 1) / shares
		if r.share == 0 {
			p.cohorts[i].count = len(p.namespaces)
		}
		counted += p.cohorts[i].count
	}
	p.words[remainder].count += p.Objects - counted
	first := Number(0)
	for _, c := range p.cohorts {
		c.first = first
		first += Number(c.count)
		if c.count < 1 || c.owner != nil && (c.count+c.owner.count-1)/c.owner.count > mostDependents {
			return fmt.Errorf("%d objects cannot be divided: %s would have %d", p.Objects, c.word, c.count)
		}
		c.constant = constantOf(c)
	}
	return nil
}

func parseKind(line string) *Kind {
	parts := strings.Fields(line)
	gv, err := schema.ParseGroupVersion(strings.TrimPrefix(parts[0], "/"))
	if err != nil {
		panic(err) // the table is wrong
	}
	resource, isCluster := strings.CutPrefix(parts[1], "*")
	return &Kind{GroupVersionResource: gv.WithResource(resource), Kind: parts[2], Namespaced: !isCluster}
}

// namespacesOf returns the names of the namespaces.
func namespacesOf(objects int) []string {
	names := []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}
	for i := range min(max(objects/perNamespace, 20), 2000) {
		names = append(names, fmt.Sprintf("team-%05d", i))
	}
	return names
}

// at returns the cohort of an object, and its place there.
func (p *Population) at(n Number) (*cohort, int) {
	i := sort.Search(len(p.cohorts), func(i int) bool { return p.cohorts[i].first > n }) - 1
	return p.cohorts[i], int(n - p.cohorts[i].first)
}

// ownerOf returns the place of the owner of the object at place i.
func (c *cohort) ownerOf(i int) int { return i * c.owner.count / c.count }

// dependentsOf returns the range of the places whose owner is at place i of the owners.
func (c *cohort) dependentsOf(i int) (from, to int) {
	ceil := func(i int) int { return (i*c.count + c.owner.count - 1) / c.owner.count }
	return ceil(i), ceil(i + 1)
}

// Owner returns the number of an object's owner, if it has one.
func (p *Population) Owner(n Number) (owner Number, owned bool) {
	c, i := p.at(n)
	if c.owner == nil {
		return 0, false
	}
	return c.owner.first + Number(c.ownerOf(i)), true
}

// Dependents returns the numbers of the dependents of an object.
func (p *Population) Dependents(n Number) []Number {
	c, i := p.at(n)
	var found []Number
	for _, child := range c.children {
		from, to := child.dependentsOf(i)
		for ; from < to; from++ {
			found = append(found, child.first+Number(from))
		}
	}
	return found
}

// namespaceOf returns the index of the namespace of the objects at place i.
func (p *Population) namespaceOf(c *cohort, i int) int {
	for c.owner != nil {
		c, i = c.owner, c.ownerOf(i)
	}
	return i * len(p.namespaces) / c.count
}

// within returns the range of the places in a namespace; an empty namespace is all of them.
func (p *Population) within(c *cohort, namespace string) (from, to int) {
	if namespace == "" {
		return 0, c.count
	}
	index := slices.Index(p.namespaces, namespace)
	if index < 0 || !c.kind.Namespaced {
		return 0, 0
	}
	from = sort.Search(c.count, func(i int) bool { return p.namespaceOf(c, i) >= index })
	to = sort.Search(c.count, func(i int) bool { return p.namespaceOf(c, i) > index })
	return from, to
}

// Find returns the number of the object of that name. A cluster-scoped object has no namespace.
func (p *Population) Find(k *Kind, namespace, name string) (Number, bool) {
	n, ok := p.named(k, name)
	if !ok {
		return 0, false
	}
	c, i := p.at(n)
	return n, p.namespaceName(c, i) == namespace
}

// named returns the number of the object of that name, which no other namespace has.
func (p *Population) named(k *Kind, name string) (Number, bool) {
	for _, c := range k.cohorts {
		root, ok := c.root.placeOf(p, name)
		if !ok {
			continue
		}
		from, to := c.belowRoot(root)
		var text []byte
		for i := from; i < to; i++ {
			text = p.appendName(text[:0], c, i)
			if string(text) == name {
				return c.first + Number(i), true
			}
		}
	}
	return 0, false
}

// belowRoot returns the range of the places below one object without owners.
func (c *cohort) belowRoot(root int) (from, to int) {
	if c.owner == nil {
		return root, root + 1
	}
	from, to = c.owner.belowRoot(root)
	if from == to {
		return 0, 0
	}
	first, _ := c.dependentsOf(from)
	_, last := c.dependentsOf(to - 1)
	return first, last
}

// namespaceName returns the namespace of the object at place i, or nothing for a cluster-scoped one.
func (p *Population) namespaceName(c *cohort, i int) string {
	if !c.kind.Namespaced {
		return ""
	}
	return p.namespaces[p.namespaceOf(c, i)]
}

// KindOf returns the kind that a group, version and resource name, or nil.
func (p *Population) KindOf(gvr schema.GroupVersionResource) *Kind {
	for _, k := range p.Kinds {
		if k.GroupVersionResource == gvr {
			return k
		}
	}
	return nil
}
