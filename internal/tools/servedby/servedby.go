// Package servedby says who serves a finalizer: which controller most likely removes it, and whether that
// controller lives and may. No API says so; what there is are traces: the field manager that set the
// finalizer, workloads and Leases of that name, and who may update the resource.
//
// The main flow:
//
//	index := servedby.New(inventory, details, now)
//	answer := index.Of(object, finalizer) // the controller, its state, and the evidence in sentences
//
// Finalizers of Kubernetes' own are in a table (builtin.go). For any other, clues.go finds names to look
// for, match.go the workloads that may be meant, and state.go how the best of them is. An answer claims
// only what was seen: that nobody serves a finalizer needs all workloads to have been read.
package servedby

import (
	"cmp"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// State says how the controller that serves a finalizer is.
type State string

// The states. Those from Gone on do not change by waiting.
const (
	// Alive controllers are ready, or have renewed their Lease.
	Alive State = "Alive"
	// Leaving controllers work, but are being deleted, or their namespace is.
	Leaving State = "Leaving"
	// Unknown is the state when what was seen does not tell.
	Unknown State = "Unknown"
	// Gone means that nobody serves the finalizer.
	Gone State = "Gone"
	// ScaledToZero controllers are there, with no replicas.
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

// Fails reports whether the finalizer stays until somebody does something.
func (s State) Fails() bool { return !s.Works() && s != Unknown }

// Confidence says how sure it is that the controller is the one.
type Confidence string

// The degrees of confidence.
const (
	High   Confidence = "High"
	Medium Confidence = "Medium"
	Low    Confidence = "Low"
)

// Answer says who serves a finalizer. Its JSON form is part of the tools' output.
type Answer struct {
	Finalizer string `json:"finalizer"`
	// Controller names it in words: "Deployment.apps shop/operator", or a controller of Kubernetes' own.
	// It is empty if there is none.
	Controller string `json:"controller,omitempty"`
	// Workload is the object that runs it, if it is one in this cluster.
	Workload   ownership.UID `json:"workload,omitempty"`
	State      State         `json:"state"`
	Confidence Confidence    `json:"confidence"`
	// Evidence are the reasons, as sentences without a full stop.
	Evidence []string `json:"evidence,omitempty"`
	// Since is when the controller stopped working, as far as that is known.
	Since *time.Time `json:"since,omitempty"`
}

// Workload is what matters of a Deployment, StatefulSet or DaemonSet beyond its metadata.
type Workload struct {
	Replicas, Ready int32
	// UnreadySince is when the last replica became unready; zero if not known.
	UnreadySince   time.Time
	ServiceAccount string
	// Images are those of its containers.
	Images []string
}

// Lease is what matters of a Lease beyond its metadata.
type Lease struct {
	Holder   string
	Renewed  time.Time
	Duration time.Duration
}

// Details reads what more than metadata is needed, of the few objects that it is needed of. An error
// says what could not be seen; nothing is concluded from it.
type Details interface {
	Workload(o *inventory.Object) (Workload, error)
	Lease(o *inventory.Object) (Lease, error)
	// Rules are what RBAC allows a service account in a namespace, or for cluster-scoped objects if it
	// is empty.
	Rules(account types.NamespacedName, namespace string) ([]rbacv1.PolicyRule, error)
}

// Index answers for one inventory. It is not safe for concurrent use.
type Index struct {
	inventory *inventory.Inventory
	details   Details
	now       time.Time

	workloads, leases []*inventory.Object
	setters           map[string]map[string]int // finalizer → field manager → objects
	wrote             map[string]time.Time      // field manager → its last write that was seen
	answers           map[string]Answer         // of Of, by what they depend on
	seen              map[string]string         // finalizer of Kubernetes' own → how its controller was seen to work
}

// Saw notes that who serves some finalizers of Kubernetes' own was seen to work, which counts more than a
// Lease. The evidence is a sentence without a full stop.
func (x *Index) Saw(evidence string, finalizers ...string) {
	for _, f := range finalizers {
		x.seen[f] = evidence
	}
}

// New makes an index of who set which finalizers.
func New(inv *inventory.Inventory, d Details, now time.Time) *Index {
	x := &Index{inventory: inv, details: d, now: now, setters: map[string]map[string]int{}, wrote: map[string]time.Time{}, seen: map[string]string{}, answers: map[string]Answer{}}
	for _, o := range inv.Objects {
		switch {
		case slices.Contains(workloadKinds(), o.Kind):
			x.workloads = append(x.workloads, o)
		case o.Kind == leaseKind():
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
				x.setters[f][m.Name]++
			}
		}
	}
	return x
}

// workloadKinds are the kinds that controllers run as.
func workloadKinds() []ownership.Kind {
	return []ownership.Kind{
		{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "DaemonSet"},
	}
}

func leaseKind() ownership.Kind { return ownership.Kind{Group: "coordination.k8s.io", Kind: "Lease"} }

// Of says who serves a finalizer of an object. It finds that out once for all objects of which the answer
// is the same.
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
		a = x.find(o, finalizer)
		x.answers[k] = a
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
			return x.ofBuiltIn(builtin{"a controller", p}, finalizer)
		}
	}
	candidates := x.candidates(o, clues)
	if len(candidates) == 0 {
		return x.nobody(o, finalizer, clues, evidence)
	}
	for n := range candidates {
		x.judge(&candidates[n], o)
	}
	// The surest first; of those that are equally sure, one that works: two halves of one operator
	// match the same name, and only one of them needs to live.
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
