// Package audit finds errors in the ownership and the deletions of a cluster: references that lead nowhere or
// to the wrong object, cycles, contents of deleted namespaces, deletions that hang. It checks an inventory and
// does no I/O: the caller reads the cluster, and writes to it.
//
// The main flow: Check checks every object of an Inventory (references.go, objects.go, controllers.go, cycles.go),
// with the presence of each claim from package ownership and the controller of each finalizer from package
// finalizerowner, and returns a Report. Report.Without leaves out the findings of a baseline (baseline.go),
// Report.Encode writes it (encode.go, sarif.go, junit.go), and Fixes plans patches that remove provably wrong
// references without causing a deletion (fix.go).
package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Severity is the certainty and the gravity of a finding.
type Severity string

const (
	// Error findings are certainly wrong.
	Error Severity = "error"
	// Warning findings are most likely not intended.
	Warning Severity = "warning"
	// Note findings state that an object could not be checked. They do not count as found (Report.Found).
	Note Severity = "note"
)

// DefaultLong is the duration after which a deletion becomes a finding.
const DefaultLong = 10 * time.Minute

// Options configure Check.
type Options struct {
	// Long is the time for which an object may be terminating; 0 stands for DefaultLong.
	Long time.Duration
	// ServedBy finds the controller of a finalizer, and Permits reports whether RBAC lets a controller write
	// the finalizers of an owner. Nil turns off these checks.
	ServedBy *finalizerowner.Index
	Permits  *finalizerowner.Permissions
	// Namespace, if set, confines the check to the objects of a namespace.
	Namespace string
}

// Report is the result of a check. Its JSON is stable: fields are only added.
type Report struct {
	// Read is the time of the reading, Objects the number of checked objects.
	Read    time.Time `json:"read"`
	Objects int       `json:"objects"`
	// Findings are sorted by severity, code and object.
	Findings []Finding `json:"findings"`
	// Known is the number of findings that a baseline left out.
	Known int `json:"known,omitempty"`
	// Unread lists the resources that could not be read, in words.
	Unread []string `json:"unread,omitempty"`
}

// Finding is an error of an object, or a possible one.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Object   Object   `json:"object"`
	// Owner is the owner reference of the finding; nil for a finding about the whole object.
	Owner *Owner `json:"ownerReference,omitempty"`
	// Finalizer is the finalizer of the finding; empty for a finding about no single one.
	Finalizer string `json:"finalizer,omitempty"`
	// Message describes the finding, Suggestion the remedy, each in a sentence.
	Message    string `json:"message"`
	Suggestion string `json:"suggestion"`
}

// Object identifies an object as it was read.
type Object struct {
	Group           string        `json:"group,omitempty"`
	Version         string        `json:"version"`
	Resource        string        `json:"resource"`
	Kind            string        `json:"kind"`
	Namespace       string        `json:"namespace,omitempty"`
	Name            string        `json:"name"`
	UID             ownership.UID `json:"uid"`
	ResourceVersion string        `json:"resourceVersion"`
}

// String returns "deployments.apps/web".
func (o Object) String() string {
	if o.Group == "" {
		return o.Resource + "/" + o.Name
	}
	return o.Resource + "." + o.Group + "/" + o.Name
}

// Owner is an owner reference, and its index in the object's list.
type Owner struct {
	Index      int           `json:"index"`
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Name       string        `json:"name"`
	UID        ownership.UID `json:"uid"`
}

// Check checks the objects of an inventory.
func Check(inv *inventory.Inventory, o Options) Report {
	c := checker{inv: inv, graph: inv.Graph(), long: cmp.Or(o.Long, DefaultLong), servedBy: o.ServedBy, permits: o.Permits}
	c.countManaged()
	r := Report{Read: inv.Read}
	for _, object := range inv.Objects {
		if o.Namespace != "" && object.Namespace != o.Namespace {
			continue
		}
		r.Objects++
		c.references(object)
		c.leftover(object)
		c.terminating(object)
		c.looksOwned(object)
		c.unserved(object)
		c.unpermitted(object)
	}
	c.findCycles(o.Namespace)
	r.Findings = c.findings
	slices.SortStableFunc(r.Findings, compareFindings)
	for _, u := range inv.Unread {
		r.Unread = append(r.Unread, unreadText(u))
	}
	return r
}

// Found reports whether any finding is more than a note.
func (r Report) Found() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != Note })
}

// count returns the number of findings with a severity.
func (r Report) count(s Severity) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Severity == s {
			n++
		}
	}
	return n
}

// checker checks one inventory.
type checker struct {
	inv      *inventory.Inventory
	graph    *ownership.Graph
	long     time.Duration
	managed  map[managed]bool
	servedBy *finalizerowner.Index
	permits  *finalizerowner.Permissions
	findings []Finding
}

// found adds a finding about an object; unless index is negative, about the reference at that index.
func (c *checker) found(code Code, o *inventory.Object, index int, message string) {
	rule := ruleOf(code)
	f := Finding{Code: code, Severity: rule.Severity, Object: objectOf(o), Message: message, Suggestion: rule.Suggestion}
	if index >= 0 {
		r := o.Owners[index]
		f.Owner = &Owner{Index: index, APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: r.UID}
	}
	c.findings = append(c.findings, f)
}

func objectOf(o *inventory.Object) Object {
	return Object{
		Group: o.Resource.Group, Version: o.Resource.Version, Resource: o.Resource.Resource, Kind: o.Resource.Kind,
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}
}

func compareFindings(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(a.Code, b.Code),
		cmp.Compare(a.Object.Group, b.Object.Group), cmp.Compare(a.Object.Resource, b.Object.Resource),
		cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name),
	)
}

func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Note}, s) }

func unreadText(u inventory.Unread) string {
	what := u.Resource.GroupResource().String()
	if u.Resource.Resource == "" {
		what = "group " + u.Resource.GroupVersion().String()
	}
	if u.Namespace != "" {
		what += " in namespace " + u.Namespace
	}
	return what + ": " + u.Why
}
