package protection

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var installed = time.Unix(1_000_000, 0)

// R28: an entry is looked up only if the webhook has checked it: the object is newer than the webhook, or has the
// UID of its configuration.
func TestR28_EntriesThatNobodyCheckedCountAsThere(t *testing.T) {
	checker := Checker{UID: "c", Since: installed}
	for name, test := range map[string]struct {
		checker Checker
		created time.Time
		says    string
		want    bool // looked up
	}{
		"older":                     {checker, installed.Add(-time.Hour), "", false},
		"as old":                    {checker, installed, "", false},
		"in the first minute":       {checker, installed.Add(Margin), "", false},
		"newer":                     {checker, installed.Add(Margin + time.Second), "", true},
		"newer, of another webhook": {checker, installed.Add(Margin + time.Second), "b", true},
		"older, checked":            {checker, installed.Add(-time.Hour), "c", true},
		"older, by another webhook": {checker, installed.Add(-time.Hour), "b", false},
		"older, asking":             {checker, installed.Add(-time.Hour), "?", false},
		"nobody knows how old":      {checker, time.Time{}, "", false},
		"writes escape, newer":      {Checker{UID: "c", Since: installed, Gap: "all of them"}, installed.Add(time.Hour), "", false},
		"writes escape, checked":    {Checker{UID: "c", Since: installed, Gap: "all of them"}, installed, "c", false},
		"no webhook":                {Checker{}, installed, "", false},
		"no webhook, an empty UID":  {Checker{}, time.Time{}, "", false},
	} {
		m := &metav1.ObjectMeta{
			CreationTimestamp: metav1.NewTime(test.created), Labels: map[string]string{Label: "outlives"},
			Annotations: map[string]string{Annotation: list, Checked: test.says},
		}
		p, _ := Of(m)
		p = p.CheckedBy(test.checker, m)
		if p.NeedsLookup() != test.want {
			t.Errorf("%s: looked up %t, want %t", name, p.NeedsLookup(), test.want)
		}
		for _, by := range []Deleter{Request, Cascade} {
			refusal := p.Answer(by, nil)
			if (refusal == nil) != test.want {
				t.Errorf("%s, deleter %d: refused %t, want %t", name, by, refusal != nil, !test.want)
			}
			if refusal == nil {
				continue
			}
			message := refusal.Error(schema.GroupResource{Resource: "configmaps"}, "infra", "db").Error()
			for _, want := range []string{p.Unchecked, "coppice protect --mode=outlives configmaps/db -n infra", "coppice unprotect configmaps/db -n infra"} {
				if !strings.Contains(message, want) {
					t.Errorf("%s: %q does not say %q", name, message, want)
				}
			}
		}
	}
	for _, label := range []string{"always", "cascading", "sometimes"} {
		m := &metav1.ObjectMeta{Labels: map[string]string{Label: label}, Annotations: map[string]string{Annotation: list}}
		if p, _ := Of(m); p.CheckedBy(checker, m).Unchecked != "" {
			t.Errorf("%s: is not looked up anyway", label)
		}
	}
}

// R28: the webhook checks all entries of a write that sets the annotation Checked, so the annotation is always true.
func TestR28_WhoSaysCheckedHasAllChecked(t *testing.T) {
	object := func(label, annotation, says string) *metav1.ObjectMeta {
		m := &metav1.ObjectMeta{Labels: map[string]string{Label: label}, Annotations: map[string]string{Annotation: annotation}}
		if says != "" {
			m.Annotations[Checked] = says
		}
		return m
	}
	one, err := FormatOutlives([]Outlived{shop})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		before, after *metav1.ObjectMeta
		want          int
	}{
		"create":                       {nil, object("outlives", list, "c"), 2},
		"nothing":                      {object("outlives", list, "c"), object("outlives", list, "c"), 0},
		"say so":                       {object("outlives", list, ""), object("outlives", list, "c"), 2},
		"say it otherwise":             {object("outlives", list, "b"), object("outlives", list, "c"), 2},
		"say so with another entry":    {object("outlives", one, ""), object("outlives", list, "c"), 2},
		"another entry":                {object("outlives", one, "c"), object("outlives", list, "c"), 1},
		"say so no longer":             {object("outlives", list, "c"), object("outlives", list, ""), 0},
		"say so before it counts":      {object("always", list, ""), object("always", list, "c"), 0},
		"let it count, having said so": {object("always", list, "c"), object("outlives", list, "c"), 2},
	} {
		var before metav1.Object
		if test.before != nil {
			before = test.before
		}
		if got := Added(before, test.after); len(got) != test.want {
			t.Errorf("%s: %v are checked, want %d", name, got, test.want)
		}
	}
}

// The warning explains how to have entries checked, but not before all API servers call the webhook.
func TestWarningExplainsHowEntriesAreChecked(t *testing.T) {
	checker := Checker{UID: "c", Since: installed}
	old := New("outlives", list)
	old.Unchecked = "old"
	for name, test := range map[string]struct {
		checker Checker
		p       Protection
		now     time.Time
		warns   bool
		value   string
	}{
		"looked up":     {checker, New("outlives", list), installed.Add(time.Hour), false, ""},
		"old":           {checker, old, installed.Add(time.Hour), true, "c"},
		"just now":      {checker, old, installed.Add(Margin - 1), true, ""},
		"writes escape": {Checker{UID: "c", Since: installed, Gap: "old"}, old, installed.Add(time.Hour), true, ""},
		"no webhook":    {Checker{}, old, installed.Add(time.Hour), true, ""},
	} {
		warning := test.checker.Warning(test.p, test.now)
		if (warning != "") != test.warns || CheckedValue(warning) != test.value || len(warning) > 255 {
			t.Errorf("%s: %q, want a warning %t, value %q", name, warning, test.warns, test.value)
		}
	}
}
