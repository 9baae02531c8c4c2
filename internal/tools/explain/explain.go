// Package explain says why an object is still there: the chain of what it waits for, down to the leaves,
// and for each leaf whether it is stuck or only slow, since when, and what to do next.
//
// The main flow:
//
//	explainer := explain.New(explain.Input{Inventory: inv, Details: details, Now: now})
//	explanation, ok := explainer.Explain(uid)
//	text := explanation.Text(now)
//
// What waits for what follows from the rules that act: package verdict says what the collector awaits,
// package servedby who removes the other finalizers. object.go begins with the state of an object;
// finalizer.go, contents.go and pod.go have what it may wait for; webhook.go what stands in the way of
// those who work; next.go the advice. Nothing is called stuck without evidence: where something could not
// be seen, or two readings are possible, the state is Unknown.
package explain

import (
	"cmp"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/servedby"
)

// State says what waiting is good for.
type State string

// The states, from the worst to the best.
const (
	// Stuck waits do not end until somebody does something.
	Stuck State = "Stuck"
	// Unknown waits may end or not: what was seen does not tell.
	Unknown State = "Unknown"
	// Slow waits end by themselves.
	Slow State = "Slow"
	// Kept objects are not being deleted, and wait for nothing.
	Kept State = "Kept"
)

func (s State) rank() int { return slices.Index([]State{Stuck, Unknown, Slow, Kept}, s) }

// On is what is waited for.
type On string

// What may be waited for.
const (
	OnRequest     On = "Request"     // nobody has asked for the deletion
	OnGracePeriod On = "GracePeriod" // its end
	OnNode        On = "Node"        // the kubelet, which stops the containers
	OnFinalizer   On = "Finalizer"   // who serves it
	OnCollector   On = "Collector"   // the garbage collector has the next step
	OnController  On = "Controller"  // another controller of Kubernetes has it
	OnDependent   On = "Dependent"   // an object that blocks the deletion of its owner
	OnContent     On = "Content"     // an object in the namespace
	OnInstance    On = "Instance"    // an object of the kind that a CustomResourceDefinition defines
	OnUser        On = "User"        // an object that uses this one
	OnOwnerKind   On = "OwnerKind"   // an API that serves the kind of an owner
	OnDiscovery   On = "Discovery"   // a group of the API that does not answer
	OnWebhook     On = "Webhook"     // an admission webhook that denies, or does not answer
	OnBarrier     On = "Barrier"     // the proof that no dependent was missed
	OnBreaker     On = "Breaker"     // somebody who resumes deletions that were paused
	OnProtection  On = "Protection"  // somebody who lifts the protection of an object
	OnServer      On = "Server"      // the API server, which removes what nothing holds
	OnUnread      On = "Unread"      // something that could not be seen
	OnCycle       On = "Cycle"       // an object that waits for this one
	OnRepeated    On = "Repeated"    // an object that is explained above
)

// Ref names an object.
type Ref struct {
	Kind      string        `json:"kind"` // with its group: Deployment.apps
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name"`
	UID       ownership.UID `json:"uid"`
}

// String returns, for example, "Deployment.apps shop/web".
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Step is something to do next.
type Step struct {
	Says    string `json:"says"`
	Command string `json:"command,omitempty"`
}

// Wait is something that an object waits for. It is a leaf if it waits for nothing in turn.
type Wait struct {
	On        On     `json:"on"`
	Says      string `json:"says"`
	State     State  `json:"state"`
	Object    *Ref   `json:"object,omitempty"`
	Finalizer string `json:"finalizer,omitempty"`
	// ServedBy says who serves the finalizer, or has the next step.
	ServedBy *servedby.Answer `json:"servedBy,omitempty"`
	Since    *time.Time       `json:"since,omitempty"`
	Next     []Step           `json:"next,omitempty"`
	Waits    []Wait           `json:"waits,omitempty"`
	// More is how many further waits there are that are in no worse state than those in Waits.
	More int `json:"more,omitempty"`
}

// Explanation says why one object is still there. Its JSON form is the output of coppice explain.
type Explanation struct {
	Object Ref   `json:"object"`
	State  State `json:"state"`
	// Deleted is when its deletion was requested, if it was.
	Deleted *time.Time `json:"deleted,omitempty"`
	Waits   []Wait     `json:"waits"`
	// More is how many further waits there are that are in no worse state than those in Waits.
	More int `json:"more,omitempty"`
	// Unseen is what could not be read; an explanation holds as far as this allows.
	Unseen []string `json:"unseen,omitempty"`
}

// Leaves returns the waits at the end of every chain, the worst first. An object that is explained above
// has its leaves there.
func (x *Explanation) Leaves() []*Wait {
	var leaves []*Wait
	var visit func(waits []Wait)
	visit = func(waits []Wait) {
		for n := range waits {
			if len(waits[n].Waits) == 0 && waits[n].On != OnRepeated {
				leaves = append(leaves, &waits[n])
			}
			visit(waits[n].Waits)
		}
	}
	visit(x.Waits)
	slices.SortStableFunc(leaves, func(a, b *Wait) int { return a.State.rank() - b.State.rank() })
	return leaves
}

// Node is what matters of a node to the pods that are bound to it.
type Node struct {
	Exists, Ready bool
	// Since is when Ready became what it is.
	Since time.Time
}

// Webhook is an admission webhook, validating or mutating.
type Webhook struct {
	Configuration, Name string
	Rules               []admissionregistrationv1.RuleWithOperations
	// FailsClosed webhooks deny what they are not asked about because they do not answer.
	FailsClosed bool
	// Service is where it is called; empty for one that has a URL.
	Service types.NamespacedName
	// Endpoints counts the ready ones of the service; it is negative if they could not be read.
	Endpoints int
	// Selective webhooks have selectors or conditions, and may not be called for an object.
	Selective bool
}

// Details reads what more than metadata is needed.
type Details interface {
	servedby.Details
	Node(name string) (Node, error)
	Webhooks() ([]Webhook, error)
}

// Input is what an explanation is made of.
type Input struct {
	Inventory *inventory.Inventory
	// Before is an inventory that was read earlier; nil if there is none. What has become less since
	// is slow, not stuck.
	Before *inventory.Inventory
	// Details may be nil: then less is known.
	Details Details
	// Collector may be nil: then no running collector was asked.
	Collector *Collector
	Now       time.Time
}

// Explainer explains the objects of one inventory. It is not safe for concurrent use.
type Explainer struct {
	Input
	graph    *ownership.Graph
	servedBy *servedby.Index

	byPlace   map[string][]*inventory.Object
	explained map[ownership.UID]State // in this explanation; objects whose explanation is under way have ""
}

// New returns an explainer.
func New(in Input) *Explainer {
	var details servedby.Details
	if in.Details != nil {
		details = in.Details
	}
	e := &Explainer{
		Input: in, graph: in.Inventory.Graph(), servedBy: servedby.New(in.Inventory, details, in.Now),
		byPlace: map[string][]*inventory.Object{},
	}
	e.believe()
	for _, o := range in.Inventory.Objects {
		e.byPlace[o.Namespace] = append(e.byPlace[o.Namespace], o)
	}
	return e
}

// Explain says why an object is still there; it returns false if the inventory does not have it. The explanation has a
// bound in bytes (bound.go).
func (e *Explainer) Explain(uid ownership.UID) (Explanation, bool) {
	x, ok := e.whole(uid)
	x.bound()
	return x, ok
}

// whole returns an explanation without a bound.
func (e *Explainer) whole(uid ownership.UID) (Explanation, bool) {
	o := e.Inventory.Object(uid)
	if o == nil {
		return Explanation{}, false
	}
	e.explained = map[ownership.UID]State{}
	waits := e.object(o)
	x := Explanation{Object: refOf(o), State: worst(waits), Waits: waits}
	if o.Phase != ownership.Active {
		deleted := requested(o)
		x.Deleted = &deleted
	}
	x.Unseen = unseenTogether(e.Inventory.Unread)
	return x, true
}

func refOf(o *inventory.Object) Ref {
	return Ref{Kind: o.Kind.String(), Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

// requested returns when the deletion of an object was requested.
func requested(o *inventory.Object) time.Time { return o.Deadline().Add(-o.Grace) }

// worst returns the worst state of some waits.
func worst(waits []Wait) State {
	state := Kept
	for _, w := range waits {
		if w.State.rank() < state.rank() {
			state = w.State
		}
	}
	return state
}

// maxShown bounds how many waits of one list are shown.
const maxShown = 8

// group makes a wait of several, the worst first, of which the first are shown.
func group(w Wait, waits []Wait) Wait {
	slices.SortStableFunc(waits, func(a, b Wait) int {
		return cmp.Or(a.State.rank()-b.State.rank(), compareTimes(a.Since, b.Since))
	})
	w.State = worst(waits)
	w.Waits = waits
	if len(waits) > maxShown {
		w.Waits, w.More = slices.Clone(waits[:maxShown]), len(waits)-maxShown
	}
	return w
}

// compareTimes orders earlier times first, and unknown ones last.
func compareTimes(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}
