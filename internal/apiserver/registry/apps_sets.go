package registry

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
)

func statefulSets() Kind {
	return define[appsv1.StatefulSet, appsv1.StatefulSetList](Kind{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Kind:                "StatefulSet",
		Resource:            "statefulsets",
		Why:                 "An owner with two kinds of dependents, pods and ControllerRevisions, and a policy of its own for claims.",
		Namespaced:          true,
		ShortNames:          []string{"sts"},
		Categories:          []string{"all"},
		Name:                apivalidation.NameIsDNSLabel, // its pods are named, and found, by it
		UnconditionalUpdate: true,
	}, slices.Concat([]column{
		text("Ready", "Pods that are ready, of those that there are to be.", func(s *appsv1.StatefulSet) string {
			return fraction(s.Status.ReadyReplicas, deref(s.Spec.Replicas, 0))
		}),
		ageColumn(),
	}, templateColumns(
		func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template }, nil,
	)), behaviour[*appsv1.StatefulSet]{
		defaults:       defaultStatefulSet,
		validate:       validateStatefulSet,
		validateUpdate: validateStatefulSetUpdate,
		desired:        func(s *appsv1.StatefulSet) any { return s.Spec },
		status:         part(func(s *appsv1.StatefulSet) *appsv1.StatefulSetStatus { return &s.Status }),
		validateStatus: func(s, _ *appsv1.StatefulSet) field.ErrorList {
			return counts(field.NewPath("status"), map[string]int32{
				"replicas": s.Status.Replicas, "readyReplicas": s.Status.ReadyReplicas, "currentReplicas": s.Status.CurrentReplicas,
				"updatedReplicas": s.Status.UpdatedReplicas, "availableReplicas": s.Status.AvailableReplicas,
			})
		},
		scale: &scaling[*appsv1.StatefulSet]{
			replicas: func(s *appsv1.StatefulSet) **int32 { return &s.Spec.Replicas },
			current:  func(s *appsv1.StatefulSet) int32 { return s.Status.Replicas },
			selector: func(s *appsv1.StatefulSet) string { return scaleSelector(s.Spec.Selector) },
		},
	})
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	defaultPodSpec(&s.Spec.Template.Spec)
	for i := range s.Spec.VolumeClaimTemplates {
		defaultClaim(&s.Spec.VolumeClaimTemplates[i])
	}
	setDefaultPtr(&s.Spec.Replicas, 1)
	setDefaultPtr(&s.Spec.RevisionHistoryLimit, 10)
	setDefault(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	setDefault(&s.Spec.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
	if s.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		setDefaultPtr(&s.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
		setDefaultPtr(&s.Spec.UpdateStrategy.RollingUpdate.Partition, 0)
	}
	setDefaultPtr(&s.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	setDefault(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	setDefault(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
}

func validateStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		notNegative(s.Spec.Replicas, spec.Child("replicas")),
		notNegative(&s.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
		notNegative(s.Spec.RevisionHistoryLimit, spec.Child("revisionHistoryLimit")),
		oneOf(s.Spec.PodManagementPolicy, spec.Child("podManagementPolicy"),
			appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement),
		oneOf(s.Spec.UpdateStrategy.Type, spec.Child("updateStrategy", "type"),
			appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType),
		matchingSelector("statefulset", s.Spec.Selector, s.Spec.Template.Labels, spec),
		validateTemplate("StatefulSet", withClaims(s), spec.Child("template")),
	)
	if rolling := s.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		path := spec.Child("updateStrategy", "rollingUpdate")
		if s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
			errs = append(errs, field.Invalid(path, rolling, fmt.Sprintf("only allowed for updateStrategy '%s'", appsv1.RollingUpdateStatefulSetStrategyType)))
		}
		errs = append(errs, notNegative(rolling.Partition, path.Child("partition"))...)
		errs = append(errs, countOrPercent(rolling.MaxUnavailable, path.Child("maxUnavailable"))...)
	}
	if s.Spec.Ordinals != nil {
		errs = append(errs, notNegative(&s.Spec.Ordinals.Start, spec.Child("ordinals", "start"))...)
	}
	if policy := s.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		path := spec.Child("persistentVolumeClaimRetentionPolicy")
		allowed := []appsv1.PersistentVolumeClaimRetentionPolicyType{
			appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		}
		errs = append(errs, oneOf(policy.WhenDeleted, path.Child("whenDeleted"), allowed...)...)
		errs = append(errs, oneOf(policy.WhenScaled, path.Child("whenScaled"), allowed...)...)
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
	if len(immutable(*undone, old.Spec, spec)) > 0 {
		return field.ErrorList{field.Forbidden(spec, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "+
			"'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")}
	}
	return nil
}

func daemonSets() Kind {
	return define[appsv1.DaemonSet, appsv1.DaemonSetList](Kind{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Kind:                "DaemonSet",
		Resource:            "daemonsets",
		Why:                 "An owner of one pod per node and of ControllerRevisions.",
		Namespaced:          true,
		ShortNames:          []string{"ds"},
		Categories:          []string{"all"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, slices.Concat([]column{
		number("Desired", "Nodes that are to run a pod.", func(d *appsv1.DaemonSet) int { return int(d.Status.DesiredNumberScheduled) }),
		number("Current", "Nodes that have a pod.", func(d *appsv1.DaemonSet) int { return int(d.Status.CurrentNumberScheduled) }),
		number("Ready", "Nodes on which the pod is ready.", func(d *appsv1.DaemonSet) int { return int(d.Status.NumberReady) }),
		number("Up-to-date", "Nodes with a pod made from the present template.", func(d *appsv1.DaemonSet) int { return int(d.Status.UpdatedNumberScheduled) }),
		number("Available", "Nodes on which the pod has been ready for long enough.", func(d *appsv1.DaemonSet) int { return int(d.Status.NumberAvailable) }),
		text("Node Selector", "Labels of the nodes that are to run a pod.", func(d *appsv1.DaemonSet) string {
			return labelsText(d.Spec.Template.Spec.NodeSelector)
		}),
		ageColumn(),
	}, templateColumns(
		func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template },
		func(d *appsv1.DaemonSet) string { return selectorText(d.Spec.Selector) },
	)), behaviour[*appsv1.DaemonSet]{
		defaults: defaultDaemonSet,
		validate: validateDaemonSet,
		validateUpdate: func(d, old *appsv1.DaemonSet) field.ErrorList {
			return immutable(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
		},
		desired: func(d *appsv1.DaemonSet) any { return d.Spec },
		status:  part(func(d *appsv1.DaemonSet) *appsv1.DaemonSetStatus { return &d.Status }),
		validateStatus: func(d, _ *appsv1.DaemonSet) field.ErrorList {
			s := d.Status
			return counts(field.NewPath("status"), map[string]int32{
				"currentNumberScheduled": s.CurrentNumberScheduled, "numberMisscheduled": s.NumberMisscheduled,
				"desiredNumberScheduled": s.DesiredNumberScheduled, "numberReady": s.NumberReady,
				"updatedNumberScheduled": s.UpdatedNumberScheduled, "numberAvailable": s.NumberAvailable,
				"numberUnavailable": s.NumberUnavailable,
			})
		},
	})
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	defaultPodSpec(&d.Spec.Template.Spec)
	setDefaultPtr(&d.Spec.RevisionHistoryLimit, 10)
	setDefault(&d.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		setDefaultPtr(&d.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		setDefaultPtr(&d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		setDefaultPtr(&d.Spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
}

func validateDaemonSet(d *appsv1.DaemonSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		notNegative(&d.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
		notNegative(d.Spec.RevisionHistoryLimit, spec.Child("revisionHistoryLimit")),
		oneOf(d.Spec.UpdateStrategy.Type, spec.Child("updateStrategy", "type"),
			appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType),
		matchingSelector("daemonset", d.Spec.Selector, d.Spec.Template.Labels, spec),
		validateTemplate("DaemonSet", &d.Spec.Template, spec.Child("template")),
	)
	if rolling := d.Spec.UpdateStrategy.RollingUpdate; rolling != nil && d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		errs = append(errs, validateDaemonRollout(rolling, spec.Child("updateStrategy", "rollingUpdate"))...)
	}
	return errs
}

// validateDaemonRollout: on each node the new pod comes either after the old one or before it goes.
func validateDaemonRollout(r *appsv1.RollingUpdateDaemonSet, path *field.Path) field.ErrorList {
	errs := append(countOrPercent(r.MaxUnavailable, path.Child("maxUnavailable")), countOrPercent(r.MaxSurge, path.Child("maxSurge"))...)
	switch unavailable, surge := !isZero(r.MaxUnavailable), !isZero(r.MaxSurge); {
	case unavailable && surge:
		errs = append(errs, field.Invalid(path.Child("maxSurge"), r.MaxSurge, "may not be set when maxUnavailable is non-zero"))
	case !unavailable && !surge:
		errs = append(errs, field.Required(path.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func controllerRevisions() Kind {
	return define[appsv1.ControllerRevision, appsv1.ControllerRevisionList](Kind{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Kind:                "ControllerRevision",
		Resource:            "controllerrevisions",
		Why:                 "What StatefulSets and DaemonSets own besides pods: their history.",
		Namespaced:          true,
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []column{
		text("Controller", "Who made the revision.", controllerText[*appsv1.ControllerRevision]),
		number("Revision", "Number of the revision.", func(r *appsv1.ControllerRevision) int { return int(r.Revision) }),
		ageColumn(),
	}, behaviour[*appsv1.ControllerRevision]{
		validate: func(r *appsv1.ControllerRevision) field.ErrorList {
			errs := notNegative(&r.Revision, field.NewPath("revision"))
			if r.Data.Raw == nil && r.Data.Object == nil {
				errs = append(errs, field.Required(field.NewPath("data"), "data is mandatory"))
			}
			return errs
		},
		validateUpdate: func(r, old *appsv1.ControllerRevision) field.ErrorList {
			return immutable(r.Data, old.Data, field.NewPath("data"))
		},
	})
}

// controllerText names the owner that controls an object.
func controllerText[P metav1.Object](obj P) string {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return none
	}
	name := strings.ToLower(ref.Kind)
	if group, _, grouped := strings.Cut(ref.APIVersion, "/"); grouped {
		name += "." + group
	}
	return name + "/" + ref.Name
}
