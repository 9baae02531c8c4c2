// Package daemonset keeps one pod of a DaemonSet on every fitting node.
//
//	placement.go   fitOf: which nodes fit, and the pod for a node (pure)
//	plan.go        Decide: where a pod is created, which pods are deleted (pure)
//	rollout.go     the part of Decide that replaces pods of another revision (pure)
//	controller.go  reads, carries out, writes the status
//
// The affinity of a pod names its node, and the scheduler binds it. Without a surge a node gets a
// pod only when no other pod of the set is left there, not even a terminating one: both may need
// the same port. Pods that have finished are replaced, failed ones with an exponential back-off.
package daemonset

import (
	"cmp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// burst is the maximum number of pods that are created or deleted for one set before other sets
// get their turn.
const burst = 250

// Set is the desired state.
type Set struct {
	// Hash is the value of the label of pods that are created from the current template.
	Hash string
	// MinReady is how long a pod must have been ready to count as available.
	MinReady time.Duration
	// OnDelete leaves it to users to delete pods of another revision.
	OnDelete bool
	// MaxUnavailable and MaxSurge limit an update; nil is 0. Percentages are of the fitting
	// nodes, rounded up.
	MaxUnavailable, MaxSurge *intstr.IntOrString
	// Ending is set while the object is being deleted: its pods are left to the garbage
	// collector.
	Ending bool
}

// Observed is the state that the caches show.
type Observed struct {
	// Nodes has all nodes.
	Nodes map[string]Fit
	// Mine are the pods that the set controls.
	Mine []*corev1.Pod
	// Leaving are the pods among Mine whose deletion was requested but which the cache does not
	// yet show as terminating.
	Leaving map[types.UID]bool
	// Refused is how often the deletions of pods among Mine were refused.
	Refused map[types.UID]int
	// Backoff is, by node, the remaining time in which failed pods are not replaced.
	Backoff map[string]time.Duration
}

// Counts are the numbers of nodes in the status.
type Counts struct {
	Desired, Current, Misscheduled, Ready, Updated, Available int32
}

// Plan is the result of Decide.
type Plan struct {
	// Create has the nodes that get a pod.
	Create []string
	Delete []*corev1.Pod
	Counts Counts
	// RequeueAfter is the time until a pod becomes available or a back-off ends, for which there is no
	// event; 0 means never.
	RequeueAfter time.Duration
}

// place is a node with its pods, except pods that have finished and are terminating: they no
// longer use the node.
type place struct {
	node string
	fit  Fit
	// all are the pods on the node or meant for it, live those among them that are running or
	// will run; both are sorted, oldest first.
	all, live []*corev1.Pod
	ended     []*corev1.Pod
	// crowded means that pods were deleted because there were too many.
	crowded bool
	// backingOff means that a pod failed there and will be replaced later.
	backingOff bool
}

// Decide plans the next step for a set: first to have one pod on each fitting node and none
// elsewhere, then to have all of them at the current revision.
func Decide(set Set, seen Observed, now time.Time) Plan {
	d := decider{set: set, now: now, backoff: seen.Backoff, refused: seen.Refused}
	places, lost := arrange(seen)
	for _, at := range places {
		d.count(at)
	}
	if set.Ending {
		return d.plan
	}
	if n := int(d.plan.Counts.Desired); !set.OnDelete {
		d.maxUnavailable, d.maxSurge = scaled(set.MaxUnavailable, n), scaled(set.MaxSurge, n)
	}
	d.plan.Delete = append(d.plan.Delete, lost...)
	for _, at := range places {
		d.settle(at)
	}
	switch {
	case set.OnDelete:
	case d.maxSurge > 0:
		d.surge(places)
	default:
		d.replace(places)
	}
	d.plan.Create = d.plan.Create[:min(len(d.plan.Create), burst)]
	slices.SortStableFunc(d.plan.Delete, pods.LessRefused(d.refused))
	d.plan.Delete = d.plan.Delete[:min(len(d.plan.Delete), burst)]
	return d.plan
}

func scaled(n *intstr.IntOrString, total int) int {
	if n == nil {
		return 0
	}
	value, err := intstr.GetScaledValueFromIntOrPercent(n, total, true)
	if err != nil {
		return 0 // validation refuses it
	}
	return value
}

// arrange assigns the pods to their nodes, in the order of names. The lost pods wait for a node
// that does not exist; pods that are bound to such a node are left to podgc.
func arrange(seen Observed) (places []*place, lost []*corev1.Pod) {
	byNode := make(map[string]*place, len(seen.Nodes))
	for name, fit := range seen.Nodes {
		at := &place{node: name, fit: fit}
		byNode[name] = at
		places = append(places, at)
	}
	slices.SortFunc(places, func(a, b *place) int { return strings.Compare(a.node, b.node) })
	mine := slices.Clone(seen.Mine)
	slices.SortFunc(mine, older)
	for _, pod := range mine {
		name := nodeOf(pod)
		leaving := pods.IsTerminating(pod) || seen.Leaving[pod.UID]
		at := byNode[name]
		switch {
		case at == nil && name != "" && pod.Spec.NodeName == "" && !leaving:
			lost = append(lost, pod)
		case at == nil, leaving && pods.IsFinished(pod):
		case leaving:
			at.all = append(at.all, pod)
		case pods.IsFinished(pod):
			at.all, at.ended = append(at.all, pod), append(at.ended, pod)
		default:
			at.all, at.live = append(at.all, pod), append(at.live, pod)
		}
	}
	return places, lost
}

// older orders pods: bound ones first, then older ones.
func older(a, b *corev1.Pod) int {
	if bound := a.Spec.NodeName != ""; bound != (b.Spec.NodeName != "") {
		if bound {
			return -1
		}
		return 1
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// decider builds a Plan.
type decider struct {
	set     Set
	now     time.Time
	backoff map[string]time.Duration
	refused map[types.UID]int
	plan    Plan

	maxUnavailable, maxSurge int
}

func (d *decider) requeueAfter(in time.Duration) {
	if in > 0 && (d.plan.RequeueAfter == 0 || in < d.plan.RequeueAfter) {
		d.plan.RequeueAfter = in
	}
}

func (d *decider) remove(list ...*corev1.Pod) { d.plan.Delete = append(d.plan.Delete, list...) }

func (d *decider) isUpdated(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == d.set.Hash
}

func (d *decider) isAvailable(pod *corev1.Pod) bool {
	return pods.IsAvailable(pod, d.set.MinReady, d.now)
}

// count counts a node by its oldest pod, so that one with a surplus pod does not count as updated.
func (d *decider) count(at *place) {
	for _, pod := range at.live {
		in, _ := pods.AvailableIn(pod, d.set.MinReady, d.now)
		d.requeueAfter(in)
	}
	n := &d.plan.Counts
	switch {
	case at.fit == Fitting:
		n.Desired++
	case len(at.all) > 0:
		n.Misscheduled++
		return
	}
	if at.fit != Fitting || len(at.all) == 0 {
		return
	}
	n.Current++
	oldest := at.all[0]
	if podutils.IsPodReady(oldest) {
		n.Ready++
	}
	if d.isAvailable(oldest) {
		n.Available++
	}
	if d.isUpdated(oldest) {
		n.Updated++
	}
}

// settle plans for a node to have one pod, or two during a surge, or none.
func (d *decider) settle(at *place) {
	if at.fit == Unfit {
		d.remove(at.ended...)
		d.remove(at.live...)
		at.live = nil
		return
	}
	for _, pod := range at.ended {
		if in := d.backoff[at.node]; pod.Status.Phase == corev1.PodFailed && in > 0 {
			d.requeueAfter(in)
			at.backingOff = true
			continue
		}
		d.remove(pod)
	}
	kept := at.live[:min(len(at.live), 1)]
	if d.maxSurge > 0 {
		kept = d.oneOfEach(at.live)
	}
	for _, pod := range at.live {
		if !slices.Contains(kept, pod) {
			d.remove(pod)
			at.crowded = true
		}
	}
	at.live = kept
	if at.fit == Fitting && len(at.live) == 0 && !at.backingOff && (len(at.all) == 0 || d.maxSurge > 0) {
		d.plan.Create = append(d.plan.Create, at.node)
	}
}

// oneOfEach returns one pod of the current revision and one of any other: the oldest, but an
// available one if there is one. Pods that were created within one second have no order.
func (d *decider) oneOfEach(list []*corev1.Pod) []*corev1.Pod {
	var kept []*corev1.Pod
	for _, updated := range []bool{true, false} {
		i := slices.IndexFunc(list, func(pod *corev1.Pod) bool { return d.isUpdated(pod) == updated && d.isAvailable(pod) })
		if i < 0 {
			i = slices.IndexFunc(list, func(pod *corev1.Pod) bool { return d.isUpdated(pod) == updated })
		}
		if i >= 0 {
			kept = append(kept, list[i])
		}
	}
	return kept
}
