package apps

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func daemonSets() registry.Resource {
	return registry.Define[appsv1.DaemonSet, appsv1.DaemonSetList](registry.Resource{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Legacy:              legacyDaemonSets(),
		Kind:                "DaemonSet",
		Plural:              "daemonsets",
		Namespaced:          true,
		ShortNames:          []string{"ds"},
		Categories:          []string{"all"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, slices.Concat([]table.Column{
		table.Number("Desired", "Nodes that should run a pod.", func(d *appsv1.DaemonSet) int { return int(d.Status.DesiredNumberScheduled) }),
		table.Number("Current", "Nodes that have a pod.", func(d *appsv1.DaemonSet) int { return int(d.Status.CurrentNumberScheduled) }),
		table.Number("Ready", "Nodes on which the pod is ready.", func(d *appsv1.DaemonSet) int { return int(d.Status.NumberReady) }),
		table.Number("Up-to-date", "Nodes with a pod made from the current template.", func(d *appsv1.DaemonSet) int { return int(d.Status.UpdatedNumberScheduled) }),
		table.Number("Available", "Nodes on which the pod has been ready for at least minReadySeconds.", func(d *appsv1.DaemonSet) int { return int(d.Status.NumberAvailable) }),
		table.Text("Node Selector", "Labels of the nodes that should run a pod.", func(d *appsv1.DaemonSet) string {
			return table.Labels(d.Spec.Template.Spec.NodeSelector)
		}),
		table.Age(),
	}, podspec.TemplateColumns(
		func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template },
		func(d *appsv1.DaemonSet) string { return table.Selector(d.Spec.Selector) },
	)), registry.Strategy[*appsv1.DaemonSet]{
		Default:  defaultDaemonSet,
		Validate: validateDaemonSet,
		PrepareForCreate: func(d *appsv1.DaemonSet) {
			annotate(&d.ObjectMeta, appsv1.DeprecatedTemplateGeneration, max(templateGeneration(d), 1))
		},
		PrepareForUpdate: func(d, old *appsv1.DaemonSet) {
			generation := templateGeneration(old)
			if !equality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
				generation++
			}
			annotate(&d.ObjectMeta, appsv1.DeprecatedTemplateGeneration, generation)
		},
		ValidateUpdate: func(d, old *appsv1.DaemonSet) field.ErrorList {
			return validate.Immutable(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
		},
		Warn: func(d, old *appsv1.DaemonSet) []string {
			if old != nil && equality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
				return nil
			}
			return podspec.WarnOfTemplate(d, old, &d.Spec.Template, templatePath())
		},
		Desired:    func(d *appsv1.DaemonSet) any { return d.Spec },
		CopyStatus: registry.CopyField(func(d *appsv1.DaemonSet) *appsv1.DaemonSetStatus { return &d.Status }),
		ValidateStatusUpdate: func(d, old *appsv1.DaemonSet) field.ErrorList {
			s, path := d.Status, field.NewPath("status")
			return append(validateObserved(s.ObservedGeneration, s.CollisionCount, old.Status.CollisionCount, path), validate.Counts(path, map[string]int32{
				"currentNumberScheduled": s.CurrentNumberScheduled, "numberMisscheduled": s.NumberMisscheduled,
				"desiredNumberScheduled": s.DesiredNumberScheduled, "numberReady": s.NumberReady,
				"updatedNumberScheduled": s.UpdatedNumberScheduled, "numberAvailable": s.NumberAvailable,
				"numberUnavailable": s.NumberUnavailable,
			})...)
		},
	})
}

// templateGeneration returns the generation of the template that old clients read in an annotation, or 0.
func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	podspec.DefaultSpec(&d.Spec.Template.Spec)
	if _, given := d.Annotations[appsv1.DeprecatedTemplateGeneration]; !given { // so that it has a field manager
		annotate(&d.ObjectMeta, appsv1.DeprecatedTemplateGeneration, 0)
	}
	registry.SetDefaultPtr(&d.Spec.RevisionHistoryLimit, 10)
	registry.SetDefault(&d.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		registry.SetDefaultPtr(&d.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		registry.SetDefaultPtr(&d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		registry.SetDefaultPtr(&d.Spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	} else if rolling := d.Spec.UpdateStrategy.RollingUpdate; rolling != nil { // without effect
		registry.SetDefaultPtr(&rolling.MaxUnavailable, intstr.FromInt32(0))
		registry.SetDefaultPtr(&rolling.MaxSurge, intstr.FromInt32(0))
	}
}

func validateDaemonSet(d *appsv1.DaemonSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		validate.NotNegative(&d.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
		validate.NotNegative(d.Spec.RevisionHistoryLimit, spec.Child("revisionHistoryLimit")),
		validate.MatchingSelector(validate.SelectorRules{Empty: "empty selector is invalid for daemonset", Optional: true}, d.Spec.Selector, d.Spec.Template.Labels, spec),
		podspec.ValidateTemplate("DaemonSet", &d.Spec.Template, spec.Child("template")),
	)
	switch rolling := d.Spec.UpdateStrategy.RollingUpdate; d.Spec.UpdateStrategy.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		if rolling != nil {
			errs = append(errs, validateDaemonRollout(rolling, spec.Child("updateStrategy", "rollingUpdate"))...)
		}
	default:
		errs = append(errs, field.NotSupported(spec.Child("updateStrategy"), d.Spec.UpdateStrategy,
			[]appsv1.DaemonSetUpdateStrategyType{appsv1.OnDeleteDaemonSetStrategyType, appsv1.RollingUpdateDaemonSetStrategyType}))
	}
	return errs
}

// validateDaemonRollout: on each node the new pod starts either after the old one has
// ended or before it.
func validateDaemonRollout(r *appsv1.RollingUpdateDaemonSet, path *field.Path) field.ErrorList {
	errs := append(validate.IntOrPercent(r.MaxUnavailable, path.Child("maxUnavailable")), validate.IntOrPercent(r.MaxSurge, path.Child("maxSurge"))...)
	errs = slices.Concat(errs, validateShare(r.MaxUnavailable, path.Child("maxUnavailable")), validateShare(r.MaxSurge, path.Child("maxSurge")))
	switch unavailable, surge := !isZero(r.MaxUnavailable), !isZero(r.MaxSurge); {
	case unavailable && surge:
		errs = append(errs, field.Invalid(path.Child("maxSurge"), r.MaxSurge, "may not be set when maxUnavailable is non-zero"))
	case !unavailable && !surge:
		errs = append(errs, field.Required(path.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
	}
	return errs
}
