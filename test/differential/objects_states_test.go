package differential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// statesFile has objects in states in which other updates are allowed than for a new object.
const statesFile = "testdata/states.yaml"

// state is an object, and the requests that bring it into the state.
type state struct {
	Name   string         `json:"name"`
	Object map[string]any `json:"object"`
	Steps  []step         `json:"steps"`
}

// step is a request about the object of a state.
type step struct {
	To     string         `json:"to"`     // the subresource
	Patch  map[string]any `json:"patch"`  // a merge patch
	Post   map[string]any `json:"post"`   // the body of a POST
	Delete bool           `json:"delete"` // a DELETE of the object
}

// readStates returns the states by the kind of their objects.
func readStates() (map[string][]state, error) {
	data, err := os.ReadFile(statesFile)
	if err != nil {
		return nil, err
	}
	states := map[string][]state{}
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var s state
		if err := decoder.Decode(&s); errors.Is(err, io.EOF) {
			return states, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", statesFile, err)
		}
		key := (&unstructured.Unstructured{Object: s.Object}).GroupVersionKind().String()
		states[key] = append(states[key], s)
	}
}

// in returns the kind with the object of a state in place of the valid one.
func (k *objectKind) in(s state, namespace string) *objectKind {
	changed := *k
	base := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(numbers(s.Object).(map[string]any))}
	if strings.Contains(k.collection, "/namespaces/"+namespace+"/") {
		moveTo(namespace, base)
	}
	changed.base, changed.state = base.Object, &s
	return &changed
}

// numbers converts a YAML decoder's integers to the type in unstructured objects.
func numbers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = numbers(value[key])
		}
	case []any:
		for i := range value {
			value[i] = numbers(value[i])
		}
	case float64:
		return int64(value)
	}
	return value
}

// reach brings the stored object into its state, on both servers. A step that one of them refuses ends it.
func (c *objectComparison) reach(ctx context.Context, k *objectKind) error {
	if k.state == nil {
		return nil
	}
	for _, step := range k.state.Steps {
		for _, s := range c.pair {
			object := k.collection + "/" + k.name()
			if step.To != "" {
				object += "/" + step.To
			}
			method, contentType, body := http.MethodPatch, "application/merge-patch+json", step.Patch
			switch {
			case step.Delete:
				method, contentType, body = http.MethodDelete, "", nil
			case step.Post != nil:
				method, contentType, body = http.MethodPost, "application/json", step.Post
			}
			if code, answer, err := s.send(ctx, method, object, contentType, body); err != nil || code >= http.StatusBadRequest {
				return fmt.Errorf("%s: %s: %s %s: %d %v %w", s.name, k.state.Name, method, object, code, answer, err)
			}
		}
	}
	return nil
}

// edit, in place of a value, makes the new value of the one that is there.
type edit func(any) any

// edits returns changes of what a stored object has, and additions right beside it: each value
// replaced, removed, and made larger and smaller.
func edits(s *shape, path []any, content any) []change {
	var all []change
	add := func(what string, value any) { all = append(all, change{path, what, value}) }
	if len(path) > 0 && content != nil {
		add("absent", absent{})
	}
	switch s.form {
	case formObject:
		object, _ := content.(map[string]any)
		for _, field := range slices.Sorted(maps.Keys(s.fields)) {
			at := append(slices.Clone(path), field)
			if !isEdited(at) {
				continue
			}
			if value, has := object[field]; has {
				all = append(all, edits(s.fields[field], at, value)...)
			} else {
				all = append(all, change{at, "added", sample(field, s.fields[field])})
			}
		}
	case formList:
		name, _ := path[len(path)-1].(string)
		list, _ := content.([]any)
		add("appended", edit(func(v any) any { return append(slices.Clone(asList(v)), sample(name, s.element)) }))
		add("prepended", edit(func(v any) any { return append([]any{sample(name, s.element)}, asList(v)...) }))
		add("repeated", edit(func(v any) any { return append(slices.Clone(asList(v)), asList(v)...) }))
		if len(list) > 1 {
			add("shortened", edit(func(v any) any { return asList(v)[:max(0, len(asList(v))-1)] }))
			add("reversed", edit(func(v any) any {
				reversed := slices.Clone(asList(v))
				slices.Reverse(reversed)
				return reversed
			}))
		}
		for i := range list {
			all = append(all, edits(s.element, append(slices.Clone(path), i), list[i])...)
		}
	case formMap:
		add("with another key", edit(func(v any) any { return with(v, "added", sample("", s.element)) }))
		add("with other values", edit(func(v any) any {
			changed := map[string]any{}
			object, _ := v.(map[string]any)
			for key := range object {
				changed[key] = other(s.element, object[key])
			}
			return changed
		}))
		add("emptied", map[string]any{})
	default:
		add("changed", edit(func(v any) any { return other(s, v) }))
		switch s.form {
		case formInteger:
			add("lowered", edit(func(v any) any { n, _ := v.(int64); return n - 1 }))
		case formQuantity:
			add("lowered", edit(func(v any) any { return scaled(v, 1) }))
		default:
		}
		for _, value := range s.enum {
			if value != content {
				add("enum "+value, value)
			}
		}
	}
	return all
}

// isEdited reports whether requests may change a place: managed fields and the like are the server's.
func isEdited(path []any) bool {
	if path[0] == "metadata" && len(path) > 1 {
		return slices.Contains([]any{"labels", "annotations", "finalizers", "ownerReferences"}, path[1])
	}
	return path[0] != "apiVersion" && path[0] != "kind"
}

func with(v any, key string, value any) map[string]any {
	changed := map[string]any{key: value}
	if object, ok := v.(map[string]any); ok {
		for k := range object {
			changed[k] = object[k]
		}
	}
	return changed
}

// other returns a value like the one that is there, but another one.
func other(s *shape, value any) any {
	switch v := value.(type) {
	case bool:
		return !v
	case int64:
		return v + 1
	case string:
		switch {
		case s.form == formQuantity:
			return scaled(v, 4)
		case s.format == "date-time":
			return "2026-11-20T03:04:05Z"
		case s.format == "byte":
			return "Yg=="
		}
		return v + "b"
	}
	return sample("", s)
}

// scaled returns half as many times a quantity as half is.
func scaled(value any, half int64) any {
	quantity, err := resource.ParseQuantity(fmt.Sprint(value))
	if err != nil {
		return value
	}
	return resource.NewQuantity(quantity.Value()*half/2, quantity.Format).String()
}

// combinations returns the experiments with a stored object in a state: each edit with one of the
// verbs and by each subresource, each edit of what the client had sent at first, and pairs of edits. By a subresource, no metadata is changed: which of it
// a subresource accepts is a difference on purpose (docs/semantics.md).
func (k *objectKind) combinations(random *rand.Rand, stored map[string]any) []experiment {
	changes := edits(k.shape, nil, stored)
	parts := slices.DeleteFunc(slices.Clone(changes), func(c change) bool { return c.path[0] == "metadata" })
	var all []experiment
	for _, c := range changes {
		all = append(all, experiment{k, changingVerbs[random.IntN(len(changingVerbs))], []change{c}})
	}
	pairs := func(verb string, of []change) {
		for range of {
			all = append(all, experiment{k, verb, []change{of[random.IntN(len(of))], of[random.IntN(len(of))]}})
		}
	}
	for _, c := range edits(k.shape, nil, k.object()) {
		all = append(all, experiment{k, "again", []change{c}})
	}
	pairs("update", changes)
	pairs("merge", changes)
	for _, subresource := range k.subresources {
		for _, c := range parts {
			all = append(all, experiment{k, subresource, []change{c}})
		}
		pairs(subresource, parts)
	}
	return all
}
