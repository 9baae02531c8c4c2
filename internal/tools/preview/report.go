package preview

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
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
	// Unseen are the resources in Unread of which the deletion may remove objects. A backup does not have these objects.
	Unseen []UnseenReport `json:"unseen,omitempty"`
	// UnreadAdmission says that policies or webhooks could not be read, and why; empty if they were. They may refuse a
	// deletion, which Undecided does not count.
	UnreadAdmission string `json:"unreadAdmission,omitempty"`
	// Unconfirmed says why the server demands a confirmation of this deletion (R32); empty if it does not, or was not asked.
	Unconfirmed string `json:"unconfirmed,omitempty"`
	// Refused is the number of objects about which the server refuses a request, protected ones included, and Undecided of
	// those whose deletion something decides that cannot be foreseen.
	Refused   int `json:"refused,omitempty"`
	Undecided int `json:"undecided,omitempty"`
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
	// PodGarbage is why the pod garbage collector ends a pod, instead of its node.
	PodGarbage builtin.PodGarbage `json:"podGarbage,omitempty"`
	Step       int                `json:"step,omitempty"`
	Requested  bool               `json:"requested,omitempty"`
	Refused    string             `json:"refused,omitempty"`
	Race       bool               `json:"race,omitempty"`
	// Refusal is the answer of the server to a request about the object, if it refuses one. DecidedBy names what may refuse
	// the deletion, and cannot be foreseen.
	Refusal   *RefusalReport `json:"refusal,omitempty"`
	DecidedBy []string       `json:"decidedBy,omitempty"`
	// Answer is the answer of the server to a dry run of the request; nil if it was not asked.
	Answer *AnswerReport `json:"answer,omitempty"`
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

// RefusalReport names who refuses a request. All fields but To and Operation are those of refusal.Refusal.
type RefusalReport struct {
	By      refusal.By `json:"by"`
	Name    string     `json:"name,omitempty"`
	Binding string     `json:"binding,omitempty"`
	Message string     `json:"message,omitempty"`
	// To is the actor whose request is refused. Operation is UPDATE for a change of finalizers or owner references, and
	// LIST if the actor cannot list the resource of an owner; it is empty for a DELETE.
	To        Actor  `json:"to"`
	Operation string `json:"operation,omitempty"`
}

// AnswerReport is the answer of the server to a dry run of a DELETE: it accepts or refuses it, or there was no answer.
type AnswerReport struct {
	Accepted bool           `json:"accepted"`
	Refusal  *RefusalReport `json:"refusal,omitempty"`
	Error    string         `json:"error,omitempty"`
	// Settles is true if the server has asked everything that decides about the deletion of the object.
	Settles bool `json:"settles,omitempty"`
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
	Why     string   `json:"why,omitempty"`
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
		Counts: []CountReport{}, Objects: make([]ObjectReport, 0, len(p.Outcomes)), UnreadAdmission: text(p.UnreadAdmission),
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
	result.Recount()
	for _, u := range p.Unread[:min(len(p.Unread), mostUnread)] {
		result.Unread = append(result.Unread, text(u.String()))
	}
	if more := len(p.Unread) - mostUnread; more > 0 {
		result.Unread = append(result.Unread, fmt.Sprintf("and %d more", more))
	}
	result.Unseen = p.unseen(inv)
	return result
}

func (o *Outcome) report(inv *inventory.Inventory) ObjectReport {
	report := ObjectReport{
		Kind: o.Object.Kind.String(), Resource: o.Object.Resource.GroupResource().String(), Namespace: o.Object.Namespace, Name: o.Object.Name,
		UID: string(o.Object.UID), ResourceVersion: o.Object.ResourceVersion,
		Fate: o.Fate, By: o.By, PodGarbage: o.Garbage, Step: o.Step, Requested: o.Requested, Refused: text(o.Refused), Race: o.Race, Protected: text(o.Protected),
	}
	more := MoreReport{}
	if r := o.Refusal; r != nil {
		report.Refusal = RefusalReportOf(r.Refusal, r.To)
		switch {
		case r.IsList:
			report.Refusal.Operation = "LIST"
		case r.IsUpdate:
			report.Refusal.Operation = "UPDATE"
		}
	}
	report.DecidedBy, more.DecidedBy = texts(o.Deciders)
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
		wait := WaitReport{Reason: w.Reason, Name: text(w.Name), Why: text(w.Why), ServedBy: bounded(w.ServedBy), AlsoDeleted: w.AlsoDeleted}
		wait.Objects, wait.MoreObjects = names(inv, w.Objects)
		if unseen, more := texts(w.Unseen); len(unseen) > 0 {
			wait.Objects, wait.MoreObjects = append(wait.Objects, unseen...), wait.MoreObjects+more
		}
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

// RefusalReportOf returns a refusal of a request of an actor, for programs.
func RefusalReportOf(r refusal.Refusal, to Actor) *RefusalReport {
	return &RefusalReport{By: r.By, Name: text(r.Name), Binding: text(r.Binding), Message: text(r.Message), To: to}
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
	return r.count(func(o *ObjectReport) bool { return o.Fate == Deleted || o.Fate == Waiting })
}

// Closure returns what limits of unconfirmed deletions count: the objects that are deleted now or later. The server does
// not count what controllers delete without an owner reference.
func (r Report) Closure(limits protection.Limits) protection.Closure {
	isCounted := func(o *ObjectReport) bool {
		return (o.Fate == Deleted || o.Fate == Waiting) && o.By != ByTokensController && o.By != ByEndpointsController
	}
	c := protection.Closure{Objects: r.count(isCounted)}
	for n := range r.Objects {
		o := &r.Objects[n]
		if isCounted(o) && limits.Limited(schema.ParseGroupResource(o.Resource)) {
			c.Limited = append(c.Limited, o.Resource)
		}
	}
	slices.Sort(c.Limited)
	c.Limited = slices.Compact(c.Limited)
	return c
}

// Recount counts the objects about which the server refuses a request, and those whose deletion something decides that
// cannot be foreseen, and that the server was not asked about.
func (r *Report) Recount() {
	r.Refused = r.count(func(o *ObjectReport) bool {
		return o.Refusal != nil || o.Refused != "" || o.Protected != "" || o.Answer != nil && o.Answer.Refusal != nil
	})
	r.Undecided = r.count(func(o *ObjectReport) bool {
		return len(o.DecidedBy) > 0 && (o.Answer == nil || !o.Answer.Settles) || o.Answer != nil && o.Answer.Error != ""
	})
}

func (r Report) count(counts func(*ObjectReport) bool) int {
	n := 0
	for i := range r.Objects {
		if counts(&r.Objects[i]) {
			n++
		}
	}
	return n
}
