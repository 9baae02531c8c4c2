package difference

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/testing/variation"
)

// about returns an experiment with a kind.
func about(kind, verb string, path ...any) variation.Experiment {
	e := variation.Experiment{Kind: &variation.Kind{GVK: schema.GroupVersionKind{Version: "v1", Kind: kind}}, Verb: verb}
	if len(path) > 0 {
		e.Changes = []variation.Change{{Path: path}}
	}
	return e
}

func declarationOf(t *testing.T, fields string) *Declaration {
	t.Helper()
	all, err := parseDeclarations([]byte("- {reason: r, section: s, words: w, " + fields + "}"))
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

func TestDeclarationPermitsWhatAllItsPatternsMatch(t *testing.T) {
	const (
		refused = "Pod: only theirs: (the other accepts) FieldValueInvalid spec.a[].b: Invalid value: 1"
		has     = "Pod: only ours has spec.a[].b = map[]"
		differs = "Pod: spec.a[].b: ours 1, theirs 2"
		message = `Pod: message of FieldValueInvalid spec.a[].b: ours "1", theirs "2"`
	)
	for _, c := range []struct {
		fields     string
		e          variation.Experiment
		difference string
		want       bool
	}{
		{`path: 'spec\.a\[\]\.b'`, about("Job", "create"), refused, true},
		{`path: 'spec\.a\[\]\.b'`, about("Job", "create"), has, true},
		{`path: 'spec\.a\[\]\.b'`, about("Job", "create"), differs, true},
		{`path: 'spec\.a\[\]\.b'`, about("Job", "create"), message, true},
		{`path: 'spec\.a\[\]'`, about("Job", "create"), refused, false},
		{`path: '.*', kind: Pod`, about("Job", "create"), refused, true},
		{`path: '.*', kind: Job`, about("Job", "create"), refused, false},
		{`path: '.*', object: Job`, about("Job", "create"), refused, true},
		{`path: '.*', object: Pod`, about("Job", "create"), refused, false},
		{`difference: 'only theirs: .* 1'`, about("Job", "create"), refused, true},
		{`difference: 'only theirs:'`, about("Job", "create"), refused, false},
		{`path: '.*', verbs: [create]`, about("Job", "create"), refused, true},
		{`path: '.*', verbs: [change]`, about("Job", "create"), refused, false},
		{`path: '.*', verbs: [change]`, about("Job", "/status"), refused, true},
		{`path: '.*', verbs: [update, /status]`, about("Job", "/status"), refused, true},
		{`path: '.*', changes: 'spec\.c\[\]'`, about("Job", "create", "spec", "c", 0), refused, true},
		{`path: '.*', changes: 'spec\.c'`, about("Job", "create", "spec", "c", 0), refused, false},
		{`path: '.*', changes: '.*'`, about("Job", "create"), refused, false},
	} {
		if got := declarationOf(t, c.fields).permits(c.e, c.difference); got != c.want {
			t.Errorf("{%s} permits %q of %s %s: %t", c.fields, c.difference, c.e.Verb, c.e.Kind.GVK.Kind, got)
		}
	}
}

func TestObjectsOfADeclaration(t *testing.T) {
	kinds := []string{"DaemonSet", "Pod", "Service"}
	for fields, want := range map[string][]string{
		`path: p`:                               kinds,
		`path: p, kind: Service`:                {"Service"},
		`path: p, kind: Pod|Service`:            kinds,
		`path: p, kind: Pod, object: DaemonSet`: {"DaemonSet"},
		`path: p, kind: Servise`:                nil,
	} {
		if got := declarationOf(t, fields).Objects(kinds); !slices.Equal(got, want) {
			t.Errorf("{%s}: %v, want %v", fields, got, want)
		}
	}
}

func TestIncompleteDeclarationsAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		`- {section: s, words: w, path: p}`:                          "required",
		`- {reason: r, words: w, path: p}`:                           "required",
		`- {reason: r, section: s, path: p}`:                         "required",
		`- {reason: r, section: s, words: w}`:                        "path or difference",
		`- {reason: r, section: s, words: w, path: "("}`:             "missing closing",
		`- {reason: r, section: s, words: w, path: p, seen: x}`:      "seen",
		`- {reason: r, section: s, words: w, path: p, pattern: "x"}`: "unknown field",
	} {
		if _, err := parseDeclarations([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestUnusedAndUndocumentedDeclarationsAreFound(t *testing.T) {
	d := declarationOf(t, `path: spec\.a`)
	all := &Declarations{all: []*Declaration{d}, used: map[*Declaration]int{}}
	if all.Reason(about("Job", "create"), "Job: only ours has spec.b = 1") != "" || len(all.Unused()) != 1 {
		t.Error("a declaration of another field is used")
	}
	d.Pairs = true
	if len(all.Unused()) != 0 {
		t.Error("a declaration of random pairs is missed")
	}
	d.Pairs = false
	if all.Reason(about("Job", "create"), "Job: only ours has spec.a = 1") != "r" || len(all.Unused()) != 0 {
		t.Error("the declaration is not used")
	}
	d.Section, d.Words = "What is not there", "two lines"
	for document, want := range map[string]int{
		"# A\n\n### What is not there\n\nIn two\n  lines.\n": 0,
		"### What is there\n\nIn two lines.\n":               1,
		"### What is not there\n\n## B\n\ntwo lines\n":       1,
	} {
		if got := len(all.Undocumented(document)); got != want {
			t.Errorf("%q: %d undocumented, want %d", document, got, want)
		}
	}
}
