package eviction

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/coppice-dev/coppice/internal/controller/pods"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// maxTries limits the tries for a pod that keeps changing. After that, the client must try again.
const maxTries = 20

// errChanged ends a try if the pod or the budget has changed since the decision.
var errChanged = errors.New("the pod or its budget has changed")

// attempt is the eviction of one pod.
type attempt struct {
	registries Registries
	now        func() time.Time
	name       string
	options    *metav1.DeleteOptions

	uid   types.UID // of the pod that the first try found
	spent string    // the budget that has allowed the disruption, and has counted it
}

// evict makes a plan for the current pod and executes it. It starts again if the pod or its budget
// changes in between.
func (a *attempt) evict(ctx context.Context) error {
	for range maxTries {
		if err := a.try(ctx); !errors.Is(err, errChanged) {
			return err
		}
	}
	return apierrors.NewTooManyRequests(fmt.Sprintf("pod %s changed %d times while it was being evicted", a.name, maxTries), tryAgain)
}

func (a *attempt) try(ctx context.Context) error {
	pod, err := a.get(ctx)
	if err != nil {
		return err
	}
	if err := checkPreconditions(pod, a.options.Preconditions); err != nil {
		return err
	}
	if err := a.checkDeletion(ctx, pod); err != nil {
		return err
	}
	plan, err := a.plan(ctx, pod)
	if err != nil {
		return err
	}
	if err := a.ask(ctx, plan.budget); err != nil {
		return err
	}
	return a.remove(ctx, pod, plan)
}

// get reads the pod. If the name has a pod with another UID now, the pod to evict is gone.
func (a *attempt) get(ctx context.Context) (*corev1.Pod, error) {
	obj, err := a.registries.Pods.Get(ctx, a.name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod, ok := obj.(*corev1.Pod)
	switch {
	case !ok:
		return nil, unexpected(a.name, obj)
	case a.uid == "":
		a.uid = pod.UID
	case a.uid != pod.UID:
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), a.name)
	}
	return pod, nil
}

func unexpected(name string, obj runtime.Object) error {
	return apierrors.NewInternalError(fmt.Errorf("%s is a %T", name, obj))
}

// checkPreconditions refuses an eviction whose preconditions the pod does not meet, before a budget
// is changed.
func checkPreconditions(pod *corev1.Pod, want *metav1.Preconditions) error {
	switch {
	case want == nil:
		return nil
	case want.UID != nil && *want.UID != pod.UID:
		return conflict(pod, "uid", string(*want.UID), string(pod.UID))
	case want.ResourceVersion != nil && *want.ResourceVersion != pod.ResourceVersion:
		return conflict(pod, "resourceVersion", *want.ResourceVersion, pod.ResourceVersion)
	}
	return nil
}

// checkDeletion refuses the eviction of a pod that is protected (R28), or whose deletion needs a confirmation (R32), with the
// error of its DELETE, before a budget is changed and before the pod is marked.
func (a *attempt) checkDeletion(ctx context.Context, pod *corev1.Pod) error {
	if _, protected := a.registries.Protect.Of(corev1.Resource("pods"), pod); !protected && !a.registries.Confirm.Any() {
		return nil
	}
	_, _, err := a.registries.Pods.Delete(ctx, a.name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	_, isProtected := protection.Refused(err)
	_, isUnconfirmed := protection.NeedsConfirmation(err)
	if isProtected || isUnconfirmed {
		return err
	}
	return nil
}

func conflict(pod *corev1.Pod, what, want, got string) error {
	return apierrors.NewConflict(corev1.Resource("pods"), pod.Name,
		fmt.Errorf("precondition failed: %s in the precondition is %s, the object's is %s", what, want, got))
}

func (a *attempt) plan(ctx context.Context, pod *corev1.Pod) (plan, error) {
	if p, ok := unguarded(pod); ok {
		return a.pinned(p), nil
	}
	obj, err := a.registries.Budgets.List(ctx, &internalversion.ListOptions{})
	if err != nil {
		return plan{}, err
	}
	list, ok := obj.(*policyv1.PodDisruptionBudgetList)
	if !ok {
		return plan{}, unexpected("the list of disruption budgets", obj)
	}
	p, err := guarded(pod, list.Items)
	if errors.Is(err, errSeveralBudgets) {
		err = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}}
	}
	return a.pinned(p), err
}

// pinned limits a plan to the current state of the pod if the client's preconditions have a
// resourceVersion.
func (a *attempt) pinned(p plan) plan {
	if want := a.options.Preconditions; want != nil && want.ResourceVersion != nil {
		p.about = unchanged
	}
	return p
}

// ask records the pod in a budget. The transaction checks whether the budget allows the disruption.
func (a *attempt) ask(ctx context.Context, budget string) error {
	if budget == "" || budget == a.spent {
		return nil
	}
	entered := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, existing runtime.Object) (runtime.Object, error) {
		b, ok := existing.DeepCopyObject().(*policyv1.PodDisruptionBudget)
		if !ok {
			return nil, unexpected(budget, existing)
		}
		return b, disrupt(b, a.name, a.now())
	})
	_, _, err := a.registries.BudgetStatus.Update(ctx, budget, entered, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false,
		&metav1.UpdateOptions{DryRun: a.options.DryRun})
	switch {
	case apierrors.IsNotFound(err):
		return errChanged
	case err == nil:
		a.spent = budget
	}
	return err
}

// remove marks the pod as disrupted and deletes it. If another client writes the pod in between,
// for example the node its status, remove checks the new state and repeats both.
func (a *attempt) remove(ctx context.Context, pod *corev1.Pod, p plan) error {
	for range maxTries {
		marked, err := a.mark(ctx, pod, p)
		if err != nil {
			return err
		}
		options := a.options.DeepCopy()
		options.Preconditions = &metav1.Preconditions{UID: &marked.UID, ResourceVersion: &marked.ResourceVersion}
		_, _, err = a.registries.Pods.Delete(ctx, a.name, rest.ValidateAllObjectFunc, options)
		if !apierrors.IsConflict(err) {
			return err
		}
		now, failed := a.get(ctx)
		if failed != nil {
			return failed
		}
		if now.ResourceVersion == marked.ResourceVersion {
			return err // the conflict has another cause
		}
	}
	return errChanged
}

// mark sets the condition DisruptionTarget of the pod if the plan still holds, and returns the pod.
// A dry run only checks.
func (a *attempt) mark(ctx context.Context, pod *corev1.Pod, p plan) (*corev1.Pod, error) {
	if dryrun.IsDryRun(a.options.DryRun) {
		now, err := a.get(ctx)
		if err == nil && !p.holds(pod, now) {
			err = errChanged
		}
		return now, err
	}
	marking := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, existing runtime.Object) (runtime.Object, error) {
		now, ok := existing.DeepCopyObject().(*corev1.Pod)
		if !ok {
			return nil, unexpected(a.name, existing)
		}
		if !p.holds(pod, now) {
			return nil, errChanged
		}
		pods.SetCondition(now, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(a.now()),
			Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		})
		return now, nil
	})
	obj, _, err := a.registries.PodStatus.Update(ctx, a.name, marking, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	marked, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, unexpected(a.name, obj)
	}
	return marked, nil
}
