package inuse

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object names an object. Namespace is empty for one without.
type Object struct {
	Kind            schema.GroupKind
	Namespace, Name string
}

// Reference is a field by which an object needs another one.
type Reference struct {
	// Field is the path of the field, "spec.volumes[0].secret.secretName".
	Field string
	// To is the other object. Its namespace is where it would be if its kind has namespaces.
	To Object
}

// Names reports whether a reference names an object.
func (r Reference) Names(o Object) bool {
	return r.To.Kind == o.Kind && r.To.Name == o.Name && (o.Namespace == "" || r.To.Namespace == o.Namespace)
}

// References returns the fields by which an object of Kubernetes' own API needs others. object is its content as JSON; a field
// of another type than the table expects is passed over. Objects of other kinds have none.
func (f *Fields) References(kind schema.GroupKind, namespace string, object map[string]any) []Reference {
	var found []Reference
	if root, ok := f.kinds[kind]; ok {
		root.collect("", object, func(path string, to target, parent map[string]any, field string) {
			if o, ok := to.object(namespace, parent, field); ok {
				found = append(found, Reference{path, o})
			}
		})
	}
	return found
}

// UserKinds returns the kinds whose objects may need an object of a kind, sorted.
func (f *Fields) UserKinds(of schema.GroupKind) []schema.GroupKind {
	var users []schema.GroupKind
	for kind, root := range f.kinds {
		if root.leadsTo(of) {
			users = append(users, kind)
		}
	}
	slices.SortFunc(users, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return users
}

//go:embed references.txt
var references string

// Fields are the fields of Kubernetes' API by which objects need others, as references.txt has them. It is safe for concurrent
// use.
type Fields struct {
	kinds map[schema.GroupKind]*node
	types map[string]*node // what kinds share, too, by name; a name that is used by another row is no kind
}

// node is an object, or a list of objects, that has references somewhere below it.
type node struct {
	children map[string]*node
	targets  map[string]target // by the field
	also     []*node           // types whose fields it has
}

// target is the object that a field names.
type target struct {
	// kind has no Kind if the field is an object that has the kind, too; then a group limits the kinds.
	kind schema.GroupKind
	// namespace is the field beside it that has the namespace; empty for the namespace of the object.
	namespace string
}

// ReadFields reads the table, in less than a millisecond.
func ReadFields() *Fields {
	all := &Fields{kinds: map[schema.GroupKind]*node{}, types: map[string]*node{}}
	shared := map[string]bool{}
	for line := range strings.Lines(references) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if words[2] == "=" {
			shared[words[3]] = true
		}
		all.add(words)
	}
	for name, root := range all.types {
		if !shared[name] {
			all.kinds[schema.ParseGroupKind(name)] = root
		}
	}
	return all
}

// add adds a row.
func (f *Fields) add(words []string) {
	path := strings.Split(words[1], ".")
	last := path[len(path)-1]
	at := f.named(words[0])
	for _, field := range path[:len(path)-1] {
		at = at.child(field)
	}
	if words[2] == "=" {
		at = at.child(last)
		at.also = append(at.also, f.named(words[3]))
		return
	}
	to := target{kind: schema.ParseGroupKind(strings.TrimPrefix(words[2], "*"))}
	if len(words) == 4 {
		to.namespace = words[3]
	}
	at.targets[last] = to
}

func (f *Fields) named(name string) *node {
	if f.types[name] == nil {
		f.types[name] = newNode()
	}
	return f.types[name]
}

func newNode() *node { return &node{children: map[string]*node{}, targets: map[string]target{}} }

func (n *node) child(field string) *node {
	if n.children[field] == nil {
		n.children[field] = newNode()
	}
	return n.children[field]
}

// leadsTo reports whether a reference below the node may name an object of a kind.
func (n *node) leadsTo(kind schema.GroupKind) bool {
	for _, t := range n.targets {
		if t.kind == kind || t.kind.Kind == "" && (t.kind.Group == "" || t.kind.Group == kind.Group) {
			return true
		}
	}
	return slices.ContainsFunc(slices.AppendSeq(slices.Clone(n.also), maps.Values(n.children)), func(below *node) bool { return below.leadsTo(kind) })
}

// collect calls found for each field below the node that may name an object, in the order of their names.
func (n *node) collect(path string, value any, found func(path string, to target, parent map[string]any, field string)) {
	switch v := value.(type) {
	case []any:
		for i, element := range v {
			n.collect(fmt.Sprintf("%s[%d]", path, i), element, found)
		}
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(v)) {
			below := strings.TrimPrefix(path+"."+field, ".")
			if child := n.children[field]; child != nil {
				child.collect(below, v[field], found)
			}
			if to, ok := n.targets[field]; ok {
				found(below, to, v, field)
			}
		}
		for _, also := range n.also {
			also.collect(path, v, found)
		}
	}
}

// object returns the object whose name a field of parent has; false if it has none. The whole object is in namespace.
func (t target) object(namespace string, parent map[string]any, field string) (Object, bool) {
	o := Object{Kind: t.kind, Namespace: cmp.Or(text(parent, t.namespace), namespace), Name: text(parent, field)}
	if t.kind.Kind == "" {
		reference, _ := parent[field].(map[string]any)
		group := cmp.Or(text(reference, "apiGroup"), text(reference, "group"))
		if version, err := schema.ParseGroupVersion(text(reference, "apiVersion")); err == nil {
			group = cmp.Or(group, version.Group)
		}
		o = Object{
			Kind:      schema.GroupKind{Group: group, Kind: text(reference, "kind")},
			Namespace: cmp.Or(text(reference, "namespace"), namespace), Name: text(reference, "name"),
		}
	}
	return o, o.Name != "" && o.Kind.Kind != ""
}

func text(object map[string]any, field string) string {
	value, _ := object[field].(string)
	return value
}
