package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
)

// Hand makes and deletes the pods of owners. It tells the Ledger, and users by events
// on the owner. It is safe for concurrent use.
type Hand struct {
	Client kubernetes.Interface
	Ledger *Ledger
	Events record.EventRecorder
}

// Create makes a pod that the owner controls. on is the owner as events name it.
func (h *Hand) Create(ctx context.Context, owner Owner, on runtime.Object, pod *corev1.Pod) error {
	pod.OwnerReferences = append(pod.OwnerReferences, *owner.Reference())
	created, err := h.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	switch {
	case err == nil:
		h.Ledger.Created(owner.GetUID(), created.ResourceVersion)
		h.Events.Eventf(on, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", created.Name)
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err // it says so itself, and there will be no more of it
	case apierrors.IsAlreadyExists(err):
		return err // an earlier pod of that name is about to go
	case unanswered(err):
		err = errors.Join(err, h.lookAgain(ctx, owner, pod.Namespace))
	}
	h.Events.Eventf(on, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
	return fmt.Errorf("create a pod: %w", err)
}

// unanswered tells of an error after which nobody knows whether the pod was created.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

// lookAgain makes the owner wait until the cache shows the pods that it controls now.
// Their own versions count, not that of the list: only the event of such a pod brings
// the owner again.
func (h *Hand) lookAgain(ctx context.Context, owner Owner, namespace string) error {
	var list *corev1.PodList
	err := insist(ctx, func() (err error) {
		list, err = h.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], owner) {
			h.Ledger.Created(owner.GetUID(), list.Items[i].ResourceVersion)
		}
	}
	return nil
}

// insist asks until there is an answer: what is not known now would be decided wrongly
// from a cache that lags.
func insist(ctx context.Context, ask func() error) error {
	pauses := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Steps: 12, Cap: 5 * time.Second}
	return pauses.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) { return ask() == nil, nil })
}

// Delete asks for the deletion of a pod as the cache shows it.
func (h *Hand) Delete(ctx context.Context, owner Owner, on runtime.Object, pod *corev1.Pod) error {
	err := h.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
	switch {
	case err == nil:
		h.Ledger.Deleted(owner.GetUID(), pod.UID)
		h.Events.Eventf(on, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)
		return nil
	case apierrors.IsNotFound(err):
		return nil
	case unanswered(err):
		err = errors.Join(err, h.lookAfter(ctx, owner, pod))
	}
	if !apierrors.IsConflict(err) {
		h.Events.Eventf(on, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
	}
	return fmt.Errorf("delete pod %s: %w", pod.Name, err)
}

// lookAfter takes in that a pod is going after all. A pod that is still there is asked
// to go again.
func (h *Hand) lookAfter(ctx context.Context, owner Owner, pod *corev1.Pod) error {
	var live *corev1.Pod
	err := insist(ctx, func() (err error) {
		live, err = h.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			live, err = nil, nil
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case live == nil || live.UID != pod.UID || live.DeletionTimestamp != nil:
		h.Ledger.Deleted(owner.GetUID(), pod.UID)
	}
	return nil
}
