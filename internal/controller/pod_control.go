package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// PodControl creates and deletes the pods of owners. It maintains the Expectations, and records
// events on the owner. It is safe for concurrent use.
//
// If a request gets no response, its outcome is read from the server before the next creation
// or deletion for the owner: a decision based on a lagging cache could repeat the request
// (R25). Until the outcome is known, Create and Delete fail, and the key is retried with the
// queue's back-off.
type PodControl struct {
	Client       kubernetes.Interface
	Expectations *Expectations
	Events       record.EventRecorder
}

// Create creates a pod that the owner controls. on is the object on which events are recorded.
func (p *PodControl) Create(ctx context.Context, owner Owner, on runtime.Object, pod *corev1.Pod) error {
	if err := p.checkUnknown(ctx, owner); err != nil {
		return err
	}
	pod.OwnerReferences = append(pod.OwnerReferences, *owner.Reference())
	created, err := p.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	switch {
	case err == nil:
		p.Expectations.ExpectVersion(owner.GetUID(), created.ResourceVersion)
		p.Events.Eventf(on, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", created.Name)
		return nil
	case IsNamespaceTerminating(err):
		return err // the namespace shows it, and no retry can succeed
	case IsAlreadyExists(err):
		return err // an earlier pod of that name is about to go
	case isUnanswered(err):
		p.Expectations.creationUnknown(owner.GetUID())
		err = errors.Join(err, p.resolveUnknown(ctx, owner))
	}
	p.Events.Eventf(on, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
	return fmt.Errorf("create a pod: %w", err)
}

// Delete requests the deletion of a pod, on the condition that the pod equals the cached one.
func (p *PodControl) Delete(ctx context.Context, owner Owner, on runtime.Object, pod *corev1.Pod) error {
	if err := p.checkUnknown(ctx, owner); err != nil {
		return err
	}
	err := p.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
	switch {
	case err == nil:
		p.Expectations.ExpectDeletion(owner.GetUID(), pod.UID)
		p.Events.Eventf(on, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)
		return nil
	case IsNotFound(err):
		return nil
	case isUnanswered(err):
		p.Expectations.deletionUnknown(owner.GetUID(), pod.UID, pod.Name)
		err = errors.Join(err, p.resolveUnknown(ctx, owner))
	}
	if !IsConflict(err) {
		p.Events.Eventf(on, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
	}
	return fmt.Errorf("delete pod %s: %w", pod.Name, err)
}

// CheckDeletion asks the server by a dry run whether it deletes a pod, for changes that are wrong if it does not. It records
// a refusal like Delete. There is no error if the answer is unknown because an admission webhook supports no dry run, or if
// the pod is gone.
func (p *PodControl) CheckDeletion(ctx context.Context, on runtime.Object, pod *corev1.Pod) error {
	err := p.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}, DryRun: []string{metav1.DryRunAll},
	})
	if err == nil || IsNotFound(err) || refusal.ServerAnswers(err, apierrors.IsBadRequest) {
		return nil
	}
	if !IsConflict(err) {
		p.Events.Eventf(on, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
	}
	return fmt.Errorf("delete pod %s: %w", pod.Name, err)
}

// isUnanswered reports whether the outcome of a request is unknown after an error. Joined errors mean that if any of them
// does. A webhook or a policy that denies a request may choose the code and the reason of a failed server: nothing was done.
func isUnanswered(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return slices.ContainsFunc(joined.Unwrap(), isUnanswered)
	}
	if refused, ok := refusal.Of(err); ok && !refused.By.MayPass() {
		return false
	}
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

// checkUnknown fails if the outcome of an earlier request for the owner is unknown, or was
// unknown when the current decision began. That decision lacks the outcome, so none of its
// requests may be sent, even if an earlier call has resolved the outcome meanwhile.
func (p *PodControl) checkUnknown(ctx context.Context, owner Owner) error {
	if !p.Expectations.isStale(owner.GetUID()) {
		return nil
	}
	if err := p.resolveUnknown(ctx, owner); err != nil {
		return err
	}
	return apierrors.NewConflict(corev1.Resource("pods"), owner.GetName(), errors.New("an earlier request for its owner was not answered at once"))
}

// resolveUnknown reads from the server the outcomes of all requests for the owner that got no
// response.
func (p *PodControl) resolveUnknown(ctx context.Context, owner Owner) error {
	var failed []error
	unknown := p.Expectations.unknown(owner.GetUID())
	if unknown.creations > 0 {
		failed = append(failed, p.resolveCreations(ctx, owner, unknown.creations))
	}
	for uid, name := range unknown.deletions {
		failed = append(failed, p.resolveDeletion(ctx, owner, uid, name))
	}
	return errors.Join(failed...)
}

// resolveCreations makes the owner wait until the cache shows the pods that it controls now.
// The pods' own versions count, not the version of the list: only the event of such a pod
// enqueues the owner's key.
func (p *PodControl) resolveCreations(ctx context.Context, owner Owner, creations int) error {
	list, err := p.Client.CoreV1().Pods(owner.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("look for pods whose creation was not answered: %w", err)
	}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], owner) {
			p.Expectations.ExpectVersion(owner.GetUID(), list.Items[i].ResourceVersion)
		}
	}
	p.Expectations.creationsKnown(owner.GetUID(), creations)
	return nil
}

// resolveDeletion expects the deletion of a pod if the pod is gone or terminating. Otherwise
// the request was not carried out.
func (p *PodControl) resolveDeletion(ctx context.Context, owner Owner, uid types.UID, name string) error {
	live, err := p.Client.CoreV1().Pods(owner.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		p.Expectations.ExpectDeletion(owner.GetUID(), uid)
	case err != nil:
		return fmt.Errorf("look for pod %s, whose deletion was not answered: %w", name, err)
	case live.UID != uid || live.DeletionTimestamp != nil:
		p.Expectations.ExpectDeletion(owner.GetUID(), uid)
	}
	p.Expectations.deletionKnown(owner.GetUID(), uid)
	return nil
}
