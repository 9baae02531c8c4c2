package inventory

import (
	"fmt"
	"slices"
	"strings"
)

// Find returns the resource that a user names: by its plural, singular, short name or kind, in any case,
// with or without its group, and the version, as kubectl does. If several groups have the name, the core
// group wins, then groups without dots, then groups below k8s.io, then the first by name.
func (i *Inventory) Find(text string) (*Resource, error) {
	named, group, hasGroup := strings.Cut(strings.ToLower(text), ".")
	var found []*Resource
	for _, r := range i.Resources {
		if r.isCalled(named) && (!hasGroup || group == r.Group || group == r.Version+"."+r.Group || r.Group == "" && group == r.Version) {
			found = append(found, r)
		}
	}
	if len(found) > 0 {
		return slices.MinFunc(found, byRank), nil
	}
	for _, u := range i.Unread {
		if u.Resource.Resource == "" && (!hasGroup || group == u.Resource.Group) {
			return nil, fmt.Errorf("the server does not serve %q; group %s, which may have it, does not answer: %s", text, u.Resource.Group, u.Why)
		}
	}
	return nil, fmt.Errorf("the server does not serve %q; kubectl api-resources lists its resources", text)
}

func (r *Resource) isCalled(lower string) bool {
	return r.Resource == lower || r.Singular == lower || strings.ToLower(r.Kind) == lower || slices.Contains(r.ShortNames, lower)
}

func byRank(a, b *Resource) int {
	if d := rank(a.Group) - rank(b.Group); d != 0 {
		return d
	}
	return strings.Compare(a.Group, b.Group)
}

// rank orders the groups of resources with the same name.
func rank(group string) int {
	switch {
	case group == "":
		return 0
	case !strings.Contains(group, "."):
		return 1
	case strings.HasSuffix(group, ".k8s.io"):
		return 2
	default:
		return 3
	}
}

// Selector names objects: some of a resource, or all of it, in a namespace or in all namespaces.
type Selector struct {
	Resource *Resource
	// Namespace is empty for a cluster-scoped resource, or for objects of all namespaces.
	Namespace string
	Names     []string // none: all objects of the resource
}

// ParseSelectors parses what users write: TYPE/NAME …, or TYPE NAME …, or TYPE[,TYPE…], in a namespace.
func (i *Inventory) ParseSelectors(args []string, namespace string) ([]Selector, error) {
	if len(args) == 0 {
		return nil, nil
	}
	if !strings.Contains(args[0], "/") {
		return i.ofType(args[0], args[1:], namespace)
	}
	var all []Selector
	for _, arg := range args {
		kind, named, ok := strings.Cut(arg, "/")
		if !ok || kind == "" || named == "" || strings.Contains(named, "/") {
			return nil, fmt.Errorf("%q is not TYPE/NAME, as the first argument is", arg)
		}
		one, err := i.ofType(kind, []string{named}, namespace)
		if err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	return all, nil
}

func (i *Inventory) ofType(types string, names []string, namespace string) ([]Selector, error) {
	var all []Selector
	for text := range strings.SplitSeq(types, ",") {
		for _, named := range names {
			if strings.Contains(named, "/") {
				return nil, fmt.Errorf("%q is TYPE/NAME, but the first argument is a type alone", named)
			}
		}
		r, err := i.Find(text)
		if err != nil {
			return nil, err
		}
		s := Selector{Resource: r, Namespace: namespace, Names: names}
		if !r.Namespaced {
			s.Namespace = ""
		}
		all = append(all, s)
	}
	return all, nil
}

// Select returns the objects that a selector names, in the order of Names, or of Objects if Names is
// empty. It fails for a name that no object has.
func (i *Inventory) Select(s Selector) ([]*Object, error) {
	var objects []*Object
	if len(s.Names) == 0 {
		for _, o := range i.Objects {
			if o.Resource == s.Resource && (s.Namespace == "" || o.Namespace == s.Namespace) {
				objects = append(objects, o)
			}
		}
		return objects, nil
	}
	for _, named := range s.Names {
		o := i.Named(s.Resource, s.Namespace, named)
		switch {
		case o != nil:
			objects = append(objects, o)
		case !i.Complete(s.Resource, s.Namespace):
			return nil, fmt.Errorf("%s %q cannot be read%s: %s", s.Resource.GroupResource(), named, in(s.Namespace), i.why(s.Resource))
		default:
			return nil, fmt.Errorf("%s %q not found%s", s.Resource.GroupResource(), named, in(s.Namespace))
		}
	}
	return objects, nil
}

func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// why returns the reason why a resource is not complete.
func (i *Inventory) why(r *Resource) string {
	for _, u := range i.Unread {
		if u.Resource.GroupResource() == r.GroupResource() {
			return u.Why
		}
	}
	return "its group does not answer"
}
