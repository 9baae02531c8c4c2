package statefulset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// setsOfClaim returns the sets to which a volume claim may belong.
func (c *reconciler) setsOfClaim(obj any) []cache.ObjectName {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	list, err := c.sets.StatefulSets(claim.Namespace).List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	var keys []cache.ObjectName
	for _, set := range list {
		if slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(t corev1.PersistentVolumeClaim) bool {
			return strings.HasPrefix(claim.Name, claimName(t.Name, set.Name)+"-")
		}) {
			keys = append(keys, cache.MetaObjectToName(set))
		}
	}
	return keys
}

// ensureClaims creates the volume claims that a pod needs, and reports whether all of them
// can be used.
func (c *reconciler) ensureClaims(ctx context.Context, o object, pod string) (bool, error) {
	usable := true
	for i := range o.Spec.VolumeClaimTemplates {
		template := &o.Spec.VolumeClaimTemplates[i]
		there, err := c.claims.PersistentVolumeClaims(o.Namespace).Get(claimName(template.Name, pod))
		switch {
		case apierrors.IsNotFound(err):
			if err := c.createClaim(ctx, o.StatefulSet, template, pod); err != nil {
				return false, err
			}
		case err != nil:
			return false, err
		case isStale(there, pod):
			usable = false // its DELETED event enqueues the set again
		}
	}
	return usable, nil
}

func (c *reconciler) createClaim(ctx context.Context, set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, pod string) error {
	claim := newClaim(set, template, pod)
	if retentionOf(set, false).WithSet {
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, kind())}
	}
	created, err := c.client.CoreV1().PersistentVolumeClaims(set.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	switch {
	case err == nil:
		c.volumeClaims.ExpectVersion(set.UID, created.ResourceVersion)
		c.podControl.Events.Eventf(set, corev1.EventTypeNormal, "SuccessfulCreate", "Created claim: %s", claim.Name)
		return nil
	case controller.IsAlreadyExists(err), controller.IsNamespaceTerminating(err):
		return err // the cache does not show it yet; or no retry can succeed
	}
	c.podControl.Events.Eventf(set, corev1.EventTypeWarning, "FailedCreate", "Error creating claim %s: %v", claim.Name, err)
	return fmt.Errorf("create claim %s: %w", claim.Name, err)
}

// recreateClaims creates volume claims that pods are waiting for: they were removed after the
// pod was created and before it was started.
func (c *reconciler) recreateClaims(ctx context.Context, o object) error {
	for _, pod := range o.mine {
		if pod.Status.Phase != corev1.PodPending || pods.IsTerminating(pod) || isCondemned(o.StatefulSet, pod) {
			continue
		}
		if _, err := c.ensureClaims(ctx, o, pod.Name); err != nil && !controller.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// reportIncomplete creates the volume claims that pods lack, and tells users to delete these pods. It
// fails, so that the Event is repeated as long as they are there.
func (c *reconciler) reportIncomplete(ctx context.Context, o object, incomplete []*corev1.Pod) error {
	var failed []error
	for _, pod := range incomplete {
		if _, err := c.ensureClaims(ctx, o, pod.Name); err != nil && !controller.IsAlreadyExists(err) {
			failed = append(failed, controller.IgnoreNamespaceTerminating(err))
			continue
		}
		lacks := strings.Join(missingClaims(pod, desired(o.StatefulSet, o.revisions).Claims), ", ")
		err := fmt.Errorf("pod %s has no volume for %s, and volumes of a pod cannot be changed: delete the pod, and it is created again with them", pod.Name, lacks)
		c.podControl.Events.Eventf(o.StatefulSet, corev1.EventTypeWarning, "FailedUpdate", "Error updating: %v", err)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// isCondemned reports whether the ordinal of the pod is no longer desired.
func isCondemned(set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	ordinal, ok := ordinalOf(set.Name, pod.Name)
	first := start(set)
	return ok && (ordinal < first || ordinal >= first+replicas(set))
}

// setClaimOwners gives the volume claims of the set's pods the owners that the retention policy
// requires. No pod may be deleted before: its volume claim would be kept or collected contrary to the
// policy.
func (c *reconciler) setClaimOwners(ctx context.Context, o object) error {
	var failed []error
	for _, pod := range o.mine {
		policy := retentionOf(o.StatefulSet, isCondemned(o.StatefulSet, pod))
		for _, template := range o.Spec.VolumeClaimTemplates {
			claim, err := c.claims.PersistentVolumeClaims(o.Namespace).Get(claimName(template.Name, pod.Name))
			if err != nil || claim.DeletionTimestamp != nil {
				continue
			}
			failed = append(failed, c.setOwners(ctx, o, claim, pod, policy))
		}
	}
	return errors.Join(failed...)
}

// setOwners changes the owner references of a volume claim, on the condition that the claim equals
// the cached one.
func (c *reconciler) setOwners(ctx context.Context, o object, claim *corev1.PersistentVolumeClaim, pod *corev1.Pod, policy retention) error {
	owners, changed := claimOwners(claim, metav1.NewControllerRef(o, kind()), metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod")), policy)
	if !changed {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion, "ownerReferences": owners,
	}})
	if err != nil {
		return fmt.Errorf("write a patch: %w", err)
	}
	owned, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change the owners of claim %s: %w", claim.Name, err)
	}
	c.volumeClaims.ExpectVersion(o.UID, owned.ResourceVersion)
	return nil
}
