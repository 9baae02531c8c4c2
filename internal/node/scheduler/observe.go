package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller/pods"
	"github.com/coppice-dev/coppice/internal/node/scheduler/placement"
)

// handler passes the changes of objects on. An informer that lists again, after its watch was interrupted, delivers an
// object that has taken the name of another one as an update: the other one is gone then.
func handler(observe, forget func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: observe,
		UpdateFunc: func(before, now any) {
			was, wasObject := before.(metav1.Object)
			is, isObject := now.(metav1.Object)
			if wasObject && isObject && was.GetUID() != is.GetUID() {
				forget(before)
			}
			observe(now)
		},
		DeleteFunc: forget,
	}
}

// observeNode records the current state of a node. Unschedulable pods may fit on it.
func (s *Scheduler) observeNode(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	s.podsNeeded.Do(func() { close(s.startPods) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.cluster.Node(node.Name); known != nil {
		known.Update(node)
	} else {
		known = placement.NewNode(node)
		s.cluster.AddNode(known)
		s.addPodsLocked(known)
	}
	s.retryLocked()
}

// addPodsLocked adds pods to a node that were observed before the node.
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
	s.cluster.RemoveNode(node.Name)
	s.retryLocked() // there may be one topology domain less
}

// observeNamespace records the labels of a namespace. Pod affinity may select namespaces by their labels.
func (s *Scheduler) observeNamespace(obj any) {
	namespace, ok := obj.(*corev1.Namespace)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster.SetNamespace(namespace.Name, namespace.Labels) {
		s.retryLocked()
	}
}

func (s *Scheduler) forgetNamespace(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	namespace, ok := obj.(*corev1.Namespace)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.RemoveNamespace(namespace.Name)
}

// observePod enqueues an unplaced pod, and records the node of a bound one.
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
	if node := s.cluster.Node(pod.Spec.NodeName); node != nil {
		s.updateLocked(node, pod)
	}
	if was := s.placed[pod.UID]; was != "" && was != pod.Spec.NodeName && s.cluster.Node(was) != nil {
		s.cluster.Node(was).Remove(pod.UID) // another scheduler was faster
		s.retryLocked()
	}
	s.placed[pod.UID] = pod.Spec.NodeName
}

// updateLocked records the state of a pod on a node.
func (s *Scheduler) updateLocked(node *placement.Node, pod *corev1.Pod) {
	before, requested := node.Pod(pod.UID), node.Requests(pod.UID)
	node.Add(pod)
	switch {
	case anySmaller(requested, node.Requests(pod.UID)):
		s.retryLocked() // it was resized, or has finished and needs no resources any more
	case before == nil, (before.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil):
		s.retryConcernedLocked(pod)
	case !maps.Equal(before.Labels, pod.Labels):
		s.retryConcernedLocked(before, pod)
	}
}

// anySmaller reports whether any amount is smaller than before.
func anySmaller(before, now map[corev1.ResourceName]int64) bool {
	for name, amount := range before {
		if now[name] < amount {
			return true
		}
	}
	return false
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
	if node := s.cluster.Node(s.placed[pod.UID]); node != nil {
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

// retryConcernedLocked enqueues the unschedulable pods that have constraints on one of the changed pods.
func (s *Scheduler) retryConcernedLocked(changed ...*corev1.Pod) {
	for name, unplaced := range s.unschedulable {
		if slices.ContainsFunc(changed, unplaced.Concerns) {
			s.queue.Add(name)
			delete(s.unschedulable, name)
		}
	}
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
