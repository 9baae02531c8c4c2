package variation

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// edit, in place of a value, makes the new value of the one that is there.
type edit func(any) any

// edits returns changes of the values in a stored object, and additions right beside them: each value
// replaced, removed, and made larger and smaller.
func edits(s *Shape, path []any, content any) []Change {
	var all []Change
	add := func(what string, value any) { all = append(all, Change{Path: path, what: what, value: value}) }
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
				all = append(all, Change{Path: at, what: "added", value: sample(field, s.fields[field])})
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
func other(s *Shape, value any) any {
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
