package registry

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/deletion"
)

func replicationControllers() Kind {
	return define[corev1.ReplicationController, corev1.ReplicationControllerList](Kind{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "ReplicationController",
		Resource:            "replicationcontrollers",
		Why:                 "The kind that garbage collection was made for, and one of the two that still orphan by default.",
		Namespaced:          true,
		ShortNames:          []string{"rc"},
		Categories:          []string{"all"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		Deletion:            deletion.Strategy{DefaultPropagation: metav1.DeletePropagationOrphan},
	}, slices.Concat([]column{
		number("Desired", "Pods that there are to be.", func(rc *corev1.ReplicationController) int { return int(deref(rc.Spec.Replicas, 0)) }),
		number("Current", "Pods that there are.", func(rc *corev1.ReplicationController) int { return int(rc.Status.Replicas) }),
		number("Ready", "Pods that are ready.", func(rc *corev1.ReplicationController) int { return int(rc.Status.ReadyReplicas) }),
		ageColumn(),
	}, templateColumns(func(rc *corev1.ReplicationController) *corev1.PodTemplateSpec {
		if rc.Spec.Template == nil {
			return &corev1.PodTemplateSpec{}
		}
		return rc.Spec.Template
	}, func(rc *corev1.ReplicationController) string { return labelsText(rc.Spec.Selector) })),
		behaviour[*corev1.ReplicationController]{
			defaults: defaultReplicationController,
			validate: validateReplicationController,
			desired:  func(rc *corev1.ReplicationController) any { return rc.Spec },
			status:   part(func(rc *corev1.ReplicationController) *corev1.ReplicationControllerStatus { return &rc.Status }),
			validateStatus: func(rc, _ *corev1.ReplicationController) field.ErrorList {
				return counts(field.NewPath("status"), map[string]int32{
					"replicas": rc.Status.Replicas, "fullyLabeledReplicas": rc.Status.FullyLabeledReplicas,
					"readyReplicas": rc.Status.ReadyReplicas, "availableReplicas": rc.Status.AvailableReplicas,
				})
			},
			selectable: func(rc *corev1.ReplicationController) fields.Set {
				return fields.Set{"status.replicas": strconv.Itoa(int(rc.Status.Replicas))}
			},
			scale: &scaling[*corev1.ReplicationController]{
				replicas: func(rc *corev1.ReplicationController) **int32 { return &rc.Spec.Replicas },
				current:  func(rc *corev1.ReplicationController) int32 { return rc.Status.Replicas },
				selector: func(rc *corev1.ReplicationController) string {
					return labels.SelectorFromSet(rc.Spec.Selector).String()
				},
			},
		})
}

// defaultReplicationController makes the controller select, and be labelled with,
// what its template makes.
func defaultReplicationController(rc *corev1.ReplicationController) {
	setDefaultPtr(&rc.Spec.Replicas, 1)
	if rc.Spec.Template == nil {
		return
	}
	defaultPodSpec(&rc.Spec.Template.Spec)
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
		notNegative(rc.Spec.Replicas, spec.Child("replicas")),
		notNegative(&rc.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
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
	return append(errs, validateTemplate("ReplicationController", rc.Spec.Template, template)...)
}
