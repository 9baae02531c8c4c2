package differential

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// document is an OpenAPI document of one server, or both: fields that one of them lacks belong
// to another version of Kubernetes.
type document struct{ schemas map[string]any }

// fetchDocument reads the OpenAPI document of a group version, such as api/v1.
func (s *apiServer) fetchDocument(ctx context.Context, groupVersion string) (document, error) {
	code, answer, err := s.send(ctx, http.MethodGet, "/openapi/v3/"+groupVersion, "", nil)
	if err != nil || code != http.StatusOK {
		return document{}, fmt.Errorf("%s: OpenAPI of %s: %d %w", s.name, groupVersion, code, err)
	}
	components, _ := nested(answer.Object, "components")
	schemas, ok := nested(components, "schemas")
	if !ok {
		return document{}, fmt.Errorf("%s: OpenAPI of %s has no schemas", s.name, groupVersion)
	}
	return document{schemas}, nil
}

// root returns the schema of a kind.
func (d document) root(group, version, kind string) (map[string]any, error) {
	for _, schema := range d.schemas {
		kinds, _ := schema.(map[string]any)["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			k, _ := k.(map[string]any)
			if k["group"] == group && k["version"] == version && k["kind"] == kind {
				return schema.(map[string]any), nil
			}
		}
	}
	return nil, fmt.Errorf("no schema of %s/%s %s", group, version, kind)
}

// resolve follows a reference. It returns the schema, and the last part of its name.
func (d document) resolve(schema map[string]any) (map[string]any, string) {
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

// shape describes a value by its schema: its fields are the fields that both servers have.
type shape struct {
	name     string // of the type, without its group: PodSpec
	form     form
	format   string
	enum     []string
	fields   map[string]*shape
	required []string
	element  *shape // of a list or map
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

// common returns the shape that a pair of schemas have in common. above are the types that
// contain it.
func common(documents [2]document, schemas [2]map[string]any, above []string) *shape {
	ours, name := documents[0].resolve(schemas[0])
	theirs, _ := documents[1].resolve(schemas[1])
	s := &shape{name: name, form: formOf(theirs, name), format: fmt.Sprint(theirs["format"])}
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
		s.fields = map[string]*shape{}
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
	shape *shape
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
func places(s *shape, path []any) []place {
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
