package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// schemas are the types of a release, by their names in OpenAPI: "io.k8s.api.core.v1.PodSpec".
type schemas map[string]*spec.Schema

// fieldsChanged lists the fields that came, went or changed, by type, with the kinds that have the type.
func fieldsChanged(page *strings.Builder, before, after release) error {
	rows, err := compare(before, after, readSchemas, compareFields)
	section(page, "Fields that came, went or changed", "In v1 and later versions, by type, with the kinds whose objects have it.", rows)
	return err
}

// readSchemas reads the types in the OpenAPI documents of a release, of stable versions only.
func readSchemas(r release) (schemas, error) {
	directory := r.file(kubernetes, "api", "openapi-spec", "v3")
	files, err := fs.Glob(os.DirFS(directory), "*__v[0-9]_openapi.json")
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s has no OpenAPI documents", directory))
	}
	all := schemas{}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(directory, file))
		if err != nil {
			return nil, err
		}
		var document spec3.OpenAPI
		if err := json.Unmarshal(data, &document); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if document.Components != nil {
			maps.Copy(all, document.Components.Schemas)
		}
	}
	return all, nil
}

// compareFields describes the fields that differ, in a row for each type. A type that is new is described by the field
// that has it.
func compareFields(old, young schemas) []string {
	var rows []string
	kinds := young.kinds()
	for _, name := range slices.Sorted(maps.Keys(old)) {
		is, ok := young[name]
		if !ok {
			continue
		}
		if lines := compareType(old[name], is); len(lines) > 0 {
			rows = append(rows, fmt.Sprintf("**%s**, in %s\n  * %s", short(name), list(kinds[name]), strings.Join(lines, "\n  * ")))
		}
	}
	return rows
}

// compareType describes the fields of a type that differ.
func compareType(old, young *spec.Schema) []string {
	var lines []string
	fields := map[string]spec.Schema{}
	maps.Copy(fields, old.Properties)
	maps.Copy(fields, young.Properties)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		before, hadIt := old.Properties[field]
		after, hasIt := young.Properties[field]
		switch form := describe(after); {
		case !hadIt:
			lines = append(lines, fmt.Sprintf("came: `%s`, %s: %s", field, form, sentence(after.Description)))
		case !hasIt:
			lines = append(lines, fmt.Sprintf("went: `%s`", field))
		case form != describe(before):
			lines = append(lines, fmt.Sprintf("changed: `%s` was %s, is %s", field, describe(before), form))
		}
		switch was, is := slices.Contains(old.Required, field), slices.Contains(young.Required, field); {
		case !hadIt || !hasIt || was == is:
		case is:
			lines = append(lines, fmt.Sprintf("changed: `%s` is required", field))
		default:
			lines = append(lines, fmt.Sprintf("changed: `%s` is no longer required", field))
		}
	}
	return lines
}

// describe returns the form of a field: its type, format, default and possible values.
func describe(s spec.Schema) string {
	form := strings.Join(s.Type, "|")
	if ref := reference(s); ref != "" {
		form = short(ref)
	}
	if s.Items != nil && s.Items.Schema != nil {
		form = "list of " + describe(*s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		form = "map of " + describe(*s.AdditionalProperties.Schema)
	}
	if s.Format != "" {
		form += " (" + s.Format + ")"
	}
	if len(s.Enum) > 0 {
		form += fmt.Sprintf(" of %v", s.Enum)
	}
	// An empty default is not one that an object gets: it depends on the generator whether it is written.
	if text := fmt.Sprint(s.Default); s.Default != nil && text != "" && text != "map[]" {
		form += ", by default " + text
	}
	return form
}

// reference returns the name of the type that a schema refers to, itself or, because it has a default, by the only element of allOf.
func reference(s spec.Schema) string {
	if len(s.AllOf) == 1 {
		s = s.AllOf[0]
	}
	return strings.TrimPrefix(s.Ref.String(), "#/components/schemas/")
}

// kinds returns, for each type, the kinds whose objects have it, sorted.
func (all schemas) kinds() map[string][]string {
	kinds := map[string][]string{}
	for name, s := range all {
		if _, isKind := s.Extensions["x-kubernetes-group-version-kind"]; isKind && !strings.HasSuffix(name, "List") && strings.HasPrefix(name, "io.k8s.api.") {
			all.collect(name, name[strings.LastIndex(name, ".")+1:], kinds)
		}
	}
	for name, names := range kinds {
		slices.Sort(names)
		kinds[name] = slices.Compact(names) // of several versions
	}
	return kinds
}

// collect adds a kind to a type and to all that its fields have.
func (all schemas) collect(name, kind string, kinds map[string][]string) {
	s := all[name]
	if s == nil || slices.Contains(kinds[name], kind) {
		return
	}
	kinds[name] = append(kinds[name], kind)
	for _, field := range s.Properties {
		all.collect(reference(field), kind, kinds)
		if field.Items != nil && field.Items.Schema != nil {
			all.collect(reference(*field.Items.Schema), kind, kinds)
		}
		if field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil {
			all.collect(reference(*field.AdditionalProperties.Schema), kind, kinds)
		}
	}
}

// list returns names, of many the first.
func list(names []string) string {
	const most = 6
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most-1], ", "), len(names)-most+1)
	}
	return strings.Join(names, ", ")
}

// short returns the name of a type with its group and version: "core.v1.PodSpec".
func short(name string) string {
	parts := strings.Split(name, ".")
	return strings.Join(parts[max(0, len(parts)-3):], ".")
}

// sentence returns the first sentence of a description.
func sentence(text string) string {
	first, _, _ := strings.Cut(strings.Join(strings.Fields(text), " "), ". ")
	return strings.TrimSuffix(first, ".") + "."
}
