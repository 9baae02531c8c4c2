package preview

import (
	"fmt"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Report is a prediction for programs: the output of coppice preview delete -o json. Fields are only added, never
// renamed.
type Report struct {
	Digest       string         `json:"digest"`
	Counts       []CountReport  `json:"counts"`
	Objects      []ObjectReport `json:"objects"`
	GraceSeconds int64          `json:"graceSeconds"`
	// AtLeastSeconds is the minimum time of the deletion: the sleep of preStop hooks.
	AtLeastSeconds int64          `json:"atLeastSeconds,omitempty"`
	Budgets        []BudgetReport `json:"budgets,omitempty"`
	Unread         []string       `json:"unread,omitempty"`
}

// BudgetReport is a PodDisruptionBudget that allows fewer disruptions than the deletion takes pods.
type BudgetReport struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Allowed   int32    `json:"allowed"`
	Pods      []string `json:"pods"`
	// MorePods is the number of further pods that the deletion takes.
	MorePods int `json:"morePods,omitempty"`
}

// CountReport counts the objects of a kind with one fate.
type CountReport struct {
	Fate    Fate   `json:"fate"`
	Kind    string `json:"kind"`
	Objects int    `json:"objects"`
}

// ObjectReport is the result of the deletion for one object. It names other objects as KIND.GROUP NAMESPACE/NAME.
type ObjectReport struct {
	Kind string `json:"kind"`
	// Resource is the kind's resource and group, such as deployments.apps.
	Resource        string `json:"resource,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	Fate            Fate   `json:"fate"`
	By              Actor  `json:"by,omitempty"`
	Step            int    `json:"step,omitempty"`
	Requested       bool   `json:"requested,omitempty"`
	Refused         string `json:"refused,omitempty"`
	Race            bool   `json:"race,omitempty"`
	// Protected is the reason why protection keeps an object from a cascading deletion.
	Protected   string       `json:"protected,omitempty"`
	Lost        []string     `json:"lost,omitempty"`
	KeptBy      []string     `json:"keptBy,omitempty"`
	Waits       []WaitReport `json:"waits,omitempty"`
	RecreatedBy string       `json:"recreatedBy,omitempty"`
	// Phase and Finalizers are the present ones of the object; Phase is empty if the object is not being deleted.
	Phase      string   `json:"phase,omitempty"`
	Finalizers []string `json:"finalizers,omitempty"`
	// Owners are the owners in the object's metadata.
	Owners []OwnerReport `json:"owners,omitempty"`
	// More counts what the lists leave out; nil if they leave out nothing.
	More *MoreReport `json:"more,omitempty"`
}

// OwnerReport is an owner reference of an object. Blocking is true if the object blocks the foreground deletion of
// the owner, Controller if the owner controls the object.
type OwnerReport struct {
	UID        string `json:"uid"`
	Blocking   bool   `json:"blocking,omitempty"`
	Controller bool   `json:"controller,omitempty"`
}

// WaitReport is one reason why an object waits.
type WaitReport struct {
	Reason  Reason   `json:"reason"`
	Name    string   `json:"name,omitempty"`
	Objects []string `json:"objects,omitempty"`
	// MoreObjects is the number of further objects.
	MoreObjects int `json:"moreObjects,omitempty"`
	// ServedBy is the controller that removes the finalizer; AlsoDeleted is true if the deletion also deletes that
	// controller.
	ServedBy    *finalizerowner.Answer `json:"servedBy,omitempty"`
	AlsoDeleted bool                   `json:"takenAlong,omitempty"`
}

// Report returns a prediction for programs, with object names from the inventory. The report on one object is bounded
// in bytes (bound.go).
func (p Prediction) Report(inv *inventory.Inventory) Report {
	result := Report{
		Digest: p.Digest, GraceSeconds: int64(p.Grace.Seconds()), AtLeastSeconds: int64(p.AtLeast.Seconds()),
		Counts: []CountReport{}, Objects: make([]ObjectReport, 0, len(p.Outcomes)),
	}
	for _, b := range p.Budgets {
		budget := BudgetReport{Namespace: b.Namespace, Name: b.Name, Allowed: b.Allowed}
		budget.Pods, budget.MorePods = names(inv, b.Pods)
		result.Budgets = append(result.Budgets, budget)
	}
	for _, c := range p.Counts {
		result.Counts = append(result.Counts, CountReport{Fate: c.Fate, Kind: c.Kind.String(), Objects: c.Objects})
	}
	for n := range p.Outcomes {
		result.Objects = append(result.Objects, p.Outcomes[n].report(inv))
	}
	for _, u := range p.Unread[:min(len(p.Unread), mostUnread)] {
		result.Unread = append(result.Unread, text(u.String()))
	}
	if more := len(p.Unread) - mostUnread; more > 0 {
		result.Unread = append(result.Unread, fmt.Sprintf("and %d more", more))
	}
	return result
}

func (o *Outcome) report(inv *inventory.Inventory) ObjectReport {
	report := ObjectReport{
		Kind: o.Object.Kind.String(), Resource: o.Object.Resource.GroupResource().String(), Namespace: o.Object.Namespace, Name: o.Object.Name,
		UID: string(o.Object.UID), ResourceVersion: o.Object.ResourceVersion,
		Fate: o.Fate, By: o.By, Step: o.Step, Requested: o.Requested, Refused: text(o.Refused), Race: o.Race, Protected: text(o.Protected),
	}
	more := MoreReport{}
	report.Lost, more.Lost = names(inv, o.Lost)
	report.KeptBy, more.KeptBy = names(inv, o.KeptBy)
	report.Finalizers, more.Finalizers = texts(o.Object.Finalizers)
	if o.Object.Phase != ownership.Active {
		report.Phase = o.Object.Phase.String()
	}
	if o.RecreatedBy != "" {
		report.RecreatedBy = nameOf(inv, o.RecreatedBy)
	}
	var waits []Wait
	waits, more.Waits = first(o.Waits)
	for _, w := range waits {
		wait := WaitReport{Reason: w.Reason, Name: text(w.Name), ServedBy: bounded(w.ServedBy), AlsoDeleted: w.AlsoDeleted}
		wait.Objects, wait.MoreObjects = names(inv, w.Objects)
		report.Waits = append(report.Waits, wait)
	}
	var owners []ownership.Reference
	owners, more.Owners = first(o.Object.Owners)
	for _, r := range owners {
		report.Owners = append(report.Owners, OwnerReport{
			UID: uidOf(r.UID), Blocking: r.BlockOwnerDeletion == ownership.True, Controller: r.Controller == ownership.True,
		})
	}
	if more != (MoreReport{}) {
		report.More = &more
	}
	return report
}

// names returns the names of the first objects, and the number of the others.
func names(inv *inventory.Inventory, uids []ownership.UID) (all []string, more int) {
	some, more := first(uids)
	for _, uid := range some {
		all = append(all, nameOf(inv, uid))
	}
	return all, more
}

// nameOf returns the name of an object, or its UID if the inventory does not have it.
func nameOf(inv *inventory.Inventory, uid ownership.UID) string {
	o := inv.Object(uid)
	if o == nil {
		return uidOf(uid)
	}
	return described(o.Kind.String(), o.Namespace, o.Name)
}

func described(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

// CountDeleted counts the objects that are deleted now or later.
func (r Report) CountDeleted() int {
	count := 0
	for _, o := range r.Objects {
		if o.Fate == Deleted || o.Fate == Waiting {
			count++
		}
	}
	return count
}

// String returns the report for people, grouped by fate.
func (r Report) String() string {
	var text strings.Builder
	fate := Fate("")
	for _, o := range r.Objects {
		if o.Fate != fate {
			fate = o.Fate
			text.WriteString(escape.Line(heading(fate)) + "\n")
		}
		text.WriteString("  " + escape.Line(o.line()) + "\n")
	}
	for _, c := range r.Counts {
		text.WriteString(escape.Sprintf("%s: %d %s\n", c.Fate, c.Objects, c.Kind))
	}
	for _, b := range r.Budgets {
		text.WriteString(escape.Line(b.String()) + "\n")
	}
	if r.GraceSeconds > 0 {
		fmt.Fprintf(&text, "Nodes may take %d s to end the pods", r.GraceSeconds)
		if r.AtLeastSeconds > 0 {
			fmt.Fprintf(&text, ", and take %d s at least: so long a preStop hook sleeps", r.AtLeastSeconds)
		}
		text.WriteString(".\n")
	}
	text.WriteString(escape.Sprintf("Digest: %s\n", r.Digest)) // of a file or a server
	return text.String()
}

// String returns, for example, "PodDisruptionBudget shop/web allows 1 disruption, and 3 …".
func (b BudgetReport) String() string {
	return fmt.Sprintf("PodDisruptionBudget %s/%s allows %d of its pods to be disrupted, and %d go: it holds evictions, and no DELETE.",
		b.Namespace, b.Name, b.Allowed, len(b.Pods)+b.MorePods)
}

func heading(f Fate) string {
	switch f {
	case Deleted:
		return "Deleted, in this order:"
	case Waiting:
		return "Deleted, but waiting:"
	case Detached:
		return "Stays, without references to owners that go:"
	case Kept:
		return "Stays:"
	case Unknown:
		return "Unknown, because an owner could not be read:"
	}
	return string(f)
}

// line describes one object.
func (o ObjectReport) line() string {
	line := described(o.Kind, o.Namespace, o.Name) + o.notes()
	if o.Fate == Deleted {
		line = fmt.Sprintf("%d. %s", o.Step, line)
	}
	return line
}

// Says describes the fate of the object, without its name.
func (o ObjectReport) Says() string {
	says := strings.ToLower(string(o.Fate))
	if o.Fate == Deleted {
		says += fmt.Sprintf(" in step %d", o.Step)
	}
	return says + o.notes()
}

// notes returns the details of the object's fate.
func (o ObjectReport) notes() string {
	var notes strings.Builder
	var more MoreReport
	if o.More != nil {
		more = *o.More
	}
	if o.By != "" && o.By != ByUser {
		notes.WriteString(", by the " + actorName(o.By))
	}
	if o.Refused != "" {
		notes.WriteString("; the request is refused: " + o.Refused)
	}
	if o.Protected != "" {
		notes.WriteString("; " + o.Protected)
	}
	for _, w := range o.Waits {
		notes.WriteString("; waits for " + w.String())
	}
	if more.Waits > 0 {
		fmt.Fprintf(&notes, "; and for %d more", more.Waits)
	}
	if len(o.KeptBy) > 0 && o.Fate != Waiting {
		notes.WriteString("; kept by " + some(o.KeptBy, more.KeptBy))
	}
	if len(o.Lost) > 0 {
		notes.WriteString("; loses " + some(o.Lost, more.Lost))
	}
	if o.RecreatedBy != "" {
		notes.WriteString("; may be replaced by " + o.RecreatedBy)
	}
	if o.Race {
		notes.WriteString("; or otherwise: this depends on who is first")
	}
	return notes.String()
}

func actorName(a Actor) string {
	switch a {
	case ByCollector:
		return "garbage collector"
	case ByNamespaceController:
		return "namespace controller"
	case ByServer:
		return "API server"
	case ByNode:
		return "node"
	case ByUser:
	}
	return "user"
}

// String returns, for example, "finalizer example.com/hold".
func (w WaitReport) String() string {
	switch w.Reason {
	case OnFinalizer:
		return "finalizer " + w.Name + w.served()
	case OnDependents:
		return "blocking dependents: " + some(w.Objects, w.MoreObjects)
	case OnContents:
		return "contents: " + some(w.Objects, w.MoreObjects)
	case OnDiscovery:
		return "group " + w.Name + " of the API, which does not answer and may have objects there"
	case OnUsers:
		return "what uses it: " + some(w.Objects, w.MoreObjects)
	case OnNode:
		return "node " + w.Name + ", which is gone or not ready"
	}
	return string(w.Reason)
}

// served describes the controller that serves a finalizer, and whether it is expected to remove it.
func (w WaitReport) served() string {
	if w.ServedBy == nil {
		return ""
	}
	who := w.ServedBy.Controller
	if who == "" {
		who = "somebody unknown"
	}
	if w.AlsoDeleted {
		return fmt.Sprintf(" (served by %s, which this deletion takes away, too: it may hang)", who)
	}
	switch w.ServedBy.State {
	case finalizerowner.Gone:
		return " (nobody serves it: it will hang)"
	case finalizerowner.ScaledToZero:
		return fmt.Sprintf(" (served by %s, which is scaled to 0: it will hang)", who)
	case finalizerowner.NotReady:
		return fmt.Sprintf(" (served by %s, which is not ready: it may hang)", who)
	case finalizerowner.Silent:
		return fmt.Sprintf(" (served by %s, which does not renew its Lease: it may hang)", who)
	case finalizerowner.Forbidden:
		return fmt.Sprintf(" (served by %s, which may not update the object: it will hang)", who)
	case finalizerowner.Leaving:
		return fmt.Sprintf(" (served by %s, which is itself being deleted: it may hang)", who)
	case finalizerowner.Alive:
		return fmt.Sprintf(" (served by %s, which works)", who)
	case finalizerowner.Unknown:
	}
	return fmt.Sprintf(" (served by %s, whose state is unknown)", who)
}

// some returns the first few of the listed names, and the number of the others.
func some(listed []string, more int) string {
	const most = 5
	if len(listed) > most {
		listed, more = listed[:most], more+len(listed)-most
	}
	if more == 0 {
		return strings.Join(listed, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(listed, ", "), more)
}
