package variation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// branch is a part of a patch that leads to a change.
type branch map[string]any

// Patch returns the changes as a patch: down to the first list, only what changes.
func (e Experiment) Patch(stored map[string]any) map[string]any {
	changed := e.Changed(runtime.DeepCopyJSON(stored))
	patch := branch{}
	for _, c := range e.Changes {
		var value any = changed
		at := patch
		for i, step := range c.Path {
			key := step.(string)
			object, _ := value.(map[string]any)
			below, has := object[key]
			_, isMap := below.(map[string]any)
			if i == len(c.Path)-1 || !isMap {
				if at[key] = below; !has {
					at[key] = nil
				}
				break
			}
			next, isBranch := at[key].(branch)
			if !isBranch {
				if at[key] != nil {
					break // all of it is there already
				}
				next = branch{}
			}
			at[key], at, value = next, next, below
		}
	}
	return patch
}

// Operations returns the changes as a JSON patch: each adds the first part of its path that is
// not there.
func (e Experiment) Operations(stored map[string]any) []any {
	var all []any
	before := runtime.DeepCopyJSON(stored)
	for _, c := range e.Changes {
		after := Experiment{e.Kind, e.Verb, []Change{c}}.Changed(runtime.DeepCopyJSON(before))
		all = append(all, operation(before, after, c.Path)...)
		before = after
	}
	return all
}

func operation(was, is any, path []any) []any {
	var pointer strings.Builder
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for i, step := range path {
		pointer.WriteString("/" + escape.Replace(fmt.Sprint(step)))
		var has, had bool
		was, had = below(was, step)
		is, has = below(is, step)
		if !has {
			return []any{map[string]any{"op": "remove", "path": pointer.String()}}
		}
		if !had || i == len(path)-1 {
			return []any{map[string]any{"op": "add", "path": pointer.String(), "value": is}}
		}
	}
	return nil
}

func below(value, step any) (any, bool) {
	switch step := step.(type) {
	case string:
		object, _ := value.(map[string]any)
		v, ok := object[step]
		return v, ok
	case int:
		list, _ := value.([]any)
		if step < len(list) {
			return list[step], true
		}
	}
	return nil, false
}
