package builtin

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/testing/variation"
)

// TestMutations plays testdata/mutations, a file for each kind: a valid object, and the
// errors when one field of it is changed. The commands are
//
//	base      an object: the errors, or ok. It is the base of the following commands
//	create    lines "path = value": each alone is applied to the base, and the result
//	          is created. The outcome is the line, and the errors or ok
//	update    likewise, but the result is sent to replace the base
//
// A value is YAML in one line, or the word absent. A path is as in errors; in
// brackets is the index of an element, or the key of one in a map.
func TestMutations(t *testing.T) {
	schemes := NewSchemes()
	datadriven.Walk(t, mutations, func(t *testing.T, path string) {
		m := mutator{t: t, schemes: schemes}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			m.t = t
			return m.play(d)
		})
	})
}

// TestEveryKindHasMutations checks that each kind has a valid object and a change to it that is refused on create.
// Without such a test, the whole validation of a kind might be missing.
func TestEveryKindHasMutations(t *testing.T) {
	schemes := NewSchemes()
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		m := mutator{t: t, schemes: schemes}
		datadriven.RunTest(t, filepath.Join(mutations, strings.ToLower(resource.Kind)+".txt"), func(t *testing.T, d *datadriven.TestData) string {
			m.t = t
			m.play(d)
			return d.Expected // TestMutations compares it
		})
		if m.acceptedBases == 0 {
			t.Error("no base is accepted")
		}
		if m.refusedCreates == 0 {
			t.Error("no change is refused on create")
		}
	})
}

const mutations = "testdata/mutations"

// mutator plays one file.
type mutator struct {
	t                             *testing.T
	schemes                       registry.Schemes
	base                          string
	acceptedBases, refusedCreates int
}

func (m *mutator) play(d *datadriven.TestData) string {
	m.t.Helper()
	switch d.Cmd {
	case "base":
		m.base = d.Input
		_, _, err := create(m.t, m.schemes, m.base)
		if err == nil {
			m.acceptedBases++
		}
		return causes(err)
	case "create":
		return eachMutation(m.t, m.base, d.Input, func(changed string) string {
			_, _, err := create(m.t, m.schemes, changed)
			if err != nil {
				m.refusedCreates++
			}
			return causes(err)
		})
	case "update":
		return eachMutation(m.t, m.base, d.Input, func(changed string) string {
			return update(m.t, m.schemes, "main", []string{m.base, changed})
		})
	}
	m.t.Fatalf("unknown command %q", d.Cmd)
	return ""
}

func eachMutation(t *testing.T, base, lines string, outcome func(changed string) string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		changed, err := variation.Mutate(base, line)
		if err != nil {
			t.Fatal(err)
		}
		said := strings.ReplaceAll(strings.TrimSpace(outcome(changed)), "\n", "\n  ")
		fmt.Fprintf(&out, "%s\n  %s\n", line, said)
	}
	return out.String()
}
