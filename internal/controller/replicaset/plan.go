// Package replicas keeps as many pods as a ReplicaSet or a ReplicationController says.
//
// The two are the same rules with two forms of the object: kinds.go reads a Set from
// each and writes its Status back, Decide is the rules (pure), controller.go gives it
// the pods and carries out what it says.
package replicaset

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/pods"
)

// burst is the most pods that are created or deleted for one Set before the others
// have their turn.
const burst = 500

// Set is what is wished for.
type Set struct {
	Replicas int32
	Template *corev1.PodTemplateSpec
	// MinReady is how long a pod must have been ready to count as available.
	MinReady time.Duration
	// Ending tells that the object is being deleted: its pods are the collector's.
	Ending bool
}

// Counts are of the pods that the object controls and that are not to end.
type Counts struct {
	Replicas, FullyLabeled, Ready, Available int32
	// Terminating pods are not in the others.
	Terminating int32
}

// Plan is what there is to do.
type Plan struct {
	Create int
	Delete []*corev1.Pod
	Counts Counts
	// Again is when a pod becomes available without an event; 0 for never.
	Again time.Duration
}

// Observed are the pods there are.
type Observed struct {
	// Mine are those that the object controls.
	Mine []*corev1.Pod
	// Leaving are those of them whose deletion was asked for and is not seen yet.
	Leaving map[types.UID]bool
	// Related are those of other revisions of the same application: the fewer of all of
	// them are on a node, the longer a pod there stays.
	Related []*corev1.Pod
}

// Decide says what to do about a Set. Pods that have finished or are being deleted
// count no more: others take their place at once.
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
		p.Delete = pods.First(active, append(active, seen.Related...), now)[:min(surplus, burst)]
	}
	return p
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
		} else if p.Again == 0 || in < p.Again {
			p.Again = in
		}
	}
}
