package api

import (
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// object is a JSON object.
type object = map[string]any

// openapi answers with an OpenAPI 3 document of all paths. The schemas are generated from the types of the
// answers, so that they always agree.
func (h *handler) openapi(w http.ResponseWriter, _ *http.Request, _ *Sight) error {
	schemas := object{}
	answer := func(contentType string, value any) object {
		return object{"200": object{"description": "if the caller may list it", "content": object{
			contentType: object{"schema": schemaOf(reflect.TypeOf(value), schemas)},
		}}}
	}
	paths := object{}
	for path, is := range map[string]struct {
		summary, contentType string
		value                any
	}{
		Owners:     {"The named objects, and their direct and indirect owners.", "application/json", Graph{}},
		Dependents: {"The named objects, and their direct and indirect dependents.", "application/json", Graph{}},
		Component:  {"All objects that are connected with the named ones; without names, all owners and dependents.", "application/json", Graph{}},
		Preview:    {"The outcome of a DELETE of the named objects.", "application/json", preview.Report{}},
		Explain:    {"The causes that keep the named objects from being removed.", "application/json", Explanations{}},
		Deletions:  {"Objects that are being deleted, grouped by the cause of waiting, stuck ones first.", "application/json", DeletionList{}},
		Records:    {"The latest changes that the collector made, with their reasons.", "application/json", RecordList{}},
		Status:     {"The state of the collector.", "application/json", SeenStatus{}},
		Resume:     {"Resumes the deletions of a kind that the breaker has paused. The caller needs the right to delete collections of the kind in all namespaces.", "application/json", object{}},
		Watch:      {"New records, and the named objects when they change, as server-sent events.", "text/event-stream", ""},
		Stories:    {"Deletions, the latest first: their users, the number of removed objects, and the causes of waiting.", "application/json", StoryList{}},

		Protected: {"Objects that are protected from deletion, and their modes.", "application/json", ProtectedList{}},

		Stories + "/watch":      {"The same as server-sent events: story when a deletion changes, removed when its record has expired.", "text/event-stream", ""},
		Stories + "/{id}":       {"One deletion with its objects; with ?format=text as text.", "application/json", Story{}},
		Stories + "/{id}/watch": {"The same as server-sent events: the story, and its changed objects.", "text/event-stream", ""},

		OpenAPI: {"This document.", "application/json", object{}},
	} {
		responses := answer(is.contentType, is.value)
		for code, description := range map[string]string{
			"400": "The request is invalid.", "401": "The caller is not authenticated.", "403": "The caller may not list such objects.",
			"404": "The object is unknown, or the caller may not list it.", "413": "The answer would exceed 64 MiB.", "429": "Too many requests of the caller are being answered; Retry-After says when to ask again.",
			"502": "The API server does not answer questions about the caller.",
			"503": "No collector works in this process.",
		} {
			responses[code] = object{"description": description}
		}
		operation := object{"summary": is.summary, "responses": responses}
		switch isStories := strings.HasPrefix(path, Stories); {
		case strings.Contains(path, "{id}"):
			operation["parameters"] = []object{{"name": "id", "in": "path", "required": true, "schema": object{"type": "string"}, "description": "The UID of the object of the request."}}
		case path != Status && path != OpenAPI && path != Deletions && path != Protected && !isStories:
			operation["parameters"] = parameters(path)
		}
		method := "get"
		if path == Resume {
			method = "post"
		}
		paths[path] = object{method: operation}
	}
	return h.writeJSON(w, object{
		"openapi": "3.0.3",
		"info":    object{"title": "Coppice", "version": "v1", "description": "Owners and dependents, deletions, and the state of the garbage collector."},
		"paths":   paths,
		"components": object{
			"schemas":         schemas,
			"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}},
		},
		"security": []object{{"bearer": []string{}}},
	})
}

func parameters(path string) []object {
	if path == Resume {
		return []object{{"name": "kind", "in": "query", "required": true, "schema": object{"type": "string"}, "description": "KIND.GROUP, such as ReplicaSet.apps."}}
	}
	list := object{"type": "array", "items": object{"type": "string"}}
	text := object{"type": "string"}
	all := []object{
		{"name": "object", "in": "query", "schema": list, "description": "RESOURCE.GROUP/NAMESPACE/NAME, or RESOURCE.GROUP/NAME; resources as kubectl spells them."},
		{"name": "uid", "in": "query", "schema": list, "description": "The UID of an object."},
		{"name": "namespace", "in": "query", "schema": text, "description": "The namespace of objects that are named without a namespace."},
	}
	switch path {
	case Preview:
		all = append(all,
			object{"name": "propagationPolicy", "in": "query", "schema": text, "description": "As in DeleteOptions: Background, Foreground or Orphan."},
			object{"name": "assumeReleased", "in": "query", "schema": object{"type": "boolean"}, "description": "Assume that controllers remove all finalizers."},
		)
	case Watch:
		all = append(all, object{"name": "after", "in": "query", "schema": object{"type": "integer"}, "description": "The number of the last record that the caller has."})
	}
	return all
}

// schemaOf returns the JSON schema of a type. It adds the schemas of structs to all, and refers to them.
func schemaOf(t reflect.Type, all object) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[time.Duration]():
		return object{"type": "integer", "format": "int64", "description": "nanoseconds"}
	}
	switch t.Kind() { // no answer has other kinds
	case reflect.Pointer:
		return schemaOf(t.Elem(), all)
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem(), all)}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Struct:
		if all[t.Name()] == nil {
			schema := object{"type": "object"}
			all[t.Name()] = schema
			schema["properties"] = properties(t, all)
		}
		return object{"$ref": "#/components/schemas/" + t.Name()}
	default:
		return object{"type": "object"}
	}
}

// properties returns the schemas of the fields of a struct, including fields of embedded structs.
func properties(t reflect.Type, all object) object {
	fields := object{}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		fields[name] = schemaOf(f.Type, all)
	}
	return fields
}
