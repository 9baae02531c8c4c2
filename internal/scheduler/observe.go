package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/pods"
	"github.com/coppice-dev/coppice/internal/scheduler/placement"
)

// observeNode records the current state of a node. Unschedulable pods may fit on it.
func (s *Scheduler) observeNode(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	s.podsNeeded.Do(func() { close(s.startPods) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.known[node.Name]; known != nil {
		known.Update(node)
	} else {
		known = placement.NewNode(node)
		s.known[node.Name] = known
		s.order = append(s.order, known)
		s.addPodsLocked(known)
	}
	s.retryLocked()
}

// addPodsLocked adds the pods to a node that were seen before it.
func (s *Scheduler) addPodsLocked(node *placement.Node) {
	on, err := s.pods.GetIndexer().ByIndex(pods.ByNode, node.Name())
	if err != nil {
		return // the only error is that there is no such index
	}
	for _, obj := range on {
		if pod, ok := obj.(*corev1.Pod); ok {
			node.Add(pod)
		}
	}
}

func (s *Scheduler) forgetNode(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[node.Name]
	delete(s.known, node.Name)
	s.order = slices.DeleteFunc(s.order, func(n *placement.Node) bool { return n == known })
}

// observePod enqueues a pod that has to be placed, and records the node of a bound one.
func (s *Scheduler) observePod(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	if isToBePlaced(pod) {
		s.queue.Add(cache.MetaObjectToName(pod))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod.Spec.NodeName == "" {
		return
	}
	if node := s.known[pod.Spec.NodeName]; node != nil {
		before := node.Pods()
		node.Add(pod)
		if node.Pods() < before {
			s.retryLocked() // it has finished and needs no resources any more
		}
	}
	if was := s.placed[pod.UID]; was != "" && was != pod.Spec.NodeName && s.known[was] != nil {
		s.known[was].Remove(pod.UID) // another scheduler was faster
	}
	s.placed[pod.UID] = pod.Spec.NodeName
}

func (s *Scheduler) forgetPod(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unschedulable, cache.MetaObjectToName(pod))
	if node := s.known[s.placed[pod.UID]]; node != nil {
		node.Remove(pod.UID)
		s.retryLocked()
	}
	delete(s.placed, pod.UID)
}

// retryLocked enqueues all unschedulable pods.
func (s *Scheduler) retryLocked() {
	for name := range s.unschedulable {
		s.queue.Add(name)
	}
	clear(s.unschedulable)
}

// isToBePlaced reports whether a pod waits for this scheduler.
func isToBePlaced(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 &&
		pod.Spec.SchedulerName == corev1.DefaultSchedulerName && (pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "")
}

// sameCondition reports whether a pod already has that condition.
func sameCondition(pod *corev1.Pod, c corev1.PodCondition) bool {
	for _, old := range scheduledCondition(pod) {
		old.LastTransitionTime, old.LastProbeTime, old.ObservedGeneration = c.LastTransitionTime, c.LastProbeTime, c.ObservedGeneration
		return equality.Semantic.DeepEqual(old, c)
	}
	return false
}
