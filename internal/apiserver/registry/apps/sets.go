package apps

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		Kind:                "StatefulSet",
		Plural:              "statefulsets",
		Namespaced:          true,
		ShortNames:          []string{"sts"},
		Categories:          []string{"all"},
		ValidateName:        apivalidation.NameIsDNSLabel, // its pods are named, and found, by it
		UnconditionalUpdate: true,
	}, slices.Concat([]table.Column{
		table.Text("Ready", "Pods that are ready, of those that there are to be.", func(s *appsv1.StatefulSet) string {
			return table.Fraction(s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 0))
		}),
		table.Age(),
	}, podspec.TemplateColumns(
		func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template }, nil,
	)), registry.Strategy[*appsv1.StatefulSet]{
		Default:        defaultStatefulSet,
		Validate:       validateStatefulSet,
		ValidateUpdate: validateStatefulSetUpdate,
		Desired:        func(s *appsv1.StatefulSet) any { return s.Spec },
		CopyStatus:     registry.CopyField(func(s *appsv1.StatefulSet) *appsv1.StatefulSetStatus { return &s.Status }),
		ValidateStatusUpdate: func(s, _ *appsv1.StatefulSet) field.ErrorList {
			return validate.Counts(field.NewPath("status"), map[string]int32{
				"replicas": s.Status.Replicas, "readyReplicas": s.Status.ReadyReplicas, "currentReplicas": s.Status.CurrentReplicas,
				"updatedReplicas": s.Status.UpdatedReplicas, "availableReplicas": s.Status.AvailableReplicas,
			})
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
		podspec.DefaultVolumeClaim(&s.Spec.VolumeClaimTemplates[i])
	}
	registry.SetDefaultPtr(&s.Spec.Replicas, 1)
	registry.SetDefaultPtr(&s.Spec.RevisionHistoryLimit, 10)
	registry.SetDefault(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	registry.SetDefault(&s.Spec.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
	if s.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		registry.SetDefaultPtr(&s.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
		registry.SetDefaultPtr(&s.Spec.UpdateStrategy.RollingUpdate.Partition, 0)
	}
	registry.SetDefaultPtr(&s.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	registry.SetDefault(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	registry.SetDefault(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
}

func validateStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		validate.NotNegative(s.Spec.Replicas, spec.Child("replicas")),
		validate.NotNegative(&s.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
		validate.NotNegative(s.Spec.RevisionHistoryLimit, spec.Child("revisionHistoryLimit")),
		validate.OneOf(s.Spec.PodManagementPolicy, spec.Child("podManagementPolicy"),
			appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement),
		validate.OneOf(s.Spec.UpdateStrategy.Type, spec.Child("updateStrategy", "type"),
			appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType),
		validate.MatchingSelector("statefulset", s.Spec.Selector, s.Spec.Template.Labels, spec),
		podspec.ValidateTemplate("StatefulSet", withClaims(s), spec.Child("template")),
	)
	if rolling := s.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		path := spec.Child("updateStrategy", "rollingUpdate")
		if s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
			errs = append(errs, field.Invalid(path, rolling, fmt.Sprintf("only allowed for updateStrategy '%s'", appsv1.RollingUpdateStatefulSetStrategyType)))
		}
		errs = append(errs, validate.NotNegative(rolling.Partition, path.Child("partition"))...)
		errs = append(errs, validate.IntOrPercent(rolling.MaxUnavailable, path.Child("maxUnavailable"))...)
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

// withClaims is the template with the volumes that its pods get for the claims: what
// containers mount may be one of them.
func withClaims(s *appsv1.StatefulSet) *corev1.PodTemplateSpec {
	template := s.Spec.Template
	template.Spec.Volumes = slices.Clone(template.Spec.Volumes)
	for _, claim := range s.Spec.VolumeClaimTemplates {
		if !slices.ContainsFunc(template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == claim.Name }) {
			template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
			}})
		}
	}
	return &template
}

func validateStatefulSetUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	undone := s.Spec.DeepCopy()
	undone.Replicas = old.Spec.Replicas
	undone.Ordinals = old.Spec.Ordinals
	undone.Template = old.Spec.Template
	undone.UpdateStrategy = old.Spec.UpdateStrategy
	undone.RevisionHistoryLimit = old.Spec.RevisionHistoryLimit
	undone.PersistentVolumeClaimRetentionPolicy = old.Spec.PersistentVolumeClaimRetentionPolicy
	undone.MinReadySeconds = old.Spec.MinReadySeconds
	spec := field.NewPath("spec")
	if len(validate.Immutable(*undone, old.Spec, spec)) > 0 {
		return field.ErrorList{field.Forbidden(spec, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "+
			"'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")}
	}
	return nil
}

func daemonSets() registry.Resource {
	return registry.Define[appsv1.DaemonSet, appsv1.DaemonSetList](registry.Resource{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Kind:                "DaemonSet",
		Plural:              "daemonsets",
		Namespaced:          true,
		ShortNames:          []string{"ds"},
		Categories:          []string{"all"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, slices.Concat([]table.Column{
		table.Number("Desired", "Nodes that are to run a pod.", func(d *appsv1.DaemonSet) int { return int(d.Status.DesiredNumberScheduled) }),
		table.Number("Current", "Nodes that have a pod.", func(d *appsv1.DaemonSet) int { return int(d.Status.CurrentNumberScheduled) }),
		table.Number("Ready", "Nodes on which the pod is ready.", func(d *appsv1.DaemonSet) int { return int(d.Status.NumberReady) }),
		table.Number("Up-to-date", "Nodes with a pod made from the present template.", func(d *appsv1.DaemonSet) int { return int(d.Status.UpdatedNumberScheduled) }),
		table.Number("Available", "Nodes on which the pod has been ready for long enough.", func(d *appsv1.DaemonSet) int { return int(d.Status.NumberAvailable) }),
		table.Text("Node Selector", "Labels of the nodes that are to run a pod.", func(d *appsv1.DaemonSet) string {
			return table.Labels(d.Spec.Template.Spec.NodeSelector)
		}),
		table.Age(),
	}, podspec.TemplateColumns(
		func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template },
		func(d *appsv1.DaemonSet) string { return table.Selector(d.Spec.Selector) },
	)), registry.Strategy[*appsv1.DaemonSet]{
		Default:  defaultDaemonSet,
		Validate: validateDaemonSet,
		ValidateUpdate: func(d, old *appsv1.DaemonSet) field.ErrorList {
			return validate.Immutable(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
		},
		Desired:    func(d *appsv1.DaemonSet) any { return d.Spec },
		CopyStatus: registry.CopyField(func(d *appsv1.DaemonSet) *appsv1.DaemonSetStatus { return &d.Status }),
		ValidateStatusUpdate: func(d, _ *appsv1.DaemonSet) field.ErrorList {
			s := d.Status
			return validate.Counts(field.NewPath("status"), map[string]int32{
				"currentNumberScheduled": s.CurrentNumberScheduled, "numberMisscheduled": s.NumberMisscheduled,
				"desiredNumberScheduled": s.DesiredNumberScheduled, "numberReady": s.NumberReady,
				"updatedNumberScheduled": s.UpdatedNumberScheduled, "numberAvailable": s.NumberAvailable,
				"numberUnavailable": s.NumberUnavailable,
			})
		},
	})
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	podspec.DefaultSpec(&d.Spec.Template.Spec)
	registry.SetDefaultPtr(&d.Spec.RevisionHistoryLimit, 10)
	registry.SetDefault(&d.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		registry.SetDefaultPtr(&d.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		registry.SetDefaultPtr(&d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		registry.SetDefaultPtr(&d.Spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
}

func validateDaemonSet(d *appsv1.DaemonSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		validate.NotNegative(&d.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
		validate.NotNegative(d.Spec.RevisionHistoryLimit, spec.Child("revisionHistoryLimit")),
		validate.OneOf(d.Spec.UpdateStrategy.Type, spec.Child("updateStrategy", "type"),
			appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType),
		validate.MatchingSelector("daemonset", d.Spec.Selector, d.Spec.Template.Labels, spec),
		podspec.ValidateTemplate("DaemonSet", &d.Spec.Template, spec.Child("template")),
	)
	if rolling := d.Spec.UpdateStrategy.RollingUpdate; rolling != nil && d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		errs = append(errs, validateDaemonRollout(rolling, spec.Child("updateStrategy", "rollingUpdate"))...)
	}
	return errs
}

// validateDaemonRollout: on each node the new pod comes either after the old one or before it goes.
func validateDaemonRollout(r *appsv1.RollingUpdateDaemonSet, path *field.Path) field.ErrorList {
	errs := append(validate.IntOrPercent(r.MaxUnavailable, path.Child("maxUnavailable")), validate.IntOrPercent(r.MaxSurge, path.Child("maxSurge"))...)
	switch unavailable, surge := !isZero(r.MaxUnavailable), !isZero(r.MaxSurge); {
	case unavailable && surge:
		errs = append(errs, field.Invalid(path.Child("maxSurge"), r.MaxSurge, "may not be set when maxUnavailable is non-zero"))
	case !unavailable && !surge:
		errs = append(errs, field.Required(path.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func controllerRevisions() registry.Resource {
	return registry.Define[appsv1.ControllerRevision, appsv1.ControllerRevisionList](registry.Resource{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Kind:                "ControllerRevision",
		Plural:              "controllerrevisions",
		Namespaced:          true,
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("Controller", "Who made the revision.", controllerText[*appsv1.ControllerRevision]),
		table.Number("Revision", "Number of the revision.", func(r *appsv1.ControllerRevision) int { return int(r.Revision) }),
		table.Age(),
	}, registry.Strategy[*appsv1.ControllerRevision]{
		Validate: func(r *appsv1.ControllerRevision) field.ErrorList {
			errs := validate.NotNegative(&r.Revision, field.NewPath("revision"))
			if r.Data.Raw == nil && r.Data.Object == nil {
				errs = append(errs, field.Required(field.NewPath("data"), "data is mandatory"))
			}
			return errs
		},
		ValidateUpdate: func(r, old *appsv1.ControllerRevision) field.ErrorList {
			return validate.Immutable(r.Data, old.Data, field.NewPath("data"))
		},
	})
}

// controllerText names the owner that controls an object.
func controllerText[P metav1.Object](obj P) string {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return table.None
	}
	name := strings.ToLower(ref.Kind)
	if group, _, grouped := strings.Cut(ref.APIVersion, "/"); grouped {
		name += "." + group
	}
	return name + "/" + ref.Name
}
