package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/pods"
	"github.com/coppice-dev/coppice/internal/scheduler/placement"
)

// observeNode takes in what a node is. What waited for one may fit now.
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
		s.fill(known)
	}
	s.reconsider()
}

// fill puts the pods on a node that were seen before it. The lock is held.
func (s *Scheduler) fill(node *placement.Node) {
	on, err := s.pods.GetIndexer().ByIndex(pods.ByNode, node.Name())
	if err != nil {
		return // there is that index
	}
	for _, obj := range on {
		if pod, ok := obj.(*corev1.Pod); ok {
			node.Add(pod)
		}
	}
}

func (s *Scheduler) loseNode(obj any) {
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

// observePod takes in where a pod is.
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
			s.reconsider() // it has ended, and takes nothing any more
		}
	}
	if was := s.placed[pod.UID]; was != "" && was != pod.Spec.NodeName && s.known[was] != nil {
		s.known[was].Remove(pod.UID) // somebody else was faster
	}
	s.placed[pod.UID] = pod.Spec.NodeName
}

func (s *Scheduler) losePod(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, cache.MetaObjectToName(pod))
	if node := s.known[s.placed[pod.UID]]; node != nil {
		node.Remove(pod.UID)
		s.reconsider()
	}
	delete(s.placed, pod.UID)
}

// reconsider looks anew at all pods that fit nowhere. The lock is held.
func (s *Scheduler) reconsider() {
	for name := range s.waiting {
		s.queue.Add(name)
	}
	clear(s.waiting)
}

// isToBePlaced tells whether a pod waits for this scheduler.
func isToBePlaced(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 &&
		pod.Spec.SchedulerName == corev1.DefaultSchedulerName && (pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "")
}

// sameCondition tells whether a pod says already what is to be said.
func sameCondition(pod *corev1.Pod, c corev1.PodCondition) bool {
	for _, old := range scheduledCondition(pod) {
		old.LastTransitionTime, old.LastProbeTime, old.ObservedGeneration = c.LastTransitionTime, c.LastProbeTime, c.ObservedGeneration
		return equality.Semantic.DeepEqual(old, c)
	}
	return false
}
