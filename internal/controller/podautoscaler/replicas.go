package podautoscaler

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/podutils"
)

const (
	// cpuInitialization is how long a pod may use much CPU because of its start.
	cpuInitialization = 5 * time.Minute
	// initialReadiness is the time after its start in which a pod that becomes unready counts as
	// never ready.
	initialReadiness = 30 * time.Second
)

// Sample is the value of a metric for a pod.
type Sample struct {
	Value  int64 // in thousandths
	At     time.Time
	Window time.Duration // the time over which it was measured
}

// tolerances are how far the ratio of usage to target may be from 1 without a change of scale.
type tolerances struct{ down, up float64 }

func (t tolerances) admit(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// census has the pods of a target, classified by their samples.
type census struct {
	values  map[string]int64 // of the pods that count
	ready   int              // how many of the pods count
	unready []string         // these pods do not call for more replicas
	missing []string         // pods without a sample
}

// errNoPods means that the selector selects no pods.
var errNoPods = errors.New("no pods returned by selector while calculating replica count")

// newCensus groups pods. CPU counts only once a pod has started.
func newCensus(pods []*corev1.Pod, samples map[string]Sample, resource corev1.ResourceName, now time.Time) (census, error) {
	c := census{values: make(map[string]int64, len(samples))}
	if len(pods) == 0 {
		return c, errNoPods
	}
	for name, s := range samples {
		c.values[name] = s.Value
	}
	for _, pod := range pods {
		sample, found := samples[pod.Name]
		switch {
		case pod.DeletionTimestamp != nil, pod.Status.Phase == corev1.PodFailed:
			delete(c.values, pod.Name)
		case pod.Status.Phase == corev1.PodPending, found && resource == corev1.ResourceCPU && isStarting(pod, sample, now):
			delete(c.values, pod.Name)
			c.unready = append(c.unready, pod.Name)
		case !found:
			c.missing = append(c.missing, pod.Name)
		default:
			c.ready++
		}
	}
	if len(c.values) == 0 {
		return c, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	return c, nil
}

// isStarting reports whether a pod's use of the CPU does not show its load yet.
func isStarting(pod *corev1.Pod, sample Sample, now time.Time) bool {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if i < 0 || pod.Status.StartTime == nil {
		return true
	}
	ready := &pod.Status.Conditions[i]
	started, changed := pod.Status.StartTime.Time, ready.LastTransitionTime.Time
	if started.Add(cpuInitialization).After(now) {
		return ready.Status == corev1.ConditionFalse || sample.At.Before(changed.Add(sample.Window))
	}
	return ready.Status == corev1.ConditionFalse && started.Add(initialReadiness).After(changed)
}

// usage compares the usage of pods with the target.
type usage struct {
	ratio func(values map[string]int64) (float64, error)
	// full is the assumed usage of a pod without a sample, if the other pods call for fewer replicas.
	full func(pod string) int64
}

// replicas returns how many pods the usage calls for. Unready pods and pods without a sample
// dampen a change, but never reverse its direction.
func (c *census) replicas(current int32, u usage, t tolerances) (int32, error) {
	ratio, err := u.ratio(c.values)
	if err != nil {
		return 0, err
	}
	unreadyMatter := len(c.unready) > 0 && ratio > 1
	if !unreadyMatter && len(c.missing) == 0 {
		if t.admit(ratio) {
			return current, nil
		}
		return ceiling(ratio * float64(c.ready)), nil
	}
	values := c.dampen(ratio, u)
	dampened, err := u.ratio(values)
	if err != nil {
		return 0, err
	}
	called := ceiling(dampened * float64(len(values)))
	if t.admit(dampened) || turns(dampened > 1, ratio > 1, ratio < 1) || turns(dampened > 1, called > current, called < current) {
		return current, nil
	}
	return called, nil
}

// turns reports whether a call for more replicas goes down, or a call for fewer goes up.
func turns(more, up, down bool) bool { return more && down || !more && up }

// dampen adds the pods without a sample: as busy if the usage calls for fewer pods, as idle if it
// calls for more. Then it adds unready pods as idle, too.
func (c *census) dampen(ratio float64, u usage) map[string]int64 {
	values := maps.Clone(c.values)
	for _, pod := range c.missing {
		if ratio < 1 {
			values[pod] = u.full(pod)
		} else if ratio > 1 {
			values[pod] = 0
		}
	}
	if ratio > 1 {
		for _, pod := range c.unready {
			values[pod] = 0
		}
	}
	return values
}

// ceiling rounds up to a whole number, within the range of a number of replicas.
func ceiling(n float64) int32 {
	return int32(min(math.Ceil(n), math.MaxInt32))
}

// average returns the average of values.
func average(values map[string]int64) int64 {
	var sum int64
	for _, v := range values {
		sum += v
	}
	return sum / int64(len(values))
}

// averageUsage is the usage of pods with a target for their average.
func averageUsage(target int64) usage {
	return usage{
		ratio: func(values map[string]int64) (float64, error) { return float64(average(values)) / float64(target), nil },
		full:  func(string) int64 { return target },
	}
}

// utilization returns the usage of pods in percent of their requests, and the average usage of a
// pod.
func utilization(values, requests map[string]int64) (percent int32, average int64, err error) {
	var used, requested, pods int64
	for name, v := range values {
		if request, ok := requests[name]; ok { // else the sample is of another pod
			used, requested, pods = used+v, requested+request, pods+1
		}
	}
	if requested == 0 {
		return 0, 0, errors.New("no metrics returned matched known pods")
	}
	share := used * 100 / requested
	if used > math.MaxInt64/100 { // as from 92 TiB, in thousandths of a byte
		share = used / max(requested/100, 1)
	}
	return int32(min(share, math.MaxInt32)), used / pods, nil
}

// utilizationUsage is the usage of pods with a target percentage of their requests.
func utilizationUsage(requests map[string]int64, target int32) usage {
	return usage{
		ratio: func(values map[string]int64) (float64, error) {
			percent, _, err := utilization(values, requests)
			return float64(percent) / float64(target), err
		},
		full: func(pod string) int64 { return requests[pod] * int64(max(100, target)) / 100 },
	}
}

// requestsOf returns the requests of pods for a resource, in thousandths: of a container, of the
// pod, or of its containers.
func requestsOf(pods []*corev1.Pod, container string, resource corev1.ResourceName) (map[string]int64, error) {
	requests := make(map[string]int64, len(pods))
	for _, pod := range pods {
		var err error
		if container == "" && resourcehelper.IsPodLevelRequestsSet(pod) {
			requests[pod.Name], err = podRequest(pod, resource)
		} else {
			requests[pod.Name], err = containerRequests(pod, container, resource)
		}
		if err != nil {
			return nil, err
		}
	}
	return requests, nil
}

func podRequest(pod *corev1.Pod, resource corev1.ResourceName) (int64, error) {
	request, ok := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[resource]
	if !ok {
		return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", resource, pod.Name)
	}
	return request.MilliValue(), nil
}

// containerRequests returns the requests of the container with that name, or the sum for all
// containers that run as long as the pod.
func containerRequests(pod *corev1.Pod, container string, resource corev1.ResourceName) (int64, error) {
	var sum int64
	found := false
	for _, c := range slices.Concat(pod.Spec.Containers, sidecars(pod)) {
		if container != "" && container != c.Name {
			continue
		}
		request, ok := c.Resources.Requests[resource]
		if !ok {
			return 0, fmt.Errorf("missing request for %s in container %s of Pod %s", resource, c.Name, pod.Name)
		}
		sum += request.MilliValue()
		found = true
	}
	if container != "" && !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", container, pod.Name)
	}
	return sum, nil
}

func sidecars(pod *corev1.Pod) []corev1.Container {
	var all []corev1.Container
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			all = append(all, c)
		}
	}
	return all
}

// replicasForRatio returns how many pods a ratio of usage to target calls for, if the usage is not
// measured per pod: it applies to the ready pods, or to one if there are to be none yet.
func replicasForRatio(current int32, ratio float64, pods []*corev1.Pod, t tolerances) (int32, error) {
	if current == 0 {
		return ceiling(ratio), nil
	}
	if t.admit(ratio) {
		return current, nil
	}
	if len(pods) == 0 {
		return 0, fmt.Errorf("unable to calculate ready pods: %w", errNoPods)
	}
	ready := 0
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodRunning && podutils.IsPodReady(pod) {
			ready++
		}
	}
	return ceiling(ratio * float64(ready)), nil
}

// replicasPerPod returns how many pods are needed if each takes target of the usage, and how much
// each of the current pods takes.
func replicasPerPod(current int32, used, target int64, t tolerances) (replicas int32, each int64) {
	replicas = current
	if !t.admit(float64(used) / (float64(target) * float64(current))) {
		replicas = ceiling(float64(used) / float64(target))
	}
	if used == math.MaxInt64 {
		return replicas, used
	}
	return replicas, int64(math.Ceil(float64(used) / float64(max(current, 1))))
}

// sum adds values; a sum that is too large is the largest number.
func sum(values []int64) int64 {
	var total int64
	for _, v := range values {
		if v > 0 && total > math.MaxInt64-v {
			return math.MaxInt64
		}
		total += v
	}
	return total
}
