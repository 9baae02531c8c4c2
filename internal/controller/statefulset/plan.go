// Package statefulset keeps the pods of a StatefulSet: each with a name, an ordinal and
// volumes that are its own for as long as the set lasts.
//
//	identity.go   the pod and the volume claims of an ordinal
//	plan.go       Decide: which ordinals get a pod, which pods are deleted (pure)
//	retention.go  claimOwners: the owners that a volume claim is deleted with (pure)
//	controller.go reads, carries out, writes the status; volume_claims.go does so for the
//	              volume claims
//
// There cannot be two pods of one ordinal, because names are unique on the server. A pod is
// therefore never created before its predecessor of the same name is gone. If the predecessor is on
// an unreachable node, this takes until the node is back or removed.
//
// The controller does not undo what a user does: pods below a partition that have a newer
// revision keep it.
package statefulset

import (
	"cmp"
	"iter"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// burst is the maximum number of pods that are created or deleted for one set before other sets get
// their turn.
const burst = 500

// Set is the desired state.
type Set struct {
	Name string
	// Start is the first ordinal.
	Start, Replicas int
	// Parallel means that pods are created and deleted without waiting for others.
	Parallel bool
	// OnDelete leaves it to users to delete pods of another revision.
	OnDelete bool
	// Partition is the number of pods, counted from the first, that are not updated.
	Partition int
	// MaxUnavailable is the number of pods that may be unavailable during an update; at least 1.
	MaxUnavailable int
	// MinReady is how long a pod must have been ready to count as available.
	MinReady time.Duration
	// Claims are the names of the volume claim templates.
	Claims []string
	// Current and Update are the revisions of the pods before and after an update.
	Current, Update string
	// Ending is set while the object is being deleted: its pods are left to the garbage
	// collector.
	Ending bool
}

// Observed is the state of the pods that the caches show.
type Observed struct {
	// Mine are the pods that the set controls.
	Mine []*corev1.Pod
	// Leaving are the pods among Mine whose deletion was requested but which the cache does not
	// yet show as terminating.
	Leaving map[types.UID]bool
}

// Place is an ordinal without a pod, and the revision of the pod to create.
type Place struct {
	Ordinal  int
	Revision string
}

// Counts are the numbers in the status. The first two include terminating pods.
type Counts struct {
	Replicas, Ready, Available, Current, Updated int32
}

// Plan is the result of Decide.
type Plan struct {
	// Label are pods that lack their identity labels.
	Label []*corev1.Pod
	// Incomplete are pods without the volume of a claim template: adopted ones, from before the set was
	// created again with that template. The volumes of a pod cannot be changed, so the set waits until
	// users delete these pods.
	Incomplete []*corev1.Pod
	Create     []Place
	Delete     []*corev1.Pod
	Counts     Counts
	// Updated is set if all pods have the revision Update, which thereby becomes the current
	// one.
	Updated bool
	// RequeueAfter is the time until a pod becomes available, for which there is no event; 0 means
	// never.
	RequeueAfter time.Duration
}

// state is the state of a place.
type state int

const (
	missing  state = iota
	finished       // its containers have ended for good: to be deleted and replaced
	leaving        // is terminating
	unready        // not running, or not ready
	young          // ready, but not for minReadySeconds
	available
)

// place is an ordinal, with its pod if there is one.
type place struct {
	Place

	pod   *corev1.Pod
	state state
	// outdated is set if a pod of the revision Update must replace the pod.
	outdated bool
}

// Decide plans the next step for a set.
//
// In the order of ordinals, a place gets its pod when all places before it are available. When all
// are, condemned pods are deleted one at a time, and then pods of other revisions; both start with
// the highest ordinal. A pod that is not available halts all of that, even if its template is the
// cause: users must delete such a pod. With Parallel all of it happens at once, except for the
// update.
func Decide(set Set, seen Observed, now time.Time) Plan {
	var p Plan
	taken, condemned := p.arrange(set, seen, now)
	if set.Ending {
		return p
	}
	for _, at := range taken {
		if at.pod.Labels[appsv1.StatefulSetPodNameLabel] != at.pod.Name && at.state != leaving {
			p.Label = append(p.Label, at.pod)
		}
	}
	if set.Parallel {
		if p.fill(set, taken) {
			for _, c := range condemned {
				p.remove(c)
			}
			p.update(set, taken)
		}
	} else if p.advance(set, taken) && p.shrink(condemned) {
		p.update(set, taken)
	}
	p.Create, p.Delete = p.Create[:min(len(p.Create), burst)], p.Delete[:min(len(p.Delete), burst)]
	return p
}

// arrange counts the pods, and returns those in a place, the lowest ordinal first, and the condemned ones, which have no
// place, the highest ordinal first. Places without a pod are in neither list: users may desire two billion of them.
func (p *Plan) arrange(set Set, seen Observed, now time.Time) (taken, condemned []place) {
	for _, pod := range seen.Mine {
		ordinal, ok := ordinalOf(set.Name, pod.Name)
		if !ok {
			continue
		}
		at := place{Place: set.place(ordinal), pod: pod, state: p.stateOf(set, seen, pod, now)}
		p.count(set, at)
		if i := ordinal - set.Start; i >= 0 && i < set.Replicas {
			at.outdated = !set.OnDelete && i >= set.Partition && pod.Labels[appsv1.ControllerRevisionHashLabelKey] != set.Update
			taken = append(taken, at)
		} else {
			condemned = append(condemned, at)
		}
	}
	slices.SortFunc(taken, func(a, b place) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	slices.SortFunc(condemned, func(a, b place) int { return cmp.Compare(b.Ordinal, a.Ordinal) })
	n := int32(set.Replicas)
	p.Updated = p.Counts.Updated == n && p.Counts.Ready == n && p.Counts.Replicas == n
	return taken, condemned
}

// place returns an ordinal with the revision of a pod to create there.
func (s Set) place(ordinal int) Place {
	if !s.OnDelete && ordinal-s.Start < s.Partition {
		return Place{ordinal, s.Current}
	}
	return Place{ordinal, s.Update}
}

// places yields all places in the order of ordinals, with the pods of the taken ones.
func (s Set) places(taken []place) iter.Seq[place] {
	return func(yield func(place) bool) {
		for i := range s.Replicas {
			at := place{Place: s.place(s.Start + i), state: missing}
			if len(taken) > 0 && taken[0].Ordinal == at.Ordinal {
				at, taken = taken[0], taken[1:]
			}
			if !yield(at) {
				return
			}
		}
	}
}

func (p *Plan) stateOf(set Set, seen Observed, pod *corev1.Pod, now time.Time) state {
	in, ready := pods.AvailableIn(pod, set.MinReady, now)
	switch {
	case pods.IsTerminating(pod) || seen.Leaving[pod.UID]:
		return leaving
	case pods.IsFinished(pod):
		return finished
	case !ready || pod.Status.Phase != corev1.PodRunning:
		return unready
	case in <= 0:
		return available
	case p.RequeueAfter == 0 || in < p.RequeueAfter:
		p.RequeueAfter = in
	}
	return young
}

func (p *Plan) count(set Set, at place) {
	p.Counts.Replicas++
	if at.pod.Status.Phase == corev1.PodRunning && podutils.IsPodReady(at.pod) {
		p.Counts.Ready++
	}
	if at.state == available {
		p.Counts.Available++
	}
	if at.state == leaving {
		return
	}
	// While there is no update the two are the same revision.
	switch revision := at.pod.Labels[appsv1.ControllerRevisionHashLabelKey]; revision {
	case set.Update:
		p.Counts.Updated++
		if set.Current == set.Update {
			p.Counts.Current++
		}
	case set.Current:
		p.Counts.Current++
	}
}

// advance takes the next step at the lowest place that needs one, and reports whether all places are
// done: none needs a step or must be waited for.
func (p *Plan) advance(set Set, taken []place) bool {
	for at := range set.places(taken) {
		switch at.state {
		case available:
			if mountsClaims(at.pod, set.Claims) {
				continue
			}
			p.Incomplete = append(p.Incomplete, at.pod)
		case missing:
			p.Create = append(p.Create, at.Place)
		case finished:
			p.remove(at)
		case leaving, unready, young:
		}
		return false
	}
	return true
}

// fill gives places a pod, a burst of them at a time, and reports whether all existing pods are complete.
func (p *Plan) fill(set Set, taken []place) bool {
	for _, at := range taken {
		switch at.state {
		case finished:
			p.remove(at)
		case missing, leaving, unready, young, available:
			if !mountsClaims(at.pod, set.Claims) {
				p.Incomplete = append(p.Incomplete, at.pod)
			}
		}
	}
	for at := range set.places(taken) {
		if len(p.Create) == burst || len(taken)+len(p.Create) == set.Replicas {
			break
		}
		if at.state == missing {
			p.Create = append(p.Create, at.Place)
		}
	}
	return len(p.Incomplete) == 0
}

// shrink deletes the condemned pod with the highest ordinal, and reports whether there are no
// condemned pods. A pod that is not available is deleted only if all pods below it are available, or
// if it has ended for good: it cannot become available.
func (p *Plan) shrink(condemned []place) bool {
	if len(condemned) == 0 {
		return true
	}
	highest, isAvailable := condemned[0], func(c place) bool { return c.state == available }
	if isAvailable(highest) || highest.state == finished || !slices.ContainsFunc(condemned[1:], func(c place) bool { return !isAvailable(c) }) {
		p.remove(highest)
	}
	return false
}

func (p *Plan) remove(at place) {
	if at.state != leaving {
		p.Delete = append(p.Delete, at.pod)
	}
}

// update deletes pods of other revisions, the highest ordinal first, as long as at most
// MaxUnavailable of all pods are unavailable. With Parallel, pods that are unavailable already
// are deleted first, all of them: a template that never becomes ready can be rolled back.
func (p *Plan) update(set Set, taken []place) {
	unavailable := set.Replicas
	for _, at := range slices.Backward(taken) {
		if at.state == available {
			unavailable--
		} else if set.Parallel && at.outdated && (at.state == unready || at.state == young) {
			p.remove(at)
		}
	}
	for _, at := range slices.Backward(taken) {
		if at.outdated && at.state == available && unavailable < set.MaxUnavailable {
			p.remove(at)
			unavailable++
		}
	}
}
