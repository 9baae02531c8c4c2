// Package finalizerowner finds the controller that serves a finalizer: which controller most likely removes it, and
// whether that controller works and has the permissions. No API has this information, but there are traces: the field
// manager that set the finalizer, workloads and Leases with its name, and the service accounts that may update the
// resource.
//
// The main flow:
//
//	index := finalizerowner.New(inventory, facts, now)
//	answer := index.Of(object, finalizer) // the controller, its state, and the evidence in sentences
//	needs := facts.Needs()                // read them and ask again, until there are none
//
// A table has the finalizers of Kubernetes (builtin.go). For all others, clues.go finds names to look for, match.go
// the workloads that may match, and state.go the state of the best match. An answer is based only on the objects that
// were read: it says that a finalizer has no controller only if all workloads were read.
package finalizerowner

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// State is the state of the controller that serves a finalizer.
type State string

// The states. From Gone on, waiting does not change the state.
const (
	// Alive controllers are ready, or have renewed their Lease.
	Alive State = "Alive"
	// Leaving controllers work, but they or their namespaces are being deleted.
	Leaving State = "Leaving"
	// Unknown: the evidence does not decide the state.
	Unknown State = "Unknown"
	// Gone: no controller serves the finalizer.
	Gone State = "Gone"
	// ScaledToZero controllers exist, with no replicas.
	ScaledToZero State = "ScaledToZero"
	// NotReady controllers have had no ready replica for a while.
	NotReady State = "NotReady"
	// Silent controllers no longer renew their Lease.
	Silent State = "Silent"
	// Forbidden controllers may not update the object.
	Forbidden State = "Forbidden"
)

// Works reports whether the controller will serve the finalizer in time.
func (s State) Works() bool { return s == Alive || s == Leaving }

// Fails reports whether the finalizer stays until a user acts.
func (s State) Fails() bool { return !s.Works() && s != Unknown }

// Confidence is how certain the identity of the controller is.
type Confidence string

// The degrees of confidence.
const (
	High   Confidence = "High"
	Medium Confidence = "Medium"
	Low    Confidence = "Low"
)

// Answer names the controller of a finalizer. Its JSON form is part of the tools' output.
type Answer struct {
	Finalizer string `json:"finalizer"`
	// Controller describes the controller: "Deployment.apps shop/operator", or a controller of Kubernetes. It is empty
	// if no controller serves the finalizer.
	Controller string `json:"controller,omitempty"`
	// Workload is the UID of the controller's workload, if it runs in this cluster.
	Workload   ownership.UID `json:"workload,omitempty"`
	State      State         `json:"state"`
	Confidence Confidence    `json:"confidence"`
	// Evidence are the reasons, as sentences without a full stop.
	Evidence []string `json:"evidence,omitempty"`
	// Since is when the controller stopped working; nil if unknown.
	Since *time.Time `json:"since,omitempty"`
}

// Index finds the controllers for the finalizers of one inventory. It is not safe for concurrent use.
type Index struct {
	inventory *inventory.Inventory
	facts     *inventory.Facts // nil: there is only metadata
	now       time.Time

	workloads, leases []*inventory.Object
	setters           map[string]map[string]int // finalizer → field manager → objects
	wrote             map[string]time.Time      // field manager → the time of its last known write
	answers           map[string]Answer         // results of Of, by their inputs
	seen              map[string]sighting       // controller of Kubernetes → evidence that it works
}

// sighting is evidence that a controller works, and the program that runs it.
type sighting struct{ program, evidence string }

// Saw records evidence that controllers of Kubernetes work in a program; they have their names in
// kube-controller-manager. It has priority over a Lease. The evidence is a sentence without a full stop.
func (x *Index) Saw(program, evidence string, controllers ...string) {
	for _, name := range controllers {
		x.seen[name] = sighting{program, evidence}
	}
}

// New makes an index of the field managers that set finalizers. Facts may be nil: then the answers rely on metadata
// only.
func New(inv *inventory.Inventory, facts *inventory.Facts, now time.Time) *Index {
	x := &Index{inventory: inv, facts: facts, now: now, setters: map[string]map[string]int{}, wrote: map[string]time.Time{}, seen: map[string]sighting{}, answers: map[string]Answer{}}
	for _, o := range inv.Objects {
		switch {
		case slices.Contains(inventory.WorkloadKinds(), o.Kind):
			x.workloads = append(x.workloads, o)
		case o.Kind == inventory.LeaseKind():
			x.leases = append(x.leases, o)
		}
		for _, m := range o.Managers() {
			if m.Time.After(x.wrote[m.Name]) {
				x.wrote[m.Name] = m.Time
			}
			for _, f := range m.Finalizers {
				if x.setters[f] == nil {
					x.setters[f] = map[string]int{}
				}
				if !copies(m.Name, o) {
					x.setters[f][m.Name]++
				}
			}
		}
	}
	return x
}

// Of returns the controller that serves a finalizer of an object. It searches once for all objects with the same
// answer. An answer for which the facts lack something is preliminary: Of searches again at the next call.
func (x *Index) Of(o *inventory.Object, finalizer string) Answer {
	key := []string{finalizer, o.Kind.String(), o.Namespace}
	for _, m := range o.Managers() {
		if slices.Contains(m.Finalizers, finalizer) {
			key = append(key, m.Name)
		}
	}
	slices.Sort(key[3:])
	k := strings.Join(key, "\x00")
	a, ok := x.answers[k]
	if !ok {
		misses := x.facts.Misses()
		a = x.find(o, finalizer)
		if x.facts.Misses() == misses {
			x.answers[k] = a
		}
	}
	return a
}

func (x *Index) find(o *inventory.Object, finalizer string) Answer {
	if b, ok := builtIn(finalizer); ok {
		return x.ofBuiltIn(b, finalizer)
	}
	clues, evidence := x.clues(o, finalizer)
	for _, c := range clues {
		if p := component(c.name); c.isManager && (p == controllers || p == cloud || p == apiServer) {
			return x.ofBuiltIn(builtin{"a controller", p, ""}, finalizer)
		}
	}
	misses := x.facts.Misses()
	candidates := x.candidates(o, clues)
	if x.facts.Misses() > misses { // the answer to come may need neither a Lease nor a pod
		return Answer{Finalizer: finalizer, State: Unknown, Confidence: Low, Evidence: evidence}
	}
	if len(candidates) == 0 {
		return x.nobody(o, finalizer, clues, evidence)
	}
	for n := range candidates {
		x.judge(&candidates[n], o)
	}
	// The most certain first; among equally certain ones, one that works: two parts of one operator match the same
	// name, and only one of them needs to work.
	best := slices.MinFunc(candidates, func(a, b candidate) int {
		return cmp.Or(a.confidence.rank()-b.confidence.rank(), a.state.rank()-b.state.rank(), cmp.Compare(a.name(), b.name()))
	})
	if best.state.Fails() {
		if lease, ok := x.freshLease(o, finalizer, clues); ok {
			lease.Evidence = slices.Concat(evidence, best.evidence, lease.Evidence)
			return lease
		}
	}
	a := Answer{
		Finalizer: finalizer, Controller: best.name(), Workload: best.object.UID, State: best.state,
		Confidence: best.confidence, Evidence: slices.Concat(evidence, best.evidence),
	}
	if !best.since.IsZero() {
		a.Since = &best.since
	}
	return a
}

func (c Confidence) rank() int { return slices.Index([]Confidence{High, Medium, Low}, c) }

func (s State) rank() int {
	switch {
	case s.Works():
		return 0
	case s == Unknown:
		return 1
	default:
		return 2
	}
}
