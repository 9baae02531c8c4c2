package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// completeStatus sets the fields that an update of a pod's status leaves out, such as by a node that does not know them,
// and removes the fields of feature gates that Kubernetes disables by default.
func completeStatus(p, old *corev1.Pod) {
	s := &p.Status
	if s.ResourceClaimStatuses == nil {
		s.ResourceClaimStatuses = old.Status.ResourceClaimStatuses
	}
	if s.ExtendedResourceClaimStatus == nil {
		s.ExtendedResourceClaimStatus = old.Status.ExtendedResourceClaimStatus
	}
	registry.SetDefault(&s.QOSClass, old.Status.QOSClass) // it is derived from the spec
	keepObservedGenerations(s, &old.Status)
	s.NodeAllocatableResourceClaimStatuses, s.VolumeHealth = nil, nil
	for _, statuses := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range statuses {
			for j := range statuses[i].VolumeMounts {
				statuses[i].VolumeMounts[j].VolumeStatus = nil
			}
		}
	}
}

// defaultPod sets the defaults of a pod, and completes its addresses.
func defaultPod(p *corev1.Pod) {
	podspec.DefaultPod(p)
	agreeOnAddresses(&p.Status)
}

// agreeOnAddresses keeps the pod's address and the list of its addresses in agreement, for clients that know only one
// of them. If they differ, the single address wins.
func agreeOnAddresses(s *corev1.PodStatus) {
	switch {
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	case len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	}
}

// keepObservedGenerations keeps the observed generations that an older client leaves out. Several conditions may have
// the same type.
func keepObservedGenerations(s, old *corev1.PodStatus) {
	registry.SetDefault(&s.ObservedGeneration, old.ObservedGeneration)
	observed := map[corev1.PodConditionType][]int64{}
	for _, c := range old.Conditions {
		observed[c.Type] = append(observed[c.Type], c.ObservedGeneration)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if before := observed[c.Type]; len(before) > 0 {
			registry.SetDefault(&c.ObservedGeneration, before[0])
			observed[c.Type] = before[1:]
		}
	}
}

// validatePodStatus checks the status that nodes and controllers report, and that its final fields do not change. /status
// accepts annotations, too.
func validatePodStatus(p, old *corev1.Pod) field.ErrorList {
	s, was, path := &p.Status, &old.Status, field.NewPath("status")
	errs := slices.Concat(
		validateChangedAnnotations(p, old),
		validatePodConditions(s.Conditions, path.Child("conditions")),
		validateObserved(s.ObservedGeneration, path.Child("observedGeneration")),
		validateNomination(s.NominatedNodeName, old, path.Child("nominatedNodeName")),
		podspec.ValidateResourceClaimStatuses(s.ResourceClaimStatuses, &p.Spec, path.Child("resourceClaimStatuses")),
		podspec.ValidateExtendedClaimStatus(s.ExtendedResourceClaimStatus, &p.Spec, path.Child("extendedResourceClaimStatus")),
		validateAddresses(podAddresses(s), podAddresses(was), path.Child("podIPs")),
		validateFirstAddress(s, path.Child("podIPs")),
		validateAddresses(hostAddresses(s), hostAddresses(was), path.Child("hostIPs")),
	)
	if was.QOSClass != "" && s.QOSClass != was.QOSClass {
		errs = append(errs, field.Invalid(path.Child("qosClass"), s.QOSClass, apivalidation.FieldImmutableErrorMsg))
	}
	if len(s.HostIPs) > 0 && s.HostIPs[0].IP != s.HostIP {
		errs = append(errs, field.Invalid(path.Child("hostIPs").Index(0).Child("ip"), s.HostIPs[0].IP, "must be equal to `hostIP`"))
	}
	return slices.Concat(errs, validateTransitions(s, was, &old.Spec, path), validateContainerStatuses(p, path))
}

func validateObserved(generation int64, at *field.Path) field.ErrorList {
	if generation < 0 {
		return field.ErrorList{field.Invalid(at, generation, "must be a non-negative integer")}
	}
	return nil
}

func validatePodConditions(conditions []corev1.PodCondition, path *field.Path) field.ErrorList {
	return validate.Each(conditions, path, func(c *corev1.PodCondition, at *field.Path) field.ErrorList {
		errs := validateObserved(c.ObservedGeneration, at.Child("observedGeneration"))
		return append(errs, validate.FromMessages(c.Type, at.Child("Type"), validation.IsQualifiedName(string(c.Type)))...)
	})
}

// validateNomination checks the node that a pod is nominated to. A bound pod gets no nomination.
func validateNomination(node string, old *corev1.Pod, at *field.Path) field.ErrorList {
	if node == "" || node == old.Status.NominatedNodeName {
		return nil
	}
	errs := validate.OptionalSubdomain(node, at)
	if old.Spec.NodeName != "" {
		errs = append(errs, field.Forbidden(at, "may not be set on pods that are already bound to a node"))
	}
	return errs
}

// validateFirstAddress refuses a list of addresses that begins with an empty one. Otherwise agreeOnAddresses has made both
// fields agree.
func validateFirstAddress(s *corev1.PodStatus, at *field.Path) field.ErrorList {
	if (s.PodIP == "") == (len(s.PodIPs) == 0) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, s.PodIPs, "podIP and podIPs must either both be set or both be unset")}
}

func podAddresses(s *corev1.PodStatus) []string {
	var all []string
	for _, a := range s.PodIPs {
		all = append(all, a.IP)
	}
	return all
}

func hostAddresses(s *corev1.PodStatus) []string {
	var all []string
	for _, a := range s.HostIPs {
		all = append(all, a.IP)
	}
	return all
}

// validateAddresses checks addresses: at most one of each family. Old values may stay in any form.
func validateAddresses(addresses, old []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, address := range addresses {
		errs = append(errs, validation.IsValidIPForLegacyField(path.Index(i), address, false, old)...)
	}
	if len(addresses) < 2 {
		return errs
	}
	dual, err := netutils.IsDualStackIPStrings(addresses)
	if err != nil {
		errs = append(errs, field.InternalError(path, fmt.Errorf("failed to check for dual stack with error:%w", err)))
	}
	if !dual || len(addresses) > 2 {
		errs = append(errs, field.Invalid(path, addresses, "may specify no more than one IP for each IP family"))
	}
	return errs
}
