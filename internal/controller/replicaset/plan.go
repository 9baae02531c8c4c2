// Package replicaset maintains the number of pods that a ReplicaSet or ReplicationController
// specifies.
//
// Both kinds have the same rules: kinds.go reads a Set from either and writes its status back,
// Decide implements the rules (pure), and controller.go passes it the pods and carries out its
// plan.
package replicaset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// burst is the maximum number of pods that are created or deleted for one Set before other Sets
// get their turn.
const burst = 500

// Set is the desired state.
type Set struct {
	Replicas int32
	Template *corev1.PodTemplateSpec
	// MinReady is how long a pod must have been ready to count as available.
	MinReady time.Duration
	// Ending is set while the object is being deleted: its pods are left to the garbage
	// collector.
	Ending bool
	// Reported are the counts in the status.
	Reported Counts
}

// Counts are the numbers in the status, of the active pods that the object controls.
type Counts struct {
	Replicas, FullyLabeled, Ready, Available int32
	// Terminating counts pods that are not in the other counts.
	Terminating int32
}

// Plan is the result of Decide.
type Plan struct {
	Create int
	Delete []*corev1.Pod
	Counts Counts
	// Interim is how long the counts may wait to be written, because others are expected meanwhile; 0 means not at all.
	Interim time.Duration
	// RequeueAfter is the time until a pod becomes available, for which there is no event; 0 means
	// never.
	RequeueAfter time.Duration
}

// Observed is the state of the pods that the caches show.
type Observed struct {
	// Mine are the pods that the object controls.
	Mine []*corev1.Pod
	// Leaving are the pods among Mine whose deletion was requested but which the cache does not
	// yet show as terminating.
	Leaving map[types.UID]bool
	// Refused is how often the deletions of pods among Mine were refused.
	Refused map[types.UID]int
	// Related are the pods of other revisions of the same Deployment: pods are deleted first from
	// nodes that run more pods of all revisions.
	Related []*corev1.Pod
	// HasNodes means that the cluster has nodes, so that pods are about to be bound.
	HasNodes bool
}

// Decide plans the next step for a Set. Pods that have finished or are being deleted no longer
// count: they are replaced at once.
func Decide(set Set, seen Observed, now time.Time) Plan {
	var active []*corev1.Pod
	var p Plan
	for _, pod := range seen.Mine {
		switch {
		case pods.IsTerminating(pod) && !pods.IsFinished(pod):
			p.Counts.Terminating++
		case pods.IsActive(pod) && !seen.Leaving[pod.UID]:
			active = append(active, pod)
		}
	}
	p.count(set, active, now)
	surplus := len(active) - int(set.Replicas)
	switch {
	case set.Ending:
	case surplus < 0:
		p.Create = min(-surplus, burst)
	case surplus > 0:
		order := pods.DeletionOrder(active, append(active, seen.Related...), now)
		slices.SortStableFunc(order, pods.LessRefused(seen.Refused))
		p.Delete = order[:min(surplus, burst)]
	}
	p.Interim = p.interim(set, active, seen, now)
	return p
}

// interim returns how long the counts may wait. Nobody waits for the status of an object that is being deleted. Pods that
// are created now, or were a moment ago, are about to change the counts again. Bad news never waits.
func (p *Plan) interim(set Set, active []*corev1.Pod, seen Observed, now time.Time) time.Duration {
	switch {
	case set.Ending:
		return pods.EndHold
	case p.Counts.Replicas < set.Reported.Replicas, p.Counts.Ready < set.Reported.Ready, p.Counts.Available < set.Reported.Available:
		return 0
	}
	starting := p.Create
	for _, pod := range active {
		if pods.IsStarting(pod, now) || seen.HasNodes && pods.IsToBeBound(pod, now) {
			starting++
		}
	}
	if starting == 0 {
		return 0
	}
	return pods.StartHold(starting)
}

func (p *Plan) count(set Set, active []*corev1.Pod, now time.Time) {
	template := labels.SelectorFromSet(set.Template.Labels)
	for _, pod := range active {
		p.Counts.Replicas++
		if template.Matches(labels.Set(pod.Labels)) {
			p.Counts.FullyLabeled++
		}
		in, ready := pods.AvailableIn(pod, set.MinReady, now)
		if !ready {
			continue
		}
		p.Counts.Ready++
		if in <= 0 {
			p.Counts.Available++
		} else if p.RequeueAfter == 0 || in < p.RequeueAfter {
			p.RequeueAfter = in
		}
	}
}
