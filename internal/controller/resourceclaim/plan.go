// Package resourceclaim creates the ResourceClaims of pods from their templates, and releases claims
// that no pod uses any more: it removes reservations for pods that are gone or have ended,
// allocations without a reservation, the finalizer that keeps an allocated claim, and claims that
// were created for a pod that has ended. A claim whose pod is gone is collected with it.
//
//	pod ──▶ DecidePod: the claims to make, the status of the pod that names them, the
//	        claims to reserve for a pod that was bound without a scheduler
//	claim ──▶ DecideClaim: reservations, allocation, finalizer, the claim itself
//
// Schedulers allocate devices. Coppice's scheduler does not: it leaves a pod pending whose claims are
// not allocated.
package resourceclaim

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// PodPlan has the steps for a pod.
type PodPlan struct {
	// Create are claims to create.
	Create []*resourcev1.ResourceClaim
	// Missing are the pod's claims whose template does not exist, with the name of the template.
	Missing []corev1.PodResourceClaim
	// Statuses name the claims that were created for the pod, including the ones in Create. They are nil
	// if the pod's status has them already.
	Statuses []corev1.PodResourceClaimStatus
	// Reserve are allocated claims to reserve for the pod.
	Reserve []*resourcev1.ResourceClaim
}

// PodClaims is the input for a decision about a pod: the existing claims that it owns or names, by
// name, and the existing templates that it names.
type PodClaims struct {
	Claims    map[string]*resourcev1.ResourceClaim
	Templates map[string]*resourcev1.ResourceClaimTemplate
}

// DecidePod decides the steps for a pod. A pod that is being deleted or has ended needs no more
// steps.
func DecidePod(pod *corev1.Pod, known PodClaims) PodPlan {
	var plan PodPlan
	if pod.DeletionTimestamp != nil || pods.IsFinished(pod) {
		return plan
	}
	made, changed := plan.make(pod, known)
	if changed {
		for _, name := range slices.Sorted(maps.Keys(made)) {
			plan.Statuses = append(plan.Statuses, made[name])
		}
	}
	if pod.Spec.NodeName != "" { // before, the scheduler reserves
		plan.Reserve = toReserve(pod, known.Claims)
	}
	return plan
}

// make plans the claims to create from templates. It returns their desired entries in the pod's
// status, by their names in the pod, and whether the current ones differ.
func (p *PodPlan) make(pod *corev1.Pod, known PodClaims) (made map[string]corev1.PodResourceClaimStatus, changed bool) {
	made = map[string]corev1.PodResourceClaimStatus{}
	for _, s := range pod.Status.ResourceClaimStatuses {
		made[s.Name] = s
	}
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimTemplateName == nil {
			continue
		}
		if s, ok := made[c.Name]; ok && (s.ResourceClaimName == nil || isMadeFor(pod, known.Claims[*s.ResourceClaimName])) {
			continue
		}
		claim := madeFor(pod, c.Name, known.Claims)
		if claim == nil {
			template := known.Templates[*c.ResourceClaimTemplateName]
			if template == nil {
				p.Missing = append(p.Missing, c)
				continue
			}
			claim = newClaim(pod, c.Name, template)
			p.Create = append(p.Create, claim)
		}
		if s := made[c.Name]; s.ResourceClaimName == nil || *s.ResourceClaimName != claim.Name {
			made[c.Name], changed = corev1.PodResourceClaimStatus{Name: c.Name, ResourceClaimName: &claim.Name}, true
		}
	}
	return made, changed
}

// isMadeFor reports whether a claim exists and the pod owns it.
func isMadeFor(pod *corev1.Pod, claim *resourcev1.ResourceClaim) bool {
	return claim != nil && metav1.IsControlledBy(claim, pod)
}

// madeFor returns the claim that was created for a pod's claim of that name; the pod's status may not
// name it yet. Among several, it always returns the same one.
func madeFor(pod *corev1.Pod, name string, claims map[string]*resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	for _, key := range slices.Sorted(maps.Keys(claims)) {
		if claim := claims[key]; isMadeFor(pod, claim) && claim.Annotations[resourcev1.PodResourceClaimAnnotation] == name {
			return claim
		}
	}
	return nil
}

// maxBase is the maximum length of a claim's name without the characters that make it unique.
const maxBase = 57

// newClaim returns a claim for a pod. Its name is always the same: a second creation, after a stale
// read or a lost answer, finds that it exists.
func newClaim(pod *corev1.Pod, name string, template *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	base := pod.Name + "-" + name + "-"
	if n := len(base); n > maxBase {
		base = pod.Name[:len(pod.Name)*maxBase/n] + "-" + name[:len(name)*maxBase/n]
	}
	annotations := maps.Clone(template.Spec.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resourcev1.PodResourceClaimAnnotation] = name
	isController := true
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: base + suffix(string(pod.UID)+"/"+name), GenerateName: base,
			Labels: maps.Clone(template.Spec.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &isController}},
		},
		Spec: *template.Spec.Spec.DeepCopy(),
	}
}

// suffix returns five characters that depend on a text, from the alphabet of generated names.
func suffix(of string) string {
	const characters = "bcdfghjklmnpqrstvwxz2456789"
	sum := sha256.Sum256([]byte(of))
	var out [5]byte
	for i := range out {
		out[i] = characters[int(sum[i])%len(characters)]
	}
	return string(out[:])
}

// toReserve returns the pod's claims that are allocated and neither reserved for it nor for as many
// others as possible.
func toReserve(pod *corev1.Pod, claims map[string]*resourcev1.ResourceClaim) []*resourcev1.ResourceClaim {
	var found []*resourcev1.ResourceClaim
	for _, name := range claimNames(pod) {
		claim := claims[name]
		if claim == nil || claim.Status.Allocation == nil || claim.DeletionTimestamp != nil {
			continue
		}
		reserved := slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
		if !reserved && len(claim.Status.ReservedFor) < resourcev1.ResourceClaimReservedForMaxSize {
			found = append(found, claim)
		}
	}
	return found
}

// claimNames returns the known names of the claims that a pod uses.
func claimNames(pod *corev1.Pod) []string {
	var names []string
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			names = append(names, *c.ResourceClaimName)
		}
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.ResourceClaimName != nil {
			names = append(names, *s.ResourceClaimName)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	return names
}

// ClaimPlan has the steps for a claim, in the order of the fields.
type ClaimPlan struct {
	// Release means that Remaining replaces the reservations.
	Release   bool
	Remaining []resourcev1.ResourceClaimConsumerReference
	// Deallocate removes the allocation.
	Deallocate bool
	// Unprotect removes the finalizer.
	Unprotect bool
	// Delete deletes the claim.
	Delete bool
}

// DecideClaim decides the steps for a claim. ended are the references in its reservations to pods
// that are gone or have ended; owner is the pod that it was created for, nil if unknown.
//
// An allocation ends with the last reservation, so that others can have the devices. An allocation
// that was never reserved stays until the claim is deleted: a reservation may follow.
func DecideClaim(claim *resourcev1.ResourceClaim, ended map[resourcev1.ResourceClaimConsumerReference]bool, owner *corev1.Pod) ClaimPlan {
	var plan ClaimPlan
	for _, r := range claim.Status.ReservedFor {
		if !ended[r] {
			plan.Remaining = append(plan.Remaining, r)
		}
	}
	plan.Release = len(plan.Remaining) < len(claim.Status.ReservedFor)
	if len(plan.Remaining) > 0 {
		return plan
	}
	protected := slices.Contains(claim.Finalizers, resourcev1.Finalizer)
	if protected && (plan.Release || claim.DeletionTimestamp != nil) {
		plan.Deallocate, plan.Unprotect = claim.Status.Allocation != nil, true
	}
	plan.Delete = claim.DeletionTimestamp == nil && owner != nil && metav1.IsControlledBy(claim, owner) && isDone(owner)
	return plan
}

// isDone reports whether no container of a pod runs now or later.
func isDone(pod *corev1.Pod) bool {
	return pods.IsFinished(pod) || (pod.DeletionTimestamp != nil && pod.Spec.NodeName == "")
}

// describe returns the message of an event about a missing template.
func describe(missing corev1.PodResourceClaim) string {
	return fmt.Sprintf("PodResourceClaim %s: resource claim template %q: resourceclaimtemplate.resource.k8s.io %q not found",
		missing.Name, *missing.ResourceClaimTemplateName, *missing.ResourceClaimTemplateName)
}
