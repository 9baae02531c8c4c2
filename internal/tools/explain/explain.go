// Package explain explains why an object still exists: the chain of its waits, down to the leaves, and for each leaf
// whether it is stuck or only slow, since when, and the next steps for the user.
//
// The main flow:
//
//	explainer := explain.New(explain.Input{Inventory: inv, Facts: facts, Now: now})
//	explanation, ok := explainer.Explain(uid)
//	needs := facts.Needs() // read them and explain again, until there are none: package answer has the loop
//	text := explanation.Text(now)
//
// The packages that decide in the cluster also decide here: package verdict returns the objects that the collector
// awaits, package finalizerowner the controllers of the other finalizers. object.go begins with the state of an object;
// finalizer.go, contents.go and pod.go have its possible waits; refused.go and foreseen.go the refusals of the next
// step, reported and foreseen, webhook.go the webhooks that do not answer; next.go the advice. chain.go follows the waits from one object to the next; causes.go does it for all objects at
// once, and rank.go groups them by the reasons at the end. Nothing is called stuck without evidence: if something could
// not be read, or the evidence is ambiguous, the state is Unknown.
package explain

import (
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// State is the prospect of a wait.
type State string

// The states, from the worst to the best.
const (
	// Stuck waits do not end until a user acts.
	Stuck State = "Stuck"
	// Unknown waits may end or not: the evidence does not decide it.
	Unknown State = "Unknown"
	// Slow waits end by themselves.
	Slow State = "Slow"
	// Kept objects are not being deleted, and wait for nothing.
	Kept State = "Kept"
)

func (s State) rank() int { return slices.Index([]State{Stuck, Unknown, Slow, Kept}, s) }

// On is the kind of event or object that a wait is for.
type On string

// The values of On.
const (
	OnRequest     On = "Request"     // a DELETE of the object, which is not being deleted yet
	OnGracePeriod On = "GracePeriod" // the end of the grace period
	OnNode        On = "Node"        // the kubelet, which stops the containers
	OnFinalizer   On = "Finalizer"   // the controller that removes the finalizer
	OnCollector   On = "Collector"   // the garbage collector, which has the next step
	OnController  On = "Controller"  // another controller of Kubernetes, which has the next step
	OnDependent   On = "Dependent"   // an object that blocks the deletion of its owner
	OnContent     On = "Content"     // an object in the namespace
	OnInstance    On = "Instance"    // an object of the kind that a CustomResourceDefinition defines
	OnUser        On = "User"        // an object that uses this one
	OnOwnerKind   On = "OwnerKind"   // an API that serves the kind of an owner
	OnDiscovery   On = "Discovery"   // a group of the API that does not answer
	OnWebhook     On = "Webhook"     // an admission webhook that denies, or does not answer
	OnBarrier     On = "Barrier"     // the collector's proof that it has missed no dependent
	OnBreaker     On = "Breaker"     // a user who resumes paused deletions
	OnRefusal     On = "Refusal"     // a policy, a right or another rule by which the server refuses the next step
	OnProtection  On = "Protection"  // a user who lifts the protection of an object
	OnServer      On = "Server"      // the API server, which removes objects that nothing holds
	OnUnread      On = "Unread"      // something that could not be read
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

// Wait is one reason why an object still exists. It is a leaf if it waits for nothing in turn.
type Wait struct {
	On        On     `json:"on"`
	Says      string `json:"says"`
	State     State  `json:"state"`
	Object    *Ref   `json:"object,omitempty"`
	Finalizer string `json:"finalizer,omitempty"`
	// ServedBy is the controller that serves the finalizer, or has the next step.
	ServedBy *finalizerowner.Answer `json:"servedBy,omitempty"`
	Since    *time.Time             `json:"since,omitempty"`
	Next     []Step                 `json:"next,omitempty"`
	Waits    []Wait                 `json:"waits,omitempty"`
	// More is the number of further waits, none of them in a worse state than those in Waits.
	More int `json:"more,omitempty"`

	// progresses is true for contents that have become fewer: the controllers that they wait for are seen to work
	// (settle).
	progresses bool
}

// Explanation explains why one object still exists. Its JSON form is the output of coppice explain.
type Explanation struct {
	Object Ref   `json:"object"`
	State  State `json:"state"`
	// Deleted is the time of the request to delete the object, if there was one.
	Deleted *time.Time `json:"deleted,omitempty"`
	Waits   []Wait     `json:"waits"`
	// More is the number of further waits, none of them in a worse state than those in Waits.
	More int `json:"more,omitempty"`
	// Unseen are the resources that could not be read; the explanation does not cover them.
	Unseen []string `json:"unseen,omitempty"`
}

// Leaves returns the waits at the end of every chain that the explanation shows, the worst first. The leaves of a
// repeated object are those of its first explanation.
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

// Input is the input of an explanation.
type Input struct {
	Inventory *inventory.Inventory
	// Before is an inventory that was read earlier; it may be nil. Contents that have become fewer since are slow, not
	// stuck.
	Before *inventory.Inventory
	// Facts may be nil: then the explanation relies on metadata only.
	Facts *inventory.Facts
	// Collector may be nil: then no running collector has answered.
	Collector *Collector
	// Judge evaluates policies and webhooks for requests of which no collector reports refusals; with nil, those that
	// match decide.
	Judge preview.Judge
	Now   time.Time
}

// Explainer explains the objects of one inventory. It is not safe for concurrent use.
type Explainer struct {
	Input
	graph    *ownership.Graph
	servedBy *finalizerowner.Index

	index     index
	foreseen  map[foreseen]preview.Judgement
	explained map[ownership.UID]State // in this explanation; objects whose explanation is under way have ""
}

// New returns an explainer.
func New(in Input) *Explainer {
	e := &Explainer{
		Input: in, graph: in.Inventory.Graph(), servedBy: finalizerowner.New(in.Inventory, in.Facts, in.Now),
	}
	e.believe()
	return e
}

// Explain explains why an object still exists; it returns false if the inventory does not have it. The explanation is
// preliminary while the facts have needs. It is bounded in bytes (bound.go).
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
	waits := e.follow(o)
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
