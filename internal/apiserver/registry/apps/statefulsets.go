package apps

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func statefulSets() registry.Resource {
	return registry.Define[appsv1.StatefulSet, appsv1.StatefulSetList](registry.Resource{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Legacy:              legacyStatefulSets(),
		Kind:                "StatefulSet",
		Plural:              "statefulsets",
		Namespaced:          true,
		ShortNames:          []string{"sts"},
		Categories:          []string{"all"},
		ValidateName:        apivalidation.NameIsDNSLabel, // part of its pods' names and host names
		UnconditionalUpdate: true,
	}, slices.Concat([]table.Column{
		table.Text("Ready", "Ready pods, of the desired ones.", func(s *appsv1.StatefulSet) string {
			return table.Fraction(s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 0))
		}),
		table.Age(),
	}, podspec.TemplateColumns(
		func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template }, nil,
	)), registry.Strategy[*appsv1.StatefulSet]{
		Default:        defaultStatefulSet,
		Validate:       validateStatefulSet,
		ValidateCreate: validateNewStatefulSet,
		ValidateUpdate: validateStatefulSetUpdate,
		Warn:           warnOfStatefulSet,
		Desired:        func(s *appsv1.StatefulSet) any { return s.Spec },
		CopyStatus:     registry.CopyField(func(s *appsv1.StatefulSet) *appsv1.StatefulSetStatus { return &s.Status }),
		ValidateStatusUpdate: func(s, old *appsv1.StatefulSet) field.ErrorList {
			status, path := s.Status, field.NewPath("status")
			return slices.Concat(validateObserved(status.ObservedGeneration, status.CollisionCount, old.Status.CollisionCount, path),
				validate.Counts(path, map[string]int32{
					"replicas": status.Replicas, "readyReplicas": status.ReadyReplicas, "currentReplicas": status.CurrentReplicas,
					"updatedReplicas": status.UpdatedReplicas, "availableReplicas": status.AvailableReplicas,
				}),
				validate.NoMoreThan(status.Replicas, allReplicas, path, map[string]int32{
					"readyReplicas": status.ReadyReplicas, "currentReplicas": status.CurrentReplicas,
					"updatedReplicas": status.UpdatedReplicas, "availableReplicas": status.AvailableReplicas,
				}),
				validate.NoMoreThan(status.ReadyReplicas, "status.readyReplicas", path, map[string]int32{"availableReplicas": status.AvailableReplicas}))
		},
		Scale: &registry.Scaling[*appsv1.StatefulSet]{
			Replicas:       func(s *appsv1.StatefulSet) **int32 { return &s.Spec.Replicas },
			StatusReplicas: func(s *appsv1.StatefulSet) int32 { return s.Status.Replicas },
			Selector:       func(s *appsv1.StatefulSet) string { return registry.ScaleSelector(s.Spec.Selector) },
		},
	})
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	podspec.DefaultSpec(&s.Spec.Template.Spec)
	for i := range s.Spec.VolumeClaimTemplates {
		claim := &s.Spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		podspec.DefaultVolumeClaim(claim)
	}
	registry.SetDefaultPtr(&s.Spec.Replicas, 1)
	registry.SetDefaultPtr(&s.Spec.RevisionHistoryLimit, 10)
	registry.SetDefault(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	defaultStatefulUpdates(&s.Spec.UpdateStrategy)
	registry.SetDefaultPtr(&s.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	registry.SetDefault(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	registry.SetDefault(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
}

// defaultStatefulUpdates leaves out the parameters of a strategy that is named without them.
func defaultStatefulUpdates(u *appsv1.StatefulSetUpdateStrategy) {
	if u.Type == "" {
		u.Type = appsv1.RollingUpdateStatefulSetStrategyType
		registry.SetDefaultPtr(&u.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if u.Type == appsv1.RollingUpdateStatefulSetStrategyType && u.RollingUpdate != nil {
		registry.SetDefaultPtr(&u.RollingUpdate.Partition, 0)
		registry.SetDefaultPtr(&u.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
}

func validateStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		validate.NotNegative(s.Spec.Replicas, spec.Child("replicas")),
		validate.NotNegative(&s.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
		validate.MatchingSelector(validate.SelectorRules{Empty: "empty selector is invalid for statefulset", Invalid: new("")}, s.Spec.Selector, s.Spec.Template.Labels, spec),
		validateSelectedTemplate("StatefulSet", withClaims(s), s.Spec.Selector, spec.Child("template")),
	)
	errs = append(errs, validateStatefulUpdates(&s.Spec.UpdateStrategy, spec.Child("updateStrategy"))...)
	if p := s.Spec.PodManagementPolicy; p != appsv1.OrderedReadyPodManagement && p != appsv1.ParallelPodManagement {
		errs = append(errs, field.Invalid(spec.Child("podManagementPolicy"), p,
			fmt.Sprintf("must be '%s' or '%s'", appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)))
	}
	if s.Spec.Ordinals != nil {
		errs = append(errs, validate.NotNegative(&s.Spec.Ordinals.Start, spec.Child("ordinals", "start"))...)
	}
	if policy := s.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		path := spec.Child("persistentVolumeClaimRetentionPolicy")
		allowed := []appsv1.PersistentVolumeClaimRetentionPolicyType{
			appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		}
		errs = append(errs, validate.OneOf(policy.WhenDeleted, path.Child("whenDeleted"), allowed...)...)
		errs = append(errs, validate.OneOf(policy.WhenScaled, path.Child("whenScaled"), allowed...)...)
	}
	return errs
}

func validateStatefulUpdates(u *appsv1.StatefulSetUpdateStrategy, at *field.Path) field.ErrorList {
	path := at.Child("rollingUpdate")
	switch {
	case u.Type != appsv1.RollingUpdateStatefulSetStrategyType && u.Type != appsv1.OnDeleteStatefulSetStrategyType:
		return field.ErrorList{field.Invalid(at, *u, fmt.Sprintf("must be '%s' or '%s'",
			appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType))}
	case u.RollingUpdate == nil:
		return nil
	case u.Type == appsv1.OnDeleteStatefulSetStrategyType:
		return field.ErrorList{field.Invalid(path, u.RollingUpdate, fmt.Sprintf("only allowed for updateStrategy '%s'", appsv1.RollingUpdateStatefulSetStrategyType))}
	}
	unavailable, at := u.RollingUpdate.MaxUnavailable, path.Child("maxUnavailable")
	errs := append(validate.NotNegative(u.RollingUpdate.Partition, path.Child("partition")), validate.IntOrPercent(unavailable, at)...)
	if unavailable == nil {
		return errs
	}
	if isZero(unavailable) {
		errs = append(errs, field.Invalid(at, *unavailable, "cannot be 0"))
	}
	return append(errs, validateShare(unavailable, at)...)
}

// withClaims returns the template as its pods get it: with a volume for each volume claim, so that containers may mount
// it, and without host names.
func withClaims(s *appsv1.StatefulSet) *corev1.PodTemplateSpec {
	template := s.Spec.Template
	template.Spec.Hostname, template.Spec.Subdomain = "", ""
	template.Spec.Volumes = nil
	claims := map[string]bool{}
	for i := range s.Spec.VolumeClaimTemplates {
		claim := &s.Spec.VolumeClaimTemplates[i]
		if claims[claim.Name] {
			continue
		}
		claims[claim.Name] = true
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}})
	}
	// A claim replaces the volume of the same name.
	for _, volume := range s.Spec.Template.Spec.Volumes {
		if !claims[volume.Name] {
			template.Spec.Volumes = append(template.Spec.Volumes, volume)
		}
	}
	return &template
}

// validateNewStatefulSet checks what cannot change: the name of the service, and the volume claims that each
// pod gets.
func validateNewStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validate.OptionalLabel(s.Spec.ServiceName, spec.Child("serviceName"))
	return append(errs, validate.Each(s.Spec.VolumeClaimTemplates, spec.Child("volumeClaimTemplates"), func(c *corev1.PersistentVolumeClaim, at *field.Path) field.ErrorList {
		return podspec.ValidateVolumeClaimSpec(&c.Spec, nil, at.Child("spec"))
	})...)
}

func warnOfStatefulSet(s, old *appsv1.StatefulSet) []string {
	all := podspec.WarnOfTemplate(s, old, &s.Spec.Template, templatePath())
	for i := range s.Spec.VolumeClaimTemplates {
		at := field.NewPath("spec", "volumeClaimTemplates").Index(i)
		if old != nil {
			at = at.Child("Spec") // as Kubernetes has it
		}
		all = append(all, podspec.WarnOfClaim(&s.Spec.VolumeClaimTemplates[i].Spec, at)...)
	}
	if ptr.Deref(s.Spec.RevisionHistoryLimit, 0) < 0 {
		all = append(all, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return all
}

func validateStatefulSetUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	spec := field.NewPath("spec")
	return slices.Concat(
		validate.Immutable(s.Spec.Selector, old.Spec.Selector, spec.Child("selector")),
		validate.Immutable(s.Spec.VolumeClaimTemplates, old.Spec.VolumeClaimTemplates, spec.Child("volumeClaimTemplates")),
		validate.Immutable(s.Spec.ServiceName, old.Spec.ServiceName, spec.Child("serviceName")),
		validate.Immutable(s.Spec.PodManagementPolicy, old.Spec.PodManagementPolicy, spec.Child("podManagementPolicy")))
}
