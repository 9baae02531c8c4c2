// Package audit finds what is wrong with the ownership and the deletions of a cluster: references that lead
// nowhere or to the wrong object, cycles, contents of namespaces that are gone, deletions that hang. It judges
// an inventory and has no effects: whoever reads the cluster, and writes to it, calls it.
//
// The main flow: Check looks at every object of an Inventory (references.go, objects.go, controllers.go, cycles.go), with what
// package ownership knows of each claim and servedby of each finalizer, and returns a Report. Report.Without leaves out what a baseline knows
// (baseline.go), Report.Encode writes it (encode.go, sarif.go, junit.go), and Fixes plans the patches that
// remove what is provably wrong and whose removal deletes nothing (fix.go).
package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/servedby"
)

// Severity says how sure a finding is, and how bad.
type Severity string

const (
	// Error findings are wrong whatever else is true.
	Error Severity = "error"
	// Warning findings are most likely not what somebody meant.
	Warning Severity = "warning"
	// Note findings say what could not be judged. They do not count as something found.
	Note Severity = "note"
)

// DefaultLong is how long a deletion may take before it is a finding.
const DefaultLong = 10 * time.Minute

// Options say what is a finding.
type Options struct {
	// Long is how long an object may be terminating; 0 stands for DefaultLong.
	Long time.Duration
	// ServedBy says who serves a finalizer, and Permits whether RBAC lets a controller write the finalizers
	// of an owner; what is nil is not judged.
	ServedBy *servedby.Index
	Permits  *servedby.Permissions
	// Namespace, if it is set, is the one whose objects are judged.
	Namespace string
}

// Report is the result of a check. Its JSON is stable: fields are only added.
type Report struct {
	// Read is when the cluster was read, Objects how many were judged.
	Read    time.Time `json:"read"`
	Objects int       `json:"objects"`
	// Findings are sorted by severity, code and object.
	Findings []Finding `json:"findings"`
	// Known is how many findings a baseline left out.
	Known int `json:"known,omitempty"`
	// Unread is what could not be seen, in words.
	Unread []string `json:"unread,omitempty"`
}

// Finding is one thing that is wrong, or seems to be.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Object   Object   `json:"object"`
	// Owner is the owner reference that the finding is about, if it is about one.
	Owner *Owner `json:"ownerReference,omitempty"`
	// Message is what was found, Suggestion what to do about it, each in a sentence.
	Message    string `json:"message"`
	Suggestion string `json:"suggestion"`
}

// Object names an object as it was seen.
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

// Owner is an owner reference, and its place in the list of the object's.
type Owner struct {
	Index      int           `json:"index"`
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Name       string        `json:"name"`
	UID        ownership.UID `json:"uid"`
}

// Check judges the objects of an inventory.
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

// Found reports whether there is a finding that is more than a note.
func (r Report) Found() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != Note })
}

// count returns how many findings have a severity.
func (r Report) count(s Severity) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Severity == s {
			n++
		}
	}
	return n
}

// checker judges one inventory.
type checker struct {
	inv      *inventory.Inventory
	graph    *ownership.Graph
	long     time.Duration
	managed  map[managed]bool
	servedBy *servedby.Index
	permits  *servedby.Permissions
	findings []Finding
}

// found adds a finding about an object, or about one of its references unless index is negative.
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
