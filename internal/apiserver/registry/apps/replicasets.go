package apps

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func replicaSets() registry.Resource {
	return registry.Define[appsv1.ReplicaSet, appsv1.ReplicaSetList](registry.Resource{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Legacy:              legacyReplicaSets(),
		Kind:                "ReplicaSet",
		Plural:              "replicasets",
		Namespaced:          true,
		ShortNames:          []string{"rs"},
		Categories:          []string{"all"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, slices.Concat([]table.Column{
		table.Number("Desired", "Pods that are desired.", func(rs *appsv1.ReplicaSet) int { return int(ptr.Deref(rs.Spec.Replicas, 0)) }),
		table.Number("Current", "Pods that exist.", func(rs *appsv1.ReplicaSet) int { return int(rs.Status.Replicas) }),
		table.Number("Ready", "Pods that are ready.", func(rs *appsv1.ReplicaSet) int { return int(rs.Status.ReadyReplicas) }),
		table.Age(),
	}, podspec.TemplateColumns(
		func(rs *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &rs.Spec.Template },
		func(rs *appsv1.ReplicaSet) string { return table.Selector(rs.Spec.Selector) },
	)), registry.Strategy[*appsv1.ReplicaSet]{
		Default: func(rs *appsv1.ReplicaSet) {
			podspec.DefaultSpec(&rs.Spec.Template.Spec)
			registry.SetDefaultPtr(&rs.Spec.Replicas, 1)
		},
		Validate: validateReplicaSet,
		ValidateUpdate: func(rs, old *appsv1.ReplicaSet) field.ErrorList {
			return validate.Immutable(rs.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
		},
		Warn:       func(rs, old *appsv1.ReplicaSet) []string { return warnOfPods(rs, old, &rs.Spec.Template) },
		Desired:    func(rs *appsv1.ReplicaSet) any { return rs.Spec },
		CopyStatus: registry.CopyField(func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSetStatus { return &rs.Status }),
		ValidateStatusUpdate: func(rs, _ *appsv1.ReplicaSet) field.ErrorList {
			s, path := rs.Status, field.NewPath("status")
			return slices.Concat(validateObserved(s.ObservedGeneration, nil, nil, path),
				validate.Counts(path, map[string]int32{
					"replicas": s.Replicas, "fullyLabeledReplicas": s.FullyLabeledReplicas,
					"readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas,
				}),
				validate.NotNegative(s.TerminatingReplicas, path.Child("terminatingReplicas")),
				validate.NoMoreThan(s.Replicas, allReplicas, path, map[string]int32{
					"fullyLabeledReplicas": s.FullyLabeledReplicas, "readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas,
				}),
				validate.NoMoreThan(s.ReadyReplicas, "readyReplicas", path, map[string]int32{"availableReplicas": s.AvailableReplicas}))
		},
		SelectableFields: func(rs *appsv1.ReplicaSet) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(rs.Status.Replicas))}
		},
		Scale: &registry.Scaling[*appsv1.ReplicaSet]{
			Replicas:       func(rs *appsv1.ReplicaSet) **int32 { return &rs.Spec.Replicas },
			StatusReplicas: func(rs *appsv1.ReplicaSet) int32 { return rs.Status.Replicas },
			Selector:       func(rs *appsv1.ReplicaSet) string { return registry.ScaleSelector(rs.Spec.Selector) },
		},
	})
}

func validateReplicaSet(rs *appsv1.ReplicaSet) field.ErrorList {
	spec := field.NewPath("spec")
	return slices.Concat(
		validate.NotNegative(rs.Spec.Replicas, spec.Child("replicas")),
		validate.NotNegative(&rs.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
		validate.MatchingSelector(deploymentSelector(), rs.Spec.Selector, rs.Spec.Template.Labels, spec),
		validateSelectedTemplate("ReplicaSet", &rs.Spec.Template, rs.Spec.Selector, spec.Child("template")),
	)
}
