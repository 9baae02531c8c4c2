// Package conformance checks whether an API server, with the collector and the namespace controller
// that run there, deletes objects as docs/semantics.md says.
//
// A [Check] creates objects in a namespace of its own, deletes some, and states what has to become
// of the others; package probe is the vocabulary in which it does. [Checks] has all of them, in
// turns: those of one turn can run at the same time. A check's name begins with the IDs of
// test/conformance/matrix.txt, and it names the rules that it stands for.
//
// [Run] runs checks against a server that a user names, for coppice conformance, and its [Report]
// has an outcome for each check and for each rule. In test/conformance the same checks run under
// go test, against our own server and others; what disturbs a collector is tested there alone,
// since it needs the collector in the process.
package conformance

import (
	"regexp"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// Check is one check.
type Check struct {
	// Name begins with the IDs of the matrix.
	Name string
	// Rules are the codes of docs/semantics.md that the check stands for, separated by spaces.
	Rules string
	Needs Needs
	Run   func(w *probe.Space)
}

// Needs says what a check needs of the server; several are combined with |.
type Needs uint8

const (
	// Collector is a garbage collector.
	Collector Needs = 1 << iota
	// NamespaceController empties terminating namespaces.
	NamespaceController
	// CustomResources are CustomResourceDefinitions.
	CustomResources
	// AnyOwners is an admission that accepts owner references which ours refuses by default: to
	// kinds that are not served, to the object itself, of cluster-scoped objects to namespaced
	// ones, and thousands of them.
	AnyOwners
	// Ours is a server of coppice up: what is checked is no rule of Kubernetes.
	Ours
)

// Turn is a set of checks that can run at the same time.
type Turn struct {
	// Alone says that they cannot: each of them disturbs the others.
	Alone  bool
	Checks []Check
}

// Checks returns all checks, in turns that follow one another.
func Checks() []Turn {
	return []Turn{
		{Checks: slices.Concat(
			deletions, policies(), background, writes, graph, foreground, notBlocking(), ways(), cycles, rings(),
			orphaned, orphanedByDefault(), stressing(), unseen, claims, inTwoVersions(), alternates(), custom, manyFakeOwners, protected[:3],
		)},
		// A kind that appears or disappears beside these would hold every namespace for a moment.
		{Checks: slices.Concat(
			namespaceRequests, eitherList(), deletionOptions(), namespaceAdmission, terminating, conditions, protected[3:],
		)},
		// A kind that cannot be read, or whose group cannot be discovered, holds all namespaces.
		{Alone: true, Checks: brokenKinds},
	}
}

// code is an ID of the matrix, or a hazard.
var code = regexp.MustCompile(`\b(?:[A-Z]{2}-[0-9]{2}|H[0-9]+[ab]?)\b`)

// IDs returns the IDs of the matrix in the name of a check.
func (c Check) IDs() []string { return code.FindAllString(c.Name, -1) }

// RuleCodes returns the codes of docs/semantics.md that the check stands for.
func (c Check) RuleCodes() []string { return strings.Fields(c.Rules) }

// IsFor reports whether a check stands for a rule, which may also be an ID of the matrix.
func (c Check) IsFor(rule string) bool {
	return slices.Contains(c.RuleCodes(), rule) || slices.Contains(c.IDs(), rule)
}
