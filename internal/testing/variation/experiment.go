// Package variation makes requests about whole objects, for comparisons of two API servers: a valid object of each
// kind with one field changed, right and wrong, with two fields changed, or with all of them. The fields are those of
// an OpenAPI document.
//
// A Kind has the valid object, and the Shape of its kind. From both follow the experiments: creations, alterations of
// a stored object, and combinations of edits to the values that a stored object has. The latter change objects in special
// states (State), too. The same seed makes the same experiments.
package variation

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// Change is one value in one place.
type Change struct {
	Path  []any
	what  string
	value any
	// mutates: the value is YAML, and a file of mutations has the change.
	mutates bool
}

// indexes are those of elements of lists in a path.
var indexes = regexp.MustCompile(`\[[0-9]+\]`)

// Place returns the path as errors write it, without indexes.
func (c Change) Place() string { return indexes.ReplaceAllString(written(c.Path), "[]") }

// Experiment is a request about a valid object with changes.
type Experiment struct {
	Kind *Kind
	// Verb is create; store and get, for the valid object itself; update, again, merge, strategic, json and apply,
	// for the stored one; status, a patch; or a slash and the name of a subresource, which is replaced.
	Verb    string
	Changes []Change
}

// The verbs of experiments that begin with an object that is stored.
var changingVerbs = []string{"update", "merge", "strategic", "json", "apply"}

// wholeDepth is how deep objects with all fields are.
const wholeDepth = 5

// String returns the experiment in words.
func (e Experiment) String() string {
	var text []string
	for _, c := range e.Changes {
		value, _ := json.Marshal(c.value)
		if len(value) > 120 {
			value = append(value[:120], "…"...)
		}
		text = append(text, fmt.Sprintf("%s = %s (%s)", written(c.Path), value, c.what))
	}
	kind := e.Kind.GVK.Kind
	if e.Kind.State != nil {
		kind += " (" + e.Kind.State.Name + ")"
	}
	return fmt.Sprintf("%s %s %s", e.Verb, kind, strings.Join(text, ", "))
}

// Changed returns an object with the changes.
func (e Experiment) Changed(object map[string]any) map[string]any {
	for _, c := range e.Changes {
		if c.mutates {
			object = c.mutation(object)
			continue
		}
		object, _ = put("", e.Kind.Shape, object, c.Path, c.value).(map[string]any)
	}
	return object
}

// Creations returns the experiments that create: each value alone in each place, pairs of right
// ones, and everything at once.
func (k *Kind) Creations(random *rand.Rand, pairs int) []Experiment {
	var all []Experiment
	var right []Change
	for _, p := range k.spec() {
		values := variants(p)
		for _, what := range sorted(values) {
			c := Change{Path: p.path, what: what, value: values[what]}
			all = append(all, Experiment{k, "create", []Change{c}})
			if what == "right" || strings.HasPrefix(what, "enum ") {
				right = append(right, c)
			}
		}
	}
	for range pairs {
		all = append(all, Experiment{k, "create", []Change{right[random.IntN(len(right))], right[random.IntN(len(right))]}})
	}
	for _, field := range slices.Sorted(maps.Keys(k.Shape.fields)) {
		below := k.Shape.fields[field]
		for depth := 1; depth <= wholeDepth && field != "metadata" && below.form == formObject; depth++ {
			all = append(all, Experiment{k, "create", []Change{{Path: []any{field}, what: fmt.Sprint("whole, depth ", depth), value: whole(field, below, depth)}}})
		}
	}
	return all
}

// Alterations returns the experiments that change a stored object: each value in each place, with
// one of the verbs.
func (k *Kind) Alterations(random *rand.Rand) []Experiment {
	var all []Experiment
	for _, p := range k.spec() {
		values := variants(p)
		for _, what := range sorted(values) {
			verb := changingVerbs[random.IntN(len(changingVerbs))]
			all = append(all, Experiment{k, verb, []Change{{Path: p.path, what: what, value: values[what]}}})
		}
	}
	if k.HasStatus {
		for _, p := range places(k.Shape.fields["status"], []any{"status"}) {
			values := variants(p)
			for _, what := range sorted(values) {
				all = append(all, Experiment{k, "status", []Change{{Path: p.path, what: what, value: values[what]}}})
			}
		}
	}
	return all
}

// Combinations returns the experiments with a stored object in a state: each edit with one of the
// verbs and by each subresource, each edit of the object that the client had sent at first, and pairs of edits. No
// experiment changes metadata by a subresource: there, servers differ by design (docs/semantics.md).
func (k *Kind) Combinations(random *rand.Rand, stored map[string]any) []Experiment {
	changes := edits(k.Shape, nil, stored)
	parts := slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return c.Path[0] == "metadata" })
	var all []Experiment
	for _, c := range changes {
		all = append(all, Experiment{k, changingVerbs[random.IntN(len(changingVerbs))], []Change{c}})
	}
	pairs := func(verb string, of []Change) {
		for range of {
			all = append(all, Experiment{k, verb, []Change{of[random.IntN(len(of))], of[random.IntN(len(of))]}})
		}
	}
	for _, c := range edits(k.Shape, nil, k.Object()) {
		all = append(all, Experiment{k, "again", []Change{c}})
	}
	pairs("update", changes)
	pairs("merge", changes)
	for _, subresource := range k.Subresources {
		for _, c := range parts {
			all = append(all, Experiment{k, subresource, []Change{c}})
		}
		pairs(subresource, parts)
	}
	return all
}

// Places returns the number of places outside of the status that requests may write.
func (k *Kind) Places() int { return len(k.spec()) }

// spec returns the places outside of the status that requests may write.
func (k *Kind) spec() []place {
	return slices.DeleteFunc(places(k.Shape, nil), func(p place) bool {
		text := p.String()
		return p.path[0] == "status" || text == "apiVersion" || text == "kind" || strings.HasPrefix(text, "metadata.managedFields")
	})
}
