package differential

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/difference"
)

// mistake is a request that is wrong in one or two ways: which of them is answered, and how, is compared.
type mistake struct {
	method, path, contentType string
	body                      string // JSON, with NS for the namespace
}

const (
	asJSON      = "application/json"
	asMerge     = "application/merge-patch+json"
	asStrategic = "application/strategic-merge-patch+json"
	asOperation = "application/json-patch+json"
	asApply     = "application/apply-patch+yaml"
)

// mistakes returns requests about two objects that exist, maps/there and pods/there, and others that do not.
func mistakes() []mistake {
	const maps, pods = "/api/v1/namespaces/NS/configmaps", "/api/v1/namespaces/NS/pods"
	configMap := func(meta, rest string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + meta + `}` + rest + `}`
	}
	named := configMap(`"name":"there"`, "")
	all := []mistake{
		// Creation.
		{http.MethodPost, maps, asJSON, named},
		{http.MethodPost, maps, asJSON, configMap(`"name":"there"`, `,"data":{"/":"x"}`)},
		{http.MethodPost, maps, asJSON, configMap(`"name":"There"`, "")},
		{http.MethodPost, maps, asJSON, configMap(``, "")},
		{http.MethodPost, maps, asJSON, configMap(`"name":"new","namespace":"other"`, "")},
		{http.MethodPost, maps, asJSON, configMap(`"name":"new","resourceVersion":"1"`, "")},
		{http.MethodPost, maps, asJSON, configMap(`"name":"new","uid":"a"`, "")},
		{http.MethodPost, maps, asJSON, configMap(`"name":"new","generation":7,"selfLink":"x","creationTimestamp":"2020-01-02T03:04:05Z","deletionTimestamp":"2020-01-02T03:04:05Z","deletionGracePeriodSeconds":3`, "")},
		{http.MethodPost, maps, asJSON, configMap(`"generateName":"UPPER"`, "")},
		{http.MethodPost, maps, asJSON, configMap(`"generateName":"`+strings.Repeat("a", 80)+`"`, "")},
		{http.MethodPost, "/api/v1/namespaces/missing/configmaps", asJSON, configMap(`"name":"new"`, "")},
		{http.MethodPost, "/api/v1/namespaces/missing/configmaps", asJSON, configMap(`"name":"New"`, "")},
		{http.MethodPost, "/api/v1/configmaps", asJSON, configMap(`"name":"new","namespace":"NS"`, "")},
		{http.MethodPost, maps + "/there", asJSON, named},
		{http.MethodPost, maps, asJSON, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"new"}}`},
		{http.MethodPost, maps, asJSON, `{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"new"}}`},
		{http.MethodPost, maps, asJSON, `{"metadata":{"name":"new"}}`},
		{http.MethodPost, maps, asJSON, `{"kind":"ConfigMap"`},
		{http.MethodPost, maps, asJSON, `[]`},
		{http.MethodPost, maps, asJSON, ``},
		{http.MethodPost, maps, "text/plain", named},
		{http.MethodPost, maps, "", named},
		// Replacement.
		{http.MethodPut, maps + "/missing", asJSON, configMap(`"name":"missing"`, "")},
		{http.MethodPut, maps + "/missing", asJSON, configMap(`"name":"missing"`, `,"data":{"/":"x"}`)},
		{http.MethodPut, maps + "/missing", asJSON, configMap(`"name":"missing","resourceVersion":"1"`, "")},
		{http.MethodPut, maps + "/there", asJSON, configMap(`"name":"other"`, "")},
		{http.MethodPut, maps + "/there", asJSON, configMap(``, "")},
		{http.MethodPut, maps + "/there", asJSON, configMap(`"name":"there","namespace":"other"`, "")},
		{http.MethodPut, maps + "/there", asJSON, configMap(`"name":"there","resourceVersion":"1"`, "")},
		{http.MethodPut, maps + "/there", asJSON, configMap(`"name":"there","resourceVersion":"x"`, "")},
		{http.MethodPut, maps + "/there", asJSON, configMap(`"name":"there","uid":"a"`, "")},
		{http.MethodPut, maps + "/there", asJSON, configMap(`"name":"there","uid":"a","resourceVersion":"1"`, `,"data":{"/":"x"}`)},
		{http.MethodPut, maps, asJSON, named},
		{http.MethodPut, pods + "/missing/status", asJSON, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"missing"}}`},
		// Patches.
		{http.MethodPatch, maps + "/missing", asMerge, `{"data":{"a":"b"}}`},
		{http.MethodPatch, maps + "/missing", asMerge, `{`},
		{http.MethodPatch, maps + "/missing", asApply, `{`},
		{http.MethodPatch, maps + "/there", asMerge, `{`},
		{http.MethodPatch, maps + "/there", asMerge, `[]`},
		{http.MethodPatch, maps + "/there", asMerge, `{"metadata":{"name":"other"}}`},
		{http.MethodPatch, maps + "/there", asMerge, `{"metadata":{"namespace":"other"}}`},
		{http.MethodPatch, maps + "/there", asMerge, `{"metadata":{"uid":"a"}}`},
		{http.MethodPatch, maps + "/there", asMerge, `{"metadata":{"resourceVersion":"1"}}`},
		{http.MethodPatch, maps + "/there", asMerge, `{"metadata":{"resourceVersion":"x"}}`},
		{http.MethodPatch, maps + "/there", asMerge, `{"metadata":{"creationTimestamp":null,"managedFields":null}}`},
		{http.MethodPatch, maps + "/there", asMerge, `{"kind":"Secret"}`},
		{http.MethodPatch, maps + "/there", asMerge, `{"apiVersion":"v2"}`},
		{http.MethodPatch, maps + "/there", asStrategic, `{"metadata":{"$patch":"bogus"}}`},
		{http.MethodPatch, maps + "/there", asOperation, `[{"op":"test","path":"/data/a","value":"other"}]`},
		{http.MethodPatch, maps + "/there", asOperation, `[{"op":"remove","path":"/data/missing"}]`},
		{http.MethodPatch, maps + "/there", asOperation, `[{"op":"bogus","path":"/data/a"}]`},
		{http.MethodPatch, maps + "/there", asOperation, `{"op":"remove"}`},
		{http.MethodPatch, maps + "/there", asOperation, `[` + strings.TrimSuffix(strings.Repeat(`{"op":"add","path":"/data/a","value":"b"},`, 10_001), ",") + `]`},
		{http.MethodPatch, maps + "/there", asJSON, `{}`},
		{http.MethodPatch, maps + "/there", asApply, named},
		{http.MethodPatch, maps + "/there?fieldManager=m", asApply, configMap(`"name":"other"`, "")},
		{http.MethodPatch, maps + "/there?fieldManager=m", asApply, configMap(`"name":"there","managedFields":[{"manager":"m"}]`, "")},
		{http.MethodPatch, maps + "/there?fieldManager=m", asApply, configMap(`"name":"there","resourceVersion":"1"`, "")},
		{http.MethodPatch, maps + "/there?fieldManager=m", asApply, configMap(`"name":"there"`, `,"data":{"a":"conflict"}`)},
		{http.MethodPatch, maps + "/there?fieldManager=m", asApply, `{"data":{"a":"b"}}`},
		{http.MethodPatch, maps + "/missing?fieldManager=m", asApply, configMap(`"name":"missing","uid":"a"`, "")},
		{http.MethodPatch, maps + "/missing?fieldManager=m", asApply, configMap(`"name":"missing","resourceVersion":"1"`, "")},
		{http.MethodPatch, maps + "/there?fieldManager=m&force=yes", asApply, named},
		{http.MethodPatch, maps + "/there?force=true", asMerge, `{}`},
		{http.MethodPatch, pods + "/missing/status?fieldManager=m", asApply, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"missing"}}`},
		// Options.
		{http.MethodPost, maps + "?dryRun=Some", asJSON, configMap(`"name":"new"`, "")},
		{http.MethodPost, maps + "?fieldManager=" + strings.Repeat("a", 129), asJSON, configMap(`"name":"new"`, "")},
		{http.MethodPost, maps + "?fieldValidation=Bogus", asJSON, configMap(`"name":"new"`, "")},
		{http.MethodPut, maps + "/there?dryRun=Some", asJSON, named},
		{http.MethodDelete, maps + "/there?dryRun=Some", "", ""},
		{http.MethodDelete, maps + "/there?gracePeriodSeconds=x", "", ""},
		{http.MethodDelete, maps + "/there?propagationPolicy=Bogus", "", ""},
		{http.MethodDelete, maps + "/missing", "", ""},
		{http.MethodDelete, maps + "/there", asJSON, `{"preconditions":{"uid":"a"}}`},
		{http.MethodDelete, maps + "/there", asJSON, `{"kind":"ConfigMap","apiVersion":"v1"}`},
		{http.MethodDelete, maps + "/there", asJSON, `{`},
		{http.MethodGet, maps + "/missing", "", ""},
		{http.MethodGet, maps + "?limit=x", "", ""},
		{http.MethodGet, maps + "?labelSelector=a%20in", "", ""},
		{http.MethodGet, maps + "?fieldSelector=spec.a%3Db", "", ""},
		{http.MethodGet, maps + "?continue=x", "", ""},
		{http.MethodGet, maps + "?resourceVersion=x", "", ""},
		{http.MethodGet, maps + "?resourceVersionMatch=Exact", "", ""},
		{http.MethodGet, maps + "?resourceVersion=1&resourceVersionMatch=Bogus", "", ""},
		{http.MethodGet, maps + "?sendInitialEvents=true", "", ""},
		{http.MethodGet, "/api/v1/namespaces/NS/bogus", "", ""},
		{http.MethodGet, pods + "/there/bogus", "", ""},
		{http.MethodGet, pods + "/there/scale", "", ""},
		// Subresources.
		{http.MethodPost, pods + "/missing/binding", asJSON, `{"apiVersion":"v1","kind":"Binding","target":{"kind":"Node","name":"a"}}`},
		{http.MethodPost, pods + "/there/binding", asJSON, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"other"},"target":{"kind":"Node","name":"a"}}`},
		{http.MethodPost, pods + "/there/binding", asJSON, `{"apiVersion":"v1","kind":"Binding","target":{"kind":"Pod","name":"a"}}`},
		{http.MethodPost, pods + "/there/binding", asJSON, `{"apiVersion":"v1","kind":"Binding","target":{}}`},
		{http.MethodPost, pods + "/missing/eviction", asJSON, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"missing"}}`},
		{http.MethodPost, pods + "/there/eviction", asJSON, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"other"}}`},
		{http.MethodPost, pods + "/there/eviction", asJSON, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"there"}}`},
		{http.MethodPut, "/apis/apps/v1/namespaces/NS/deployments/missing/scale", asJSON, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"missing"}}`},
	}
	for _, level := range []string{"Strict", "Warn", "Ignore", ""} {
		const wrong = `"name":"new","bogus":1,"labels":{"a":"b","a":"c"}`
		all = append(all,
			mistake{http.MethodPost, maps + "?dryRun=All&fieldValidation=" + level, asJSON, configMap(wrong, `,"other":{}`)},
			mistake{http.MethodPut, maps + "/there?dryRun=All&fieldValidation=" + level, asJSON, configMap(`"name":"there","bogus":1`, `,"other":{}`)},
			mistake{http.MethodPatch, maps + "/there?dryRun=All&fieldValidation=" + level, asMerge, `{"bogus":1,"data":{"a":"b","a":"c"}}`},
			mistake{http.MethodPatch, maps + "/there?dryRun=All&fieldValidation=" + level, asStrategic, `{"bogus":1,"metadata":{"bogus":1}}`},
			mistake{http.MethodPatch, maps + "/there?dryRun=All&fieldManager=m&fieldValidation=" + level, asApply, configMap(`"name":"there","bogus":1`, ``)},
		)
	}
	return all
}

// declaredMistakes are differences between libraries, or on purpose: 1.37 checks a merge patch before the object,
// upstream names its internal types, and the storage reports the stored values to a delete with a precondition.
var declaredMistakes = regexp.MustCompile(`(ours 400 BadRequest|message: ours) "invalid JSON patch", theirs |unknown conversion", theirs |` +
	`message: ours "Operation cannot be fulfilled on configmaps .*Precondition failed: UID in precondition`)

// madeUp are the characters that a server adds to a prefix.
var madeUp = regexp.MustCompile(`(UPPER|a{58})[a-z0-9]{5}\b`)

// TestWrongRequestsAreAnsweredAsUpstream compares the answers to requests that are wrong: code, reason, message, causes, warnings.
func TestWrongRequestsAreAnsweredAsUpstream(t *testing.T) {
	pair := servers(t)
	namespace := fmt.Sprintf("mistakes-%d", os.Getpid())
	for _, s := range pair {
		if err := s.prepare(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
		for collection, object := range map[string]string{
			"configmaps": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"there"},"data":{"a":"b"}}`,
			"pods":       `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"there"},"spec":{"containers":[{"name":"a","image":"a"}]}}`,
		} {
			if made, err := s.raw(t.Context(), http.MethodPost, "/api/v1/namespaces/"+namespace+"/"+collection, asJSON, []byte(object)); err != nil || made.Code != http.StatusCreated {
				t.Fatalf("%s: create: %+v %v", s.name, made, err)
			}
		}
	}
	for _, m := range mistakes() {
		var outcomes [2]difference.Outcome
		for i, s := range pair {
			var err error
			in := strings.NewReplacer("NS", namespace)
			if outcomes[i], err = s.raw(t.Context(), m.method, in.Replace(m.path), m.contentType, []byte(in.Replace(m.body))); err != nil {
				t.Fatalf("%s: %v: %v", s.name, m, err)
			}
			for j := range outcomes[i].Causes {
				outcomes[i].Causes[j].Message = madeUp.ReplaceAllString(outcomes[i].Causes[j].Message, "$1(made up)")
			}
			outcomes[i].Message = madeUp.ReplaceAllString(outcomes[i].Message, "$1(made up)")
			if meta, ok := nested(outcomes[i].Object, "metadata"); ok {
				meta["name"] = madeUp.ReplaceAllString(fmt.Sprint(meta["name"]), "$1(made up)")
			}
		}
		for _, line := range difference.Lines(outcomes[0], outcomes[1]) {
			if declaredMistakes.MatchString(line) {
				continue
			}
			t.Errorf("%s %s %.200s\n  %s", m.method, m.path, m.body, line)
		}
	}
}
