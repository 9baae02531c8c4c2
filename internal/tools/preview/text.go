package preview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
)

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
	switch {
	case slices.ContainsFunc(r.Objects, func(o ObjectReport) bool { return o.PodGarbage == builtin.NodeGone }):
		fmt.Fprintf(&text, "The pod garbage collector removes pods of nodes that have been gone for %s, and looks every %s.\n",
			builtin.NodeQuarantine, builtin.PodGarbagePeriod)
	case slices.ContainsFunc(r.Objects, func(o ObjectReport) bool { return o.PodGarbage != "" }):
		fmt.Fprintf(&text, "The pod garbage collector looks every %s.\n", builtin.PodGarbagePeriod)
	}
	if r.Unconfirmed != "" {
		text.WriteString(escape.Sprintf("The server demands a confirmation: %s. \"coppice delete --confirm\" confirms.\n", r.Unconfirmed))
	}
	if note := r.AdmissionNote(); note != "" {
		if !slices.ContainsFunc(r.Objects, func(o ObjectReport) bool { return o.Answer != nil }) {
			note += "; --ask-server asks the server"
		}
		text.WriteString(escape.Line(note+".") + "\n")
	}
	text.WriteString(escape.Sprintf("Digest: %s\n", r.Digest)) // of a file or a server
	return text.String()
}

// AdmissionNote says that policies or webhooks, which could not be read, may refuse a deletion; empty if all were read.
func (r Report) AdmissionNote() string {
	if r.UnreadAdmission == "" {
		return ""
	}
	return strings.ToUpper(r.UnreadAdmission[:1]) + r.UnreadAdmission[1:] + ". They may refuse a deletion"
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
	if o.PodGarbage != "" && o.By != ByPodCollector {
		notes.WriteString("; the pod garbage collector ends it: " + string(o.PodGarbage))
	}
	if o.Refused != "" {
		notes.WriteString("; the request is refused: " + o.Refused)
	}
	if r := o.Refusal; r != nil && r.To != ByUser {
		what := "refused"
		switch r.Operation {
		case "UPDATE":
			what = "its change is refused"
		case "LIST":
			what = "stays, because the list of its owner's kind is refused"
		}
		notes.WriteString("; " + what + " to the " + actorName(r.To) + ": " + r.String())
	}
	if len(o.DecidedBy) > 0 {
		notes.WriteString("; decided by " + some(o.DecidedBy, more.DecidedBy))
	}
	if o.Answer != nil {
		notes.WriteString("; " + o.Answer.String())
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

// String returns, for example, "the server accepts the request".
func (a *AnswerReport) String() string {
	switch {
	case a.Accepted:
		return "the server accepts the request"
	case a.Refusal != nil:
		return "the server refuses the request: " + a.Refusal.String()
	}
	return "the server does not say whether it accepts the request: " + a.Error
}

// String returns the words of the server.
func (r *RefusalReport) String() string {
	return refusal.Refusal{By: r.By, Name: r.Name, Binding: r.Binding, Message: r.Message}.String()
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
	case ByPodCollector:
		return "pod garbage collector"
	case ByTokensController:
		return "tokens controller"
	case ByEndpointsController:
		return "endpoints controller"
	case ByJobController:
		return "Job controller"
	case ByProtectionController:
		return "protection controller"
	case ByUser, byUnknown:
	}
	return "user"
}

// String returns, for example, "finalizer example.com/hold".
func (w WaitReport) String() string {
	switch w.Reason {
	case OnFinalizer:
		return "finalizer " + w.Name + w.served()
	case OnDependents:
		if w.Name == ownership.FinalizerOrphan {
			return "dependents that it is not detached from: " + some(w.Objects, w.MoreObjects)
		}
		return "blocking dependents: " + some(w.Objects, w.MoreObjects)
	case OnContents:
		return "contents: " + some(w.Objects, w.MoreObjects)
	case OnDiscovery:
		return "group " + w.Name + " of the API, which does not answer and may have objects there"
	case OnBarrier:
		return "group " + w.Name + " of the API, which does not answer and may have dependents of it: " + w.Why
	case OnUsers:
		return "what uses it: " + some(w.Objects, w.MoreObjects)
	case OnNode:
		return "node " + w.Name + ", which is not ready"
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
