package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// maxCompared is the maximum number of fitting nodes that are compared. More would take longer
// and hardly yield a better node. Compare minFeasibleNodesToFind of kube-scheduler.
const maxCompared = 100

// taintPenalty is the penalty of a node with a PreferNoSchedule taint. It exceeds the highest
// weight of a preferred affinity.
const taintPenalty = 101

// Unplaced is the error that no node fits a pod.
type Unplaced struct {
	Nodes   int
	Reasons map[string]int // the number of nodes that each reason rules out

	about []labels.Selector // the selectors of the pod's constraints on other pods
}

// Concerns reports whether the addition, removal or change of another pod may satisfy the pod's
// constraints on other pods. It ignores resources.
func (u Unplaced) Concerns(other *corev1.Pod) bool {
	return slices.ContainsFunc(u.about, func(s labels.Selector) bool { return s.Matches(labels.Set(other.Labels)) })
}

// Error returns the message in the format of kube-scheduler.
func (u Unplaced) Error() string {
	var reasons []string
	for reason, count := range u.Reasons {
		reasons = append(reasons, fmt.Sprintf("%d %s", count, reason))
	}
	slices.Sort(reasons)
	text := fmt.Sprintf("0/%d nodes are available", u.Nodes)
	if len(reasons) > 0 {
		text += ": " + strings.Join(reasons, ", ")
	}
	return text + "."
}

// request is a pod that needs a node.
type request struct {
	use
	required nodeaffinity.RequiredNodeAffinity
	prefers  *nodeaffinity.PreferredSchedulingTerms
	peers    *peers // nil if only the resources of other pods matter
}

// newRequest returns the request of a pod, given the pods on nodes.
func (c *Cluster) newRequest(pod *corev1.Pod) (*request, error) {
	r := &request{use: useOf(pod), required: nodeaffinity.GetRequiredNodeAffinity(pod)}
	var err error
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		if r.prefers, err = nodeaffinity.NewPreferredSchedulingTerms(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution); err != nil {
			return nil, fmt.Errorf("preferred node affinity: %w", err)
		}
	}
	r.peers, err = c.peersOf(pod, r.required)
	return r, err
}

// Place finds the node for a pod. The caller then adds the pod to the node. Each call starts with
// another node, so that Place does not always check the same ones. The error is an Unplaced, or the
// reason why the pod is invalid.
func (c *Cluster) Place(pod *corev1.Pod) (*Node, error) {
	if needsDevices(pod) {
		return nil, Unplaced{Nodes: len(c.order), Reasons: map[string]int{noDevices: len(c.order)}}
	}
	r, err := c.newRequest(pod)
	if err != nil {
		return nil, err
	}
	unplaced := Unplaced{Nodes: len(c.order), Reasons: map[string]int{}}
	var best *Node
	var bestScore score
	fit := 0
	for i := range c.order {
		n := c.order[(c.first+i)%len(c.order)]
		reasons, err := r.obstacles(n)
		if err != nil {
			return nil, err
		}
		for _, reason := range reasons {
			unplaced.Reasons[reason]++
		}
		if len(reasons) > 0 {
			continue
		}
		if s := r.score(n); best == nil || s.betterThan(bestScore) {
			best, bestScore = n, s
		}
		if fit++; fit >= maxCompared && !r.peers.prefer() {
			break
		}
	}
	if best == nil {
		unplaced.about = r.peers.selectors()
		return nil, unplaced
	}
	c.first = (c.first + 1) % len(c.order)
	return best, nil
}

// obstacles returns the reasons why a pod cannot go to a node. It is empty if the pod can.
func (r *request) obstacles(n *Node) ([]string, error) {
	spec := &n.object.Spec
	matches, err := r.required.Match(n.object)
	if err != nil {
		return nil, fmt.Errorf("required node affinity: %w", err)
	}
	taint, tainted := untolerated(r.pod, n, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
	unschedulable := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	switch {
	case spec.Unschedulable && !schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, r.pod.Spec.Tolerations, &unschedulable, false):
		return []string{"node(s) were unschedulable"}, nil
	case !isReady(n.object):
		return []string{"node(s) were not ready"}, nil
	case tainted:
		return []string{fmt.Sprintf("node(s) had untolerated taint {%s: %s}", taint.Key, taint.Value)}, nil
	case !matches:
		return []string{"node(s) didn't match Pod's node affinity/selector"}, nil
	case slices.ContainsFunc(r.ports, n.hasPort):
		return []string{"node(s) didn't have free ports for the requested pod ports"}, nil
	}
	if reasons := r.insufficient(n); len(reasons) > 0 {
		return reasons, nil
	}
	if reason := r.peers.obstacle(n); reason != "" {
		return []string{reason}, nil
	}
	return nil, nil
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func untolerated(pod *corev1.Pod, n *Node, effects ...corev1.TaintEffect) (corev1.Taint, bool) {
	return schedulinghelper.FindMatchingUntoleratedTaint(klog.Logger{}, n.object.Spec.Taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool { return slices.Contains(effects, t.Effect) }, false)
}

// insufficient returns a reason for each resource that the node lacks.
func (r *request) insufficient(n *Node) []string {
	var reasons []string
	for _, name := range slices.Sorted(maps.Keys(r.requests)) {
		if amount := r.requests[name]; amount == 0 || amount <= n.free[name] {
			continue
		}
		if name == corev1.ResourcePods {
			reasons = append(reasons, "Too many pods")
		} else {
			reasons = append(reasons, "Insufficient "+string(name))
		}
	}
	return reasons
}

// score ranks nodes that fit.
type score struct {
	preferred int64
	near      int64   // preferred because of the pods there
	crowd     float64 // pods from which it should be spread
	siblings  int     // pods of the same controller
	left      float64
}

func (s score) betterThan(t score) bool {
	switch {
	case s.preferred != t.preferred:
		return s.preferred > t.preferred
	case s.near != t.near:
		return s.near > t.near
	case s.crowd != t.crowd:
		return s.crowd < t.crowd
	case s.siblings != t.siblings:
		return s.siblings < t.siblings
	}
	return s.left > t.left
}

func (r *request) score(n *Node) score {
	s := score{left: n.left()}
	s.near, s.crowd = r.peers.score(n)
	if r.prefers != nil {
		s.preferred = r.prefers.Score(n.object)
	}
	if _, tainted := untolerated(r.pod, n, corev1.TaintEffectPreferNoSchedule); tainted {
		s.preferred -= taintPenalty
	}
	if r.owner != "" {
		s.siblings = n.owned[r.owner]
	}
	return s
}

// left returns the unrequested share of the node, as the average of CPU, memory and number of pods.
func (n *Node) left() float64 {
	var sum float64
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		q := n.object.Status.Allocatable[name]
		all := q.Value()
		if name == corev1.ResourceCPU {
			all = q.MilliValue()
		}
		if all > 0 {
			sum += float64(n.free[name]) / float64(all)
		}
	}
	return sum / 3
}
