package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// change is one value in one place.
type change struct {
	path  []any
	what  string
	value any
}

// experiment is a request about a valid object with changes.
type experiment struct {
	kind    *objectKind
	verb    string
	changes []change
}

// String returns the experiment in words.
func (e experiment) String() string {
	var text []string
	for _, c := range e.changes {
		value, _ := json.Marshal(c.value)
		if len(value) > 120 {
			value = append(value[:120], "…"...)
		}
		text = append(text, fmt.Sprintf("%s = %s (%s)", written(c.path), value, c.what))
	}
	kind := e.kind.gvk.Kind
	if e.kind.state != nil {
		kind += " (" + e.kind.state.Name + ")"
	}
	return fmt.Sprintf("%s %s %s", e.verb, kind, strings.Join(text, ", "))
}

// The verbs of experiments that begin with an object that is stored.
var changingVerbs = []string{"update", "merge", "strategic", "json", "apply"}

// wholeDepth is how deep objects with all fields are.
const wholeDepth = 5

// creations returns the experiments that create: each value alone in each place, pairs of right
// ones, and everything at once.
func (k *objectKind) creations(random *rand.Rand, pairs int) []experiment {
	var all []experiment
	var right []change
	for _, p := range k.spec() {
		values := variants(p)
		for _, what := range sorted(values) {
			c := change{p.path, what, values[what]}
			all = append(all, experiment{k, "create", []change{c}})
			if what == "right" || strings.HasPrefix(what, "enum ") {
				right = append(right, c)
			}
		}
	}
	for range pairs {
		all = append(all, experiment{k, "create", []change{right[random.IntN(len(right))], right[random.IntN(len(right))]}})
	}
	for _, field := range slices.Sorted(maps.Keys(k.shape.fields)) {
		below := k.shape.fields[field]
		for depth := 1; depth <= wholeDepth && field != "metadata" && below.form == formObject; depth++ {
			all = append(all, experiment{k, "create", []change{{[]any{field}, fmt.Sprint("whole, depth ", depth), whole(field, below, depth)}}})
		}
	}
	return all
}

// alterations returns the experiments that change a stored object: each value in each place, with
// one of the verbs.
func (k *objectKind) alterations(random *rand.Rand) []experiment {
	var all []experiment
	for _, p := range k.spec() {
		values := variants(p)
		for _, what := range sorted(values) {
			verb := changingVerbs[random.IntN(len(changingVerbs))]
			all = append(all, experiment{k, verb, []change{{p.path, what, values[what]}}})
		}
	}
	if k.status {
		for _, p := range places(k.shape.fields["status"], []any{"status"}) {
			values := variants(p)
			for _, what := range sorted(values) {
				all = append(all, experiment{k, "status", []change{{p.path, what, values[what]}}})
			}
		}
	}
	return all
}

// spec returns the places outside of the status that requests may write.
func (k *objectKind) spec() []place {
	return slices.DeleteFunc(places(k.shape, nil), func(p place) bool {
		text := p.String()
		return p.path[0] == "status" || text == "apiVersion" || text == "kind" || strings.HasPrefix(text, "metadata.managedFields")
	})
}

// changed returns an object with the changes.
func (e experiment) changed(object map[string]any) map[string]any {
	for _, c := range e.changes {
		object, _ = put("", e.kind.shape, object, c.path, c.value).(map[string]any)
	}
	return object
}

// carry sends the request of an experiment to a server. stored is the object there, if any.
func (s *apiServer) carry(ctx context.Context, e experiment, stored map[string]any) (objectOutcome, error) {
	collection, object := e.kind.collection, e.kind.collection+"/"+e.kind.name()
	const query = "?dryRun=All&fieldManager=objects"
	switch e.verb {
	case "create":
		return s.ask(ctx, http.MethodPost, collection+query, "application/json", e.changed(e.kind.object()))
	case "store":
		return s.ask(ctx, http.MethodPost, collection, "application/json", e.kind.object())
	case "get":
		return s.ask(ctx, http.MethodGet, object, "", nil)
	case "update":
		return s.ask(ctx, http.MethodPut, object+query, "application/json", e.changed(runtime.DeepCopyJSON(stored)))
	case "again": // without the fields that the server has added
		return s.ask(ctx, http.MethodPut, object+query, "application/json", e.changed(e.kind.object()))
	case "apply":
		return s.ask(ctx, http.MethodPatch, object+query+"&force=true", "application/apply-patch+yaml", e.changed(e.kind.object()))
	case "status":
		return s.ask(ctx, http.MethodPatch, object+"/status"+query, "application/merge-patch+json", e.patch(stored))
	case "merge":
		return s.ask(ctx, http.MethodPatch, object+query, "application/merge-patch+json", e.patch(stored))
	case "strategic":
		return s.ask(ctx, http.MethodPatch, object+query, "application/strategic-merge-patch+json", e.patch(stored))
	case "json":
		return s.ask(ctx, http.MethodPatch, object+query, "application/json-patch+json", e.operations(stored))
	}
	if strings.HasPrefix(e.verb, "/") { // a subresource
		return s.ask(ctx, http.MethodPut, object+e.verb+query, "application/json", e.changed(runtime.DeepCopyJSON(stored)))
	}
	return objectOutcome{}, fmt.Errorf("unknown verb %q", e.verb)
}

// branch is a part of a patch that leads to what changes.
type branch map[string]any

// patch returns the changes as a patch: down to the first list, only what changes.
func (e experiment) patch(stored map[string]any) branch {
	changed := e.changed(runtime.DeepCopyJSON(stored))
	patch := branch{}
	for _, c := range e.changes {
		var value any = changed
		at := patch
		for i, step := range c.path {
			key := step.(string)
			object, _ := value.(map[string]any)
			below, has := object[key]
			_, isMap := below.(map[string]any)
			if i == len(c.path)-1 || !isMap {
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

// operations returns the changes as a JSON patch: each adds the first part of its path that is
// not there.
func (e experiment) operations(stored map[string]any) []any {
	var all []any
	before := runtime.DeepCopyJSON(stored)
	for _, c := range e.changes {
		after := experiment{e.kind, e.verb, []change{c}}.changed(runtime.DeepCopyJSON(before))
		all = append(all, operation(before, after, c.path)...)
		before = after
	}
	return all
}

func operation(was, is any, path []any) []any {
	pointer := ""
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for i, step := range path {
		pointer += "/" + escape.Replace(fmt.Sprint(step))
		var has, had bool
		was, had = below(was, step)
		is, has = below(is, step)
		if !has {
			return []any{map[string]any{"op": "remove", "path": pointer}}
		}
		if !had || i == len(path)-1 {
			return []any{map[string]any{"op": "add", "path": pointer, "value": is}}
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

// ask makes one request and returns its whole outcome.
func (s *apiServer) ask(ctx context.Context, method, path, contentType string, body any) (objectOutcome, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return objectOutcome{}, err
	}
	return s.raw(ctx, method, path, contentType, data)
}

// raw makes one request with a body as it is.
func (s *apiServer) raw(ctx context.Context, method, path, contentType string, data []byte) (objectOutcome, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(data))
	if err != nil {
		return objectOutcome{}, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "differential")
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	response, err := s.client.Do(r)
	if err != nil {
		return objectOutcome{}, err
	}
	defer response.Body.Close()
	if data, err = io.ReadAll(response.Body); err != nil {
		return objectOutcome{}, err
	}
	answer := map[string]any{}
	if err := utiljson.Unmarshal(data, &answer); err != nil {
		return objectOutcome{}, fmt.Errorf("%s %s: %d %q: %w", method, path, response.StatusCode, data, err)
	}
	return outcomeOf(response.StatusCode, response.Header.Values("Warning"), &unstructured.Unstructured{Object: answer}), nil
}
