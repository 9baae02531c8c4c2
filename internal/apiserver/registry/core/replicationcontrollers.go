package core

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func replicationControllers() registry.Resource {
	return registry.Define[corev1.ReplicationController, corev1.ReplicationControllerList](registry.Resource{
		GroupVersion: corev1.SchemeGroupVersion,
		Kind:         "ReplicationController",
		Plural:       "replicationcontrollers",
		Namespaced:   true,
		ShortNames:   []string{"rc"},
		Categories:   []string{"all"},
		ValidateName: func(name string, prefix bool) []string {
			if prefix { // only the generated name counts
				return nil
			}
			return content.IsDNS1123Subdomain(name)
		},
		UnconditionalUpdate: true,
	}, slices.Concat([]table.Column{
		table.Number("Desired", "Pods that are desired.", func(rc *corev1.ReplicationController) int { return int(ptr.Deref(rc.Spec.Replicas, 0)) }),
		table.Number("Current", "Pods that exist.", func(rc *corev1.ReplicationController) int { return int(rc.Status.Replicas) }),
		table.Number("Ready", "Pods that are ready.", func(rc *corev1.ReplicationController) int { return int(rc.Status.ReadyReplicas) }),
		table.Age(),
	}, podspec.TemplateColumns(func(rc *corev1.ReplicationController) *corev1.PodTemplateSpec {
		if rc.Spec.Template == nil {
			return &corev1.PodTemplateSpec{}
		}
		return rc.Spec.Template
	}, func(rc *corev1.ReplicationController) string { return table.Labels(rc.Spec.Selector) })),
		registry.Strategy[*corev1.ReplicationController]{
			Default:  defaultReplicationController,
			Validate: validateReplicationController,
			Warn: func(rc, old *corev1.ReplicationController) []string {
				return append(podspec.WarnOfName(rc, old), podspec.WarnOfTemplate(rc, old, rc.Spec.Template, field.NewPath("spec", "template"))...)
			},
			Desired:    func(rc *corev1.ReplicationController) any { return rc.Spec },
			CopyStatus: registry.CopyField(func(rc *corev1.ReplicationController) *corev1.ReplicationControllerStatus { return &rc.Status }),
			ValidateStatusUpdate: func(rc, _ *corev1.ReplicationController) field.ErrorList {
				return validateReplicationControllerStatus(&rc.Status, field.NewPath("status"))
			},
			SelectableFields: func(rc *corev1.ReplicationController) fields.Set {
				return fields.Set{"status.replicas": strconv.Itoa(int(rc.Status.Replicas))}
			},
			Scale: &registry.Scaling[*corev1.ReplicationController]{
				Replicas:       func(rc *corev1.ReplicationController) **int32 { return &rc.Spec.Replicas },
				StatusReplicas: func(rc *corev1.ReplicationController) int32 { return rc.Status.Replicas },
				Selector: func(rc *corev1.ReplicationController) string {
					return labels.SelectorFromSet(rc.Spec.Selector).String()
				},
			},
		})
}

func validateReplicationControllerStatus(s *corev1.ReplicationControllerStatus, path *field.Path) field.ErrorList {
	return slices.Concat(
		validate.NotNegative(&s.ObservedGeneration, path.Child("observedGeneration")),
		validate.Counts(path, map[string]int32{
			"replicas": s.Replicas, "fullyLabeledReplicas": s.FullyLabeledReplicas,
			"readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas,
		}),
		validate.NoMoreThan(s.Replicas, "status.replicas", path, map[string]int32{
			"fullyLabeledReplicas": s.FullyLabeledReplicas, "readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas,
		}),
		validate.NoMoreThan(s.ReadyReplicas, "readyReplicas", path, map[string]int32{"availableReplicas": s.AvailableReplicas}),
	)
}

// defaultReplicationController sets the selector and the labels from the template.
func defaultReplicationController(rc *corev1.ReplicationController) {
	registry.SetDefaultPtr(&rc.Spec.Replicas, 1)
	if rc.Spec.Template == nil {
		return
	}
	podspec.DefaultSpec(&rc.Spec.Template.Spec)
	if made := rc.Spec.Template.Labels; len(made) > 0 {
		if len(rc.Spec.Selector) == 0 {
			rc.Spec.Selector = maps.Clone(made)
		}
		if len(rc.Labels) == 0 {
			rc.Labels = maps.Clone(made)
		}
	}
}

func validateReplicationController(rc *corev1.ReplicationController) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		validate.NotNegative(rc.Spec.Replicas, spec.Child("replicas")),
		validate.NotNegative(&rc.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
	)
	if rc.Spec.Replicas == nil {
		errs = append(errs, field.Required(spec.Child("replicas"), ""))
	}
	selector := labels.SelectorFromSet(rc.Spec.Selector)
	if selector.Empty() {
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	}
	if rc.Spec.Template == nil {
		return append(errs, field.Required(spec.Child("template"), ""))
	}
	template := spec.Child("template")
	if made := rc.Spec.Template.Labels; !selector.Empty() && !selector.Matches(labels.Set(made)) {
		errs = append(errs, field.Invalid(template.Child("metadata", "labels"), made, "`selector` does not match template `labels`"))
	}
	return append(errs, podspec.ValidateTemplate("ReplicationController", rc.Spec.Template, template)...)
}
