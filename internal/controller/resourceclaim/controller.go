package resourceclaim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	name     = "resource-claim-controller"
	podsName = "resource-claim-controller-pods"
	workers  = 4
)

// The indexes of pods by the claims and templates that they name, and of claims by the pod that owns
// them.
const (
	byClaim    = "resourceClaim"
	byTemplate = "resourceClaimTemplate"
	byOwner    = "ownerPod"
)

type reconciler struct {
	client    kubernetes.Interface
	pods      corelisters.PodLister
	claims    resourcelisters.ResourceClaimLister
	templates resourcelisters.ResourceClaimTemplateLister
	podIndex  cache.Indexer
	owned     cache.Indexer // of claims
	events    record.EventRecorder
}

// Controllers returns the controller of claims, and the controller that creates the claims of pods.
func Controllers(shared *controller.Context) ([]*controller.Controller, error) {
	pods := shared.Informers.Pods
	claims, templates := shared.Informers.ResourceClaims, shared.Informers.ResourceClaimTemplates
	err := errors.Join(
		pods.Informer().AddIndexers(cache.Indexers{byClaim: claimKeys, byTemplate: templateKeys}),
		claims.Informer().AddIndexers(cache.Indexers{byOwner: ownerKeys}))
	if err != nil {
		return nil, fmt.Errorf("index pods and their resource claims: %w", err)
	}
	c := &reconciler{
		client: shared.Client, pods: pods.Lister(), claims: claims.Lister(), templates: templates.Lister(),
		podIndex: pods.Informer().GetIndexer(), owned: claims.Informer().GetIndexer(), events: shared.Events(name),
	}
	return []*controller.Controller{
		{Name: name, Reconcile: c.reconcileClaim, Workers: workers, Sources: []controller.Source{
			controller.For(claims.Informer()), {Informer: pods.Informer(), Keys: c.claimsOfPod},
		}},
		{Name: podsName, Reconcile: c.reconcilePod, Workers: workers, Sources: []controller.Source{
			{Informer: pods.Informer(), Keys: podWithClaims},
			{Informer: claims.Informer(), Keys: c.podsOfClaim},
			{Informer: templates.Informer(), Keys: c.podsOfTemplate},
		}},
	}, nil
}

// claimKeys returns the keys of the claims that a pod names.
func claimKeys(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	var keys []string
	for _, name := range claimNames(pod) {
		keys = append(keys, pod.Namespace+"/"+name)
	}
	return keys, nil
}

// templateKeys returns the keys of the templates that a pod names.
func templateKeys(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	var keys []string
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimTemplateName != nil {
			keys = append(keys, pod.Namespace+"/"+*c.ResourceClaimTemplateName)
		}
	}
	return keys, nil
}

// ownerKeys returns the uid of the pod that a claim was made for.
func ownerKeys(obj any) ([]string, error) {
	if claim, ok := obj.(*resourcev1.ResourceClaim); ok {
		if owner := ownerOf(claim); owner != nil {
			return []string{string(owner.UID)}, nil
		}
	}
	return nil, nil
}

// ownerOf returns the reference to the pod that a claim was made for, or nil.
func ownerOf(claim *resourcev1.ResourceClaim) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(claim)
	if owner == nil || owner.APIVersion != "v1" || owner.Kind != "Pod" {
		return nil
	}
	return owner
}

func podWithClaims(obj any) []cache.ObjectName {
	if pod, ok := obj.(*corev1.Pod); ok && len(pod.Spec.ResourceClaims) > 0 {
		return []cache.ObjectName{cache.MetaObjectToName(pod)}
	}
	return nil
}

// claimsOfPod returns the claims that a pod names or owns; the pod may have ended, or be gone.
func (c *reconciler) claimsOfPod(obj any) []cache.ObjectName {
	pod, ok := obj.(*corev1.Pod)
	if !ok || (len(pod.Spec.ResourceClaims) == 0 && pod.Status.ExtendedResourceClaimStatus == nil) {
		return nil
	}
	var keys []cache.ObjectName
	for _, name := range claimNames(pod) {
		keys = append(keys, cache.NewObjectName(pod.Namespace, name))
	}
	return append(keys, namesIn(c.owned, byOwner, string(pod.UID))...)
}

// podsOfClaim returns the pods that name a claim, and the pod that it was created for.
func (c *reconciler) podsOfClaim(obj any) []cache.ObjectName {
	claim, ok := obj.(*resourcev1.ResourceClaim)
	if !ok {
		return nil
	}
	keys := namesIn(c.podIndex, byClaim, claim.Namespace+"/"+claim.Name)
	if owner := ownerOf(claim); owner != nil {
		keys = append(keys, cache.NewObjectName(claim.Namespace, owner.Name))
	}
	return keys
}

func (c *reconciler) podsOfTemplate(obj any) []cache.ObjectName {
	if template, ok := obj.(*resourcev1.ResourceClaimTemplate); ok {
		return namesIn(c.podIndex, byTemplate, template.Namespace+"/"+template.Name)
	}
	return nil
}

// namesIn returns the names of the objects that an index has at a key.
func namesIn(indexer cache.Indexer, index, key string) []cache.ObjectName {
	objects, err := indexer.ByIndex(index, key)
	if err != nil {
		return nil // the only error is a missing index
	}
	var names []cache.ObjectName
	for _, obj := range objects {
		if o, ok := obj.(metav1.Object); ok {
			names = append(names, cache.MetaObjectToName(o))
		}
	}
	return names
}

// reconcilePod creates the claims of a pod and reserves the allocated ones.
func (c *reconciler) reconcilePod(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	pod, err := c.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	known, err := c.known(pod)
	if err != nil {
		return 0, err
	}
	plan := DecidePod(pod, known)
	for _, missing := range plan.Missing { // its creation enqueues the pod
		c.events.Event(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation", describe(missing))
	}
	for _, claim := range plan.Create {
		switch err := c.create(ctx, pod, claim); {
		case controller.IsNamespaceTerminating(err):
			return 0, nil // the namespace shows it, and no retry can succeed
		case err != nil:
			c.events.Eventf(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation", "PodResourceClaim %s: %v", claim.Annotations[resourcev1.PodResourceClaimAnnotation], err)
			return 0, fmt.Errorf("make resource claim %s: %w", claim.Name, err)
		}
	}
	if plan.Statuses != nil {
		if err := c.setStatuses(ctx, pod, plan.Statuses); err != nil {
			return 0, controller.IgnoreNotFound(err)
		}
	}
	for _, claim := range plan.Reserve {
		if err := c.reserve(ctx, pod, claim); err != nil {
			return 0, controller.IgnoreNotFound(err)
		}
	}
	return 0, nil
}

// known returns the cached claims and templates that a decision about a pod needs.
func (c *reconciler) known(pod *corev1.Pod) (PodClaims, error) {
	known := PodClaims{Claims: map[string]*resourcev1.ResourceClaim{}, Templates: map[string]*resourcev1.ResourceClaimTemplate{}}
	names := claimNames(pod)
	for _, key := range namesIn(c.owned, byOwner, string(pod.UID)) {
		names = append(names, key.Name)
	}
	for _, name := range names {
		claim, err := c.claims.ResourceClaims(pod.Namespace).Get(name)
		if err == nil {
			known.Claims[name] = claim
		} else if !apierrors.IsNotFound(err) {
			return PodClaims{}, err
		}
	}
	for _, p := range pod.Spec.ResourceClaims {
		if p.ResourceClaimTemplateName == nil {
			continue
		}
		template, err := c.templates.ResourceClaimTemplates(pod.Namespace).Get(*p.ResourceClaimTemplateName)
		if err == nil {
			known.Templates[template.Name] = template
		} else if !apierrors.IsNotFound(err) {
			return PodClaims{}, err
		}
	}
	return known, nil
}

// create creates a claim. An existing claim of that name is the pod's, unless another client has taken
// the name.
func (c *reconciler) create(ctx context.Context, pod *corev1.Pod, claim *resourcev1.ResourceClaim) error {
	_, err := c.client.ResourceV1().ResourceClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if !controller.IsAlreadyExists(err) {
		return err
	}
	there, err := c.client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !isMadeFor(pod, there) {
		return fmt.Errorf("resource claim %s is not the pod's", claim.Name)
	}
	return nil
}

// setStatuses writes the claims that were created for a pod into its status.
func (c *reconciler) setStatuses(ctx context.Context, pod *corev1.Pod, statuses []corev1.PodResourceClaimStatus) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   map[string]any{"resourceClaimStatuses": statuses},
	})
	if err != nil {
		return err
	}
	if _, err = c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("say which resource claims were made for pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (c *reconciler) reserve(ctx context.Context, pod *corev1.Pod, claim *resourcev1.ResourceClaim) error {
	claim = claim.DeepCopy()
	claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	if _, err := c.client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("reserve resource claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// reconcileClaim releases a claim as far as no pod uses it.
func (c *reconciler) reconcileClaim(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	claim, err := c.claims.ResourceClaims(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	ended, err := c.ended(ctx, claim)
	if err != nil {
		return 0, err
	}
	var owner *corev1.Pod
	if ref := ownerOf(claim); ref != nil {
		if owner, err = c.pods.Pods(claim.Namespace).Get(ref.Name); err != nil {
			owner = nil // gone, or not seen yet: the collector knows
		}
	}
	return 0, controller.IgnoreNotFound(c.carryOut(ctx, claim.DeepCopy(), DecideClaim(claim, ended, owner)))
}

// ended returns the reservations for pods that have ended. A pod that the cache does not show is read
// live: it may be newer than the cache. Consumers other than pods are unknown here.
func (c *reconciler) ended(ctx context.Context, claim *resourcev1.ResourceClaim) (map[resourcev1.ResourceClaimConsumerReference]bool, error) {
	ended := map[resourcev1.ResourceClaimConsumerReference]bool{}
	for _, r := range claim.Status.ReservedFor {
		if r.APIGroup != "" || r.Resource != "pods" {
			continue
		}
		pod, err := c.pods.Pods(claim.Namespace).Get(r.Name)
		if apierrors.IsNotFound(err) || (err == nil && pod.UID != r.UID) {
			pod, err = c.client.CoreV1().Pods(claim.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		}
		switch {
		case err == nil:
			ended[r] = pod.UID != r.UID || isDone(pod)
		case apierrors.IsNotFound(err):
			ended[r] = true
		default:
			return nil, fmt.Errorf("look for pod %s/%s: %w", claim.Namespace, r.Name, err)
		}
	}
	return ended, nil
}

// carryOut executes a plan. Each write is conditioned on the previous one.
func (c *reconciler) carryOut(ctx context.Context, claim *resourcev1.ResourceClaim, plan ClaimPlan) error {
	claims := c.client.ResourceV1().ResourceClaims(claim.Namespace)
	var err error
	if plan.Release || plan.Deallocate {
		claim.Status.ReservedFor = plan.Remaining
		if plan.Deallocate {
			claim.Status.Allocation = nil
		}
		if claim, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("release a resource claim: %w", err)
		}
	}
	if plan.Unprotect {
		claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
		if claim, err = claims.Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("let go of resource claim: %w", err)
		}
	}
	if plan.Delete {
		err := claims.Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion}})
		if err != nil {
			return fmt.Errorf("delete the resource claim of a pod that has ended: %w", err)
		}
	}
	return nil
}
