// Package daemonset keeps one pod of a DaemonSet on every node that fits.
//
//	placement.go   FitOf: which nodes fit, and the pod for a node (pure)
//	plan.go        Decide: where a pod is made, which pods go (pure)
//	rollout.go     the part of Decide that replaces pods of another revision (pure)
//	controller.go  reads, carries out, writes the status
//
// A pod is meant for its node by its affinity, and bound by the scheduler. Without a
// surge a node gets its pod when none is left there, not even a terminating one: two
// may want the same port. Pods that ended by themselves are replaced, the failed ones
// after a pause that grows.
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

	"github.com/coppice-dev/coppice/internal/pods"
)

// burst is the most pods that are created or deleted for one set before the others
// have their turn.
const burst = 250

// Set is what is wished for.
type Set struct {
	// Hash is in the label of pods that are made from the present template.
	Hash string
	// MinReady is how long a pod must have been ready to count as available.
	MinReady time.Duration
	// OnDelete leaves it to people to delete pods of another revision.
	OnDelete bool
	// MaxUnavailable and MaxSurge bound an update; nil is 0. Percentages are of the nodes
	// that fit, rounded up.
	MaxUnavailable, MaxSurge *intstr.IntOrString
	// Ending tells that the object is being deleted: its pods are the collector's.
	Ending bool
}

// Observed is what there is.
type Observed struct {
	// Nodes are all there are.
	Nodes map[string]Fit
	// Mine are the pods that the set controls.
	Mine []*corev1.Pod
	// Leaving are those of them whose deletion was asked for and is not seen yet.
	Leaving map[types.UID]bool
	// Pause is for how long yet failed pods of a node are left alone.
	Pause map[string]time.Duration
}

// Counts are for the status: numbers of nodes.
type Counts struct {
	Desired, Current, Misscheduled, Ready, Updated, Available int32
}

// Plan is what there is to do.
type Plan struct {
	// Create are nodes.
	Create []string
	Delete []*corev1.Pod
	Counts Counts
	// Again is when a pod becomes available, or a pause ends, without an event; 0 for never.
	Again time.Duration
}

// place is a node with its pods. Those that have ended and are terminating are left out:
// nothing of them is there any more.
type place struct {
	node string
	fit  Fit
	// all are the pods on the node or meant for it, and live those of them that run or are
	// going to; both with the oldest first.
	all, live []*corev1.Pod
	ended     []*corev1.Pod
	// crowded tells that pods were taken away because there were too many.
	crowded bool
	// paused tells that a pod has failed there, and the next one is to come later.
	paused bool
}

// Decide says what to do about a set: first that there is one pod on each node that
// fits and none elsewhere, then that they are of the present revision.
func Decide(set Set, seen Observed, now time.Time) Plan {
	d := decider{set: set, now: now, pause: seen.Pause}
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
	d.plan.Delete = d.plan.Delete[:min(len(d.plan.Delete), burst)]
	return d.plan
}

func scaled(n *intstr.IntOrString, total int) int {
	if n == nil {
		return 0
	}
	value, err := intstr.GetScaledValueFromIntOrPercent(n, total, true)
	if err != nil {
		return 0 // validation has seen it
	}
	return value
}

// arrange puts the pods to their nodes, in the order of names. The pods that are lost
// wait for a node that there is not; those that are on such a node are not the set's to
// remove.
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

// older orders pods: bound ones first, then by age.
func older(a, b *corev1.Pod) int {
	if bound := a.Spec.NodeName != ""; bound != (b.Spec.NodeName != "") {
		if bound {
			return -1
		}
		return 1
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// decider is a Plan in the making.
type decider struct {
	set   Set
	now   time.Time
	pause map[string]time.Duration
	plan  Plan

	maxUnavailable, maxSurge int
}

func (d *decider) again(in time.Duration) {
	if in > 0 && (d.plan.Again == 0 || in < d.plan.Again) {
		d.plan.Again = in
	}
}

func (d *decider) remove(list ...*corev1.Pod) { d.plan.Delete = append(d.plan.Delete, list...) }

func (d *decider) isUpdated(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == d.set.Hash
}

func (d *decider) isAvailable(pod *corev1.Pod) bool {
	return pods.IsAvailable(pod, d.set.MinReady, d.now)
}

// count counts a node by its oldest pod, so that one with a pod too many is not done yet.
func (d *decider) count(at *place) {
	for _, pod := range at.live {
		in, _ := pods.AvailableIn(pod, d.set.MinReady, d.now)
		d.again(in)
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
	if pods.IsReady(oldest) {
		n.Ready++
	}
	if d.isAvailable(oldest) {
		n.Available++
	}
	if d.isUpdated(oldest) {
		n.Updated++
	}
}

// settle sees to it that a node has one pod, or two while a surge goes on, or none.
func (d *decider) settle(at *place) {
	if at.fit == Unfit {
		d.remove(at.ended...)
		d.remove(at.live...)
		at.live = nil
		return
	}
	for _, pod := range at.ended {
		if in := d.pause[at.node]; pod.Status.Phase == corev1.PodFailed && in > 0 {
			d.again(in)
			at.paused = true
			continue
		}
		d.remove(pod)
	}
	kept := at.live[:min(len(at.live), 1)]
	if d.maxSurge > 0 {
		kept = d.oldestOfEach(at.live)
	}
	for _, pod := range at.live {
		if !slices.Contains(kept, pod) {
			d.remove(pod)
			at.crowded = true
		}
	}
	at.live = kept
	if at.fit == Fitting && len(at.live) == 0 && !at.paused && (len(at.all) == 0 || d.maxSurge > 0) {
		d.plan.Create = append(d.plan.Create, at.node)
	}
}

// oldestOfEach are the oldest pod of the present revision and the oldest of another.
func (d *decider) oldestOfEach(list []*corev1.Pod) []*corev1.Pod {
	var kept []*corev1.Pod
	for _, updated := range []bool{true, false} {
		if i := slices.IndexFunc(list, func(pod *corev1.Pod) bool { return d.isUpdated(pod) == updated }); i >= 0 {
			kept = append(kept, list[i])
		}
	}
	return kept
}
