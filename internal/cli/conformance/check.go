// Package conformance checks whether an API server, with the collector and the namespace controller
// that run there, deletes objects as docs/semantics.md says.
//
// A [Check] creates objects in a namespace of its own, deletes some, and asserts the fate of the
// others, by means of package probe. [Checks] returns all checks, in turns: the checks of one turn
// can run at the same time. A check's name begins with its IDs in test/conformance/matrix.txt, and
// the check lists the rules that it tests.
//
// [Run] runs checks for coppice conformance, against a server that the user names, and its [Report]
// has an outcome for each check and for each rule. In test/conformance the same checks run under
// go test, against our own server and others. Tests that disturb the collector are only there,
// since they need the collector in the process.
package conformance

import (
	"regexp"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// Check is a test of one or more rules.
type Check struct {
	// Name begins with the check's IDs in the matrix.
	Name string
	// Rules are the codes of the rules of docs/semantics.md that the check tests, separated by spaces.
	Rules string
	Needs Needs
	Run   func(w *probe.Space)
}

// Needs are features of the server that a check needs, combined with |.
type Needs uint8

const (
	// Collector is a garbage collector.
	Collector Needs = 1 << iota
	// NamespaceController empties terminating namespaces.
	NamespaceController
	// CustomResources are CustomResourceDefinitions.
	CustomResources
	// AnyOwners is an admission that accepts owner references which ours refuses by default: to
	// kinds that are not served, to the object itself, from cluster-scoped objects to namespaced
	// ones, and thousands of references in one object.
	AnyOwners
	// Ours is a server of coppice up: the check tests a rule that Kubernetes does not have.
	Ours
)

// Turn is a set of checks that can run at the same time.
type Turn struct {
	// Alone says that the checks cannot run at the same time, because each disturbs the others.
	Alone  bool
	Checks []Check
}

// Checks returns all checks, in consecutive turns.
func Checks() []Turn {
	return []Turn{
		{Checks: slices.Concat(
			deletions, policies(), background, writes, graph, foreground, notBlocking(), ways(), cycles, rings(),
			orphaned, orphanedByDefault(), stressing(), unseen, claims, inTwoVersions(), alternates(), custom, manyFakeOwners, protected[:3],
		)},
		// A kind that appears or disappears during these checks would hold every namespace for a moment.
		{Checks: slices.Concat(
			namespaceRequests, eitherList(), deletionOptions(), namespaceAdmission, terminating, conditions, protected[3:],
		)},
		// An unreadable kind, or a group that fails discovery, holds all namespaces.
		{Alone: true, Checks: brokenKinds},
	}
}

// code matches an ID of the matrix, or of a hazard.
var code = regexp.MustCompile(`\b(?:[A-Z]{2}-[0-9]{2}|H[0-9]+[ab]?)\b`)

// IDs returns the IDs of the matrix in the name of a check.
func (c Check) IDs() []string { return code.FindAllString(c.Name, -1) }

// RuleCodes returns the codes of the rules of docs/semantics.md that the check tests.
func (c Check) RuleCodes() []string { return strings.Fields(c.Rules) }

// IsFor reports whether a check tests a rule, which may also be an ID of the matrix.
func (c Check) IsFor(rule string) bool {
	return slices.Contains(c.RuleCodes(), rule) || slices.Contains(c.IDs(), rule)
}
