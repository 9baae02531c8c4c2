package conformance

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/docs"
	"github.com/coppice-dev/coppice/internal/cli/conformance"
	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// TestChecksOfTheCommandPass runs what coppice conformance runs, in the same turns.
func TestChecksOfTheCommandPass(t *testing.T) {
	for i, turn := range conformance.Checks() {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			for _, check := range turn.Checks {
				t.Run(check.Name, func(t *testing.T) {
					if !turn.Alone {
						t.Parallel()
					}
					record(t)
					if check.Needs&conformance.Ours != 0 && os.Getenv(kubeconfigVariable) != "" {
						t.Skip("this is about our server")
					}
					a := checked
					if check.Needs&conformance.AnyOwners != 0 {
						a = unchecked
					}
					check.Run(probe.NewSpace(t, shared(t, a).Server))
				})
			}
		})
	}
}

// TestChecksAreNamed: names differ, and begin with the IDs of the matrix.
func TestChecksAreNamed(t *testing.T) {
	named := map[string]bool{}
	for _, turn := range conformance.Checks() {
		for _, check := range turn.Checks {
			ids := check.IDs()
			if named[check.Name] || len(ids) == 0 || !strings.HasPrefix(check.Name, ids[0]+" ") {
				t.Errorf("%q is no name of a check, or one of two", check.Name)
			}
			named[check.Name] = true
			for _, id := range ids {
				if behaviour.FindString(id) != id {
					t.Errorf("%q: %s is no ID", check.Name, id)
				}
			}
		}
	}
}

// TestChecksQuoteTheDocument looks for the rules of checks in docs/semantics.md, and for the
// sentences that the differences from upstream quote.
func TestChecksQuoteTheDocument(t *testing.T) {
	rules := conformance.Rules()
	if len(rules) < 40 {
		t.Errorf("docs/semantics.md has %d rules and invariants", len(rules))
	}
	flat := strings.Join(strings.Fields(docs.Semantics), " ")
	for _, d := range conformance.Differences() {
		if !strings.Contains(flat, d.Ours) {
			t.Errorf("docs/semantics.md does not say: %s", d.Ours)
		}
		for code := range strings.FieldsSeq(d.Rules) {
			if !slices.ContainsFunc(rules, func(r conformance.Rule) bool { return r.Code == code }) {
				t.Errorf("there is no rule %s", code)
			}
		}
	}
	for _, turn := range conformance.Checks() {
		for _, check := range turn.Checks {
			for _, code := range check.RuleCodes() {
				if !slices.ContainsFunc(rules, func(r conformance.Rule) bool { return r.Code == code }) {
					t.Errorf("%s: there is no rule %s", check.Name, code)
				}
			}
		}
	}
}
