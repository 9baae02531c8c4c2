package variation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Document is an OpenAPI document of a group version.
type Document struct{ schemas map[string]any }

// NewDocument takes the schemas of a document, by name.
func NewDocument(schemas map[string]any) Document { return Document{schemas} }

// root returns the schema of a kind.
func (d Document) root(gvk schema.GroupVersionKind) (map[string]any, error) {
	for _, described := range d.schemas {
		kinds, _ := described.(map[string]any)["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			k, _ := k.(map[string]any)
			if k["group"] == gvk.Group && k["version"] == gvk.Version && k["kind"] == gvk.Kind {
				return described.(map[string]any), nil
			}
		}
	}
	return nil, fmt.Errorf("no schema of %s", gvk)
}

// resolve follows a reference. It returns the schema, and the last part of its name.
func (d Document) resolve(schema map[string]any) (map[string]any, string) {
	name := ""
	for {
		reference, _ := schema["$ref"].(string)
		if all, ok := schema["allOf"].([]any); ok && len(all) == 1 {
			reference, _ = all[0].(map[string]any)["$ref"].(string)
		}
		if reference == "" {
			return schema, name
		}
		reference = strings.TrimPrefix(reference, "#/components/schemas/")
		name = reference[strings.LastIndex(reference, ".")+1:]
		schema, _ = d.schemas[reference].(map[string]any)
	}
}

// Shape describes a value by its schema.
type Shape struct {
	name     string // of the type, without its group: PodSpec
	form     form
	format   string
	enum     []string
	fields   map[string]*Shape
	required []string
	element  *Shape // of a list or map
}

// form is the kind of JSON that a value is.
type form string

const (
	formObject   form = "object"
	formMap      form = "map"
	formList     form = "list"
	formString   form = "string"
	formInteger  form = "integer"
	formNumber   form = "number"
	formBoolean  form = "boolean"
	formQuantity form = "quantity"
	formEither   form = "integer or string"
	formAny      form = "anything"
)

// repeats is how often a type may contain itself: JSONSchemaProps does.
const repeats = 2

// ShapeOf returns the shape of a kind that is described in the documents of two servers: a field that one of them lacks
// belongs to another version of Kubernetes.
func ShapeOf(gvk schema.GroupVersionKind, ours, theirs Document) (*Shape, error) {
	our, err := ours.root(gvk)
	if err != nil {
		return nil, err
	}
	their, err := theirs.root(gvk)
	if err != nil {
		return nil, err
	}
	return common([2]Document{ours, theirs}, [2]map[string]any{our, their}, nil), nil
}

// common returns the shape that a pair of schemas have in common. above are the types that
// contain it.
func common(documents [2]Document, schemas [2]map[string]any, above []string) *Shape {
	ours, name := documents[0].resolve(schemas[0])
	theirs, _ := documents[1].resolve(schemas[1])
	s := &Shape{name: name, form: formOf(theirs, name), format: fmt.Sprint(theirs["format"])}
	for _, value := range asList(theirs["enum"]) {
		s.enum = append(s.enum, fmt.Sprint(value))
	}
	if name != "" {
		if count(above, name) >= repeats {
			s.form = formAny
			return s
		}
		above = append(slices.Clone(above), name)
	}
	switch s.form {
	case formObject:
		for _, field := range asList(theirs["required"]) {
			s.required = append(s.required, fmt.Sprint(field))
		}
		s.fields = map[string]*Shape{}
		ourFields, _ := nested(ours, "properties")
		theirFields, _ := nested(theirs, "properties")
		for field, theirSchema := range theirFields {
			ourSchema, ok := ourFields[field].(map[string]any)
			if ok {
				s.fields[field] = common(documents, [2]map[string]any{ourSchema, theirSchema.(map[string]any)}, above)
			}
		}
	case formList, formMap:
		key := map[form]string{formList: "items", formMap: "additionalProperties"}[s.form]
		ourElement, _ := ours[key].(map[string]any)
		theirElement, _ := theirs[key].(map[string]any)
		s.element = common(documents, [2]map[string]any{ourElement, theirElement}, above)
	default: // a single value
	}
	return s
}

func formOf(schema map[string]any, name string) form {
	kind, _ := schema["type"].(string)
	switch {
	case name == "Quantity":
		return formQuantity
	case schema["format"] == "int-or-string":
		return formEither
	case kind == "array":
		return formList
	case kind == "object" && schema["additionalProperties"] != nil:
		return formMap
	case kind == "object" && schema["properties"] != nil:
		return formObject
	case kind == "string", kind == "integer", kind == "number", kind == "boolean":
		return form(kind)
	}
	return formAny
}

func asList(value any) []any {
	list, _ := value.([]any)
	return list
}

func count(list []string, value string) int {
	n := 0
	for _, v := range list {
		if v == value {
			n++
		}
	}
	return n
}

// place is a path to a value, of field names, keys and indexes, and the shape of the value.
type place struct {
	path  []any
	shape *Shape
}

// String returns the path as errors write it.
func (p place) String() string { return written(p.path) }

func written(path []any) string {
	var text strings.Builder
	for i, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&text, "[%d]", step)
		case string:
			if i > 0 {
				text.WriteByte('.')
			}
			text.WriteString(step)
		}
	}
	return text.String()
}

// places returns all places in a shape, in the order of their names: of lists the first element,
// of maps none.
func places(s *Shape, path []any) []place {
	var all []place
	if len(path) > 0 {
		all = append(all, place{path, s})
	}
	switch s.form {
	case formObject:
		for _, field := range slices.Sorted(maps.Keys(s.fields)) {
			all = append(all, places(s.fields[field], append(slices.Clone(path), field))...)
		}
	case formList:
		if s.element.form == formObject {
			all = append(all, places(s.element, append(slices.Clone(path), 0))...)
		}
	default: // no fields
	}
	return all
}

// nested returns the object below a key of an object.
func nested(value any, key string) (map[string]any, bool) {
	object, _ := value.(map[string]any)
	below, ok := object[key].(map[string]any)
	return below, ok
}
