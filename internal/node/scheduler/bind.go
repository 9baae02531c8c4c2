package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/node/scheduler/placement"
)

// reconcile binds a pod that is not placed yet.
func (s *Scheduler) reconcile(ctx context.Context, name cache.ObjectName) error {
	obj, exists, err := s.pods.GetStore().GetByKey(name.String())
	if err != nil || !exists {
		return err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok || !isToBePlaced(pod) {
		return nil
	}
	node, err := s.place(name, pod)
	if unplaced, ok := errors.AsType[placement.Unplaced](err); ok {
		return s.report(ctx, pod, unplaced.Error())
	}
	if err != nil || node == "" {
		return err
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	err = s.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	switch {
	case err == nil:
		s.record(pod, corev1.EventTypeNormal, "Scheduled", fmt.Sprintf("Successfully assigned %s to %s", name, node))
		return nil
	case controller.IsNotFound(err), controller.IsConflict(err):
		s.unplace(pod, node) // gone, or bound by another scheduler: the watch will show it
		return nil
	case controller.IsNamespaceTerminating(err):
		s.unplace(pod, node) // its namespace is being deleted, where no pod starts any more
		return nil
	}
	s.unplace(pod, node)
	return fmt.Errorf("bind pod %s to node %s: %w", name, node, err)
}

// place finds a node and reserves the pod's resources on it. It returns no node if the pod already has one.
func (s *Scheduler) place(name cache.ObjectName, pod *corev1.Pod) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placed[pod.UID] != "" {
		return "", nil
	}
	node, err := s.cluster.Place(pod)
	if err != nil {
		s.unschedulable[name], _ = errors.AsType[placement.Unplaced](err)
		return "", err
	}
	node.Add(pod)
	s.placed[pod.UID] = node.Name()
	s.retryConcernedLocked(pod)
	return node.Name(), nil
}

// unplace frees the resources of a pod on a node after a Binding failed. The answer of the API may be lost although the
// pod is bound: a pod that the watch shows as bound keeps its resources.
func (s *Scheduler) unplace(pod *corev1.Pod, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placed[pod.UID] != node || s.isBound(pod) {
		return
	}
	delete(s.placed, pod.UID)
	if known := s.cluster.Node(node); known != nil {
		known.Remove(pod.UID)
		s.retryLocked()
	}
}

// isBound reports whether the watch shows that a pod is bound to a node.
func (s *Scheduler) isBound(pod *corev1.Pod) bool {
	obj, _, err := s.pods.GetStore().Get(pod)
	now, ok := obj.(*corev1.Pod)
	return err == nil && ok && now.UID == pod.UID && now.Spec.NodeName != ""
}

// report writes the reasons why no node fits into the pod's condition, unless the condition already has them.
func (s *Scheduler) report(ctx context.Context, pod *corev1.Pod, message string) error {
	now := metav1.NewTime(s.clock.Now()).Rfc3339Copy()
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message, LastTransitionTime: now,
		ObservedGeneration: pod.Generation,
	}
	if sameCondition(pod, condition) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if controller.IsNotFound(err) || controller.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("report that pod %s/%s is not scheduled: %w", pod.Namespace, pod.Name, err)
	}
	s.record(pod, corev1.EventTypeWarning, "FailedScheduling", message)
	return nil
}

// record records an Event about a pod.
func (s *Scheduler) record(pod *corev1.Pod, kind, reason, message string) {
	s.events.Event("", &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}, kind, reason, message)
}
