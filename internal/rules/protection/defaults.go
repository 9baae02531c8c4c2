package protection

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// None is the value of the label that lifts the default of a resource from one object.
const None = "none"

// Defaults are the modes of resources whose objects have no label of their own. The label of an object overrides the
// default of its resource; the value None lifts it. Nil has no defaults.
type Defaults map[schema.GroupResource]Mode

// Default is one default, as commands and servers write it.
type Default struct {
	// Resource is a resource with its group, "customresourcedefinitions.apiextensions.k8s.io".
	Resource string `json:"resource"`
	Mode     Mode   `json:"mode"`
}

// DefaultModes returns the modes that can be a default. An object needs a list of its own for Outlives.
func DefaultModes() []Mode { return []Mode{Always, Cascading, Unused} }

// ParseDefaultMode returns the mode of that name, if it can be a default.
func ParseDefaultMode(name string) (Mode, error) {
	if m := Mode(name); slices.Contains(DefaultModes(), m) {
		return m, nil
	}
	if Mode(name) == Outlives {
		return "", fmt.Errorf("mode %s cannot be a default: each object lists what it outlives", Outlives)
	}
	return "", fmt.Errorf("mode %q is unknown: choose one of %s", name, textOf(DefaultModes()))
}

// Of returns how an object of a resource is protected, by its own label or by default; false if it is not.
func (d Defaults) Of(resource schema.GroupResource, m metav1.Object) (Protection, bool) {
	mode, hasDefault := d[resource]
	if _, labelled := m.GetLabels()[Label]; labelled || !hasDefault {
		return Of(m)
	}
	return Protection{Label: string(mode), Mode: mode, ByDefault: true}, true
}

// List returns the defaults, sorted by resource.
func (d Defaults) List() []Default {
	list := []Default{}
	for _, resource := range slices.SortedFunc(maps.Keys(d), func(a, b schema.GroupResource) int { return cmp.Compare(a.String(), b.String()) }) {
		list = append(list, Default{resource.String(), d[resource]})
	}
	return list
}

// DefaultsOf returns the defaults of a list. Entries with an unknown mode count as Always.
func DefaultsOf(list []Default) Defaults {
	d := Defaults{}
	for _, one := range list {
		mode, err := ParseDefaultMode(string(one.Mode))
		if err != nil {
			mode = Always
		}
		d[schema.ParseGroupResource(one.Resource)] = mode
	}
	return d
}

// IsMarked reports whether labels mark their object as protected, in whatever mode.
func IsMarked(labels map[string]string) bool {
	value, labelled := labels[Label]
	return labelled && value != None
}

func textOf(modes []Mode) string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}
