package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validatePlacement checks the constraints on a pod's node.
func validatePlacement(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		validate.OptionalSubdomain(spec.NodeName, path.Child("nodeName")),
		metav1validation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector")),
		ValidateTolerations(spec.Tolerations, path.Child("tolerations")),
		validateSpread(spec.TopologySpreadConstraints, path.Child("topologySpreadConstraints")),
		validate.DistinctNames(spec.SchedulingGates, path.Child("schedulingGates"), func(g corev1.PodSchedulingGate) string { return g.Name }, ""),
		validate.Each(spec.SchedulingGates, path.Child("schedulingGates"), func(g *corev1.PodSchedulingGate, at *field.Path) field.ErrorList {
			return validate.FromMessages(g.Name, at, validation.IsQualifiedName(g.Name))
		}),
	)
	return append(errs, validateAffinity(spec.Affinity, path.Child("affinity"))...)
}

// ValidateTolerations checks a list of tolerations.
func ValidateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	return validate.Each(tolerations, path, validateToleration)
}

func validateToleration(t *corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = metav1validation.ValidateLabelName(t.Key, path.Child("key"))
	} else if t.Operator != corev1.TolerationOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(path.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if complaints := validation.IsValidLabelValue(t.Value); len(complaints) > 0 {
			errs = append(errs, field.Invalid(path.Child("operator"), t.Value, strings.Join(complaints, ";")))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
		}
	case corev1.TolerationOpGt, corev1.TolerationOpLt:
		// Kubernetes knows these operators, but disables their feature gate by default.
		errs = append(errs, field.NotSupported(path.Child("operator"), t.Operator,
			[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt}))
	default:
		errs = append(errs, validate.OneOf(t.Operator, path.Child("operator"), corev1.TolerationOpEqual, corev1.TolerationOpExists)...)
	}
	if t.Effect != "" {
		errs = append(errs, ValidateTaintEffect(t.Effect, path.Child("effect"))...)
	}
	return errs
}

// ValidateTaintEffect checks the effect of a taint.
func ValidateTaintEffect(effect corev1.TaintEffect, at *field.Path) field.ErrorList {
	return validate.OneOf(effect, at, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}

func validateSpread(constraints []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	type pair struct {
		topologyKey string
		otherwise   corev1.UnsatisfiableConstraintAction
	}
	count := map[pair]int{}
	for _, c := range constraints {
		count[pair{c.TopologyKey, c.WhenUnsatisfiable}]++
	}
	return validate.Each(constraints, path, func(c *corev1.TopologySpreadConstraint, at *field.Path) field.ErrorList {
		errs := slices.Concat(
			validate.Positive(&c.MaxSkew, at.Child("maxSkew")),
			validate.Positive(c.MinDomains, at.Child("minDomains")),
			topologyKeyIsGiven(c.TopologyKey, at.Child("topologyKey")),
			validate.OneOfPtr(&c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway),
			validate.OneOfPtr(c.NodeAffinityPolicy, at.Child("nodeAffinityPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore),
			validate.OneOfPtr(c.NodeTaintsPolicy, at.Child("nodeTaintsPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore),
			validateLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, at),
			validate.OptionalLabelSelector(c.LabelSelector, at.Child("labelSelector")),
		)
		if c.MinDomains != nil && c.WhenUnsatisfiable != corev1.DoNotSchedule {
			errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains,
				fmt.Sprintf("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not %s", c.WhenUnsatisfiable)))
		}
		p := pair{c.TopologyKey, c.WhenUnsatisfiable}
		if count[p]--; count[p] > 0 {
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%s, %s}", p.topologyKey, p.otherwise)))
		}
		return errs
	})
}

// topologyKeyIsGiven checks that a spread constraint has a topology key. Any key is valid, even one that no label can
// have.
func topologyKeyIsGiven(key string, at *field.Path) field.ErrorList {
	if key == "" {
		return field.ErrorList{field.Required(at, "can not be empty")}
	}
	return nil
}

func validateTopologyKey(key string, at *field.Path) field.ErrorList {
	if key == "" {
		return topologyKeyIsGiven(key, at)
	}
	return metav1validation.ValidateLabelName(key, at)
}

func validateAffinity(a *corev1.Affinity, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	const always, rather = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		at := path.Child("nodeAffinity")
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			errs = append(errs, ValidateNodeSelector(n.RequiredDuringSchedulingIgnoredDuringExecution, at.Child(always))...)
		}
		errs = append(errs, validate.Each(n.PreferredDuringSchedulingIgnoredDuringExecution, at.Child(rather), func(t *corev1.PreferredSchedulingTerm, at *field.Path) field.ErrorList {
			return append(validateWeight(t.Weight, at.Child("weight")), validateNodeTerm(&t.Preference, at.Child("preference"))...)
		})...)
	}
	weighted := func(t *corev1.WeightedPodAffinityTerm, at *field.Path) field.ErrorList {
		return append(validateWeight(t.Weight, at.Child("weight")), validatePodTerm(&t.PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	if p := a.PodAffinity; p != nil {
		at := path.Child("podAffinity")
		errs = append(errs, validate.Each(p.RequiredDuringSchedulingIgnoredDuringExecution, at.Child(always), validatePodTerm)...)
		errs = append(errs, validate.Each(p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child(rather), weighted)...)
	}
	if p := a.PodAntiAffinity; p != nil {
		at := path.Child("podAntiAffinity")
		errs = append(errs, validate.Each(p.RequiredDuringSchedulingIgnoredDuringExecution, at.Child(always), validatePodTerm)...)
		errs = append(errs, validate.Each(p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child(rather), weighted)...)
	}
	return errs
}

func validateWeight(weight int32, at *field.Path) field.ErrorList {
	if weight < 1 || weight > 100 {
		return field.ErrorList{field.Invalid(at, weight, "must be in the range 1-100")}
	}
	return nil
}

// ValidateNodeSelector checks the node selector of a pod's affinity, or of a volume's.
func ValidateNodeSelector(s *corev1.NodeSelector, at *field.Path) field.ErrorList {
	terms := at.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(terms, "must have at least one node selector term")}
	}
	return validate.Each(s.NodeSelectorTerms, terms, validateRequiredTerm)
}

// validateRequiredTerm checks a required term: its values must be valid values of labels.
func validateRequiredTerm(t *corev1.NodeSelectorTerm, at *field.Path) field.ErrorList {
	errs := validateNodeTerm(t, at)
	for i, r := range t.MatchExpressions {
		errs = append(errs, validate.Each(r.Values, at.Child("matchExpressions").Index(i).Child("values"), func(value *string, at *field.Path) field.ErrorList {
			return validate.FromMessages(*value, at, validation.IsValidLabelValue(*value))
		})...)
	}
	return errs
}

func validateNodeTerm(t *corev1.NodeSelectorTerm, at *field.Path) field.ErrorList {
	errs := validate.Each(t.MatchExpressions, at.Child("matchExpressions"), func(r *corev1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
		return append(validateNodeRequirement(r, at), metav1validation.ValidateLabelName(r.Key, at.Child("key"))...)
	})
	return append(errs, validate.Each(t.MatchFields, at.Child("matchFields"), func(r *corev1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
		var errs field.ErrorList
		switch {
		case r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn:
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		case len(r.Values) != 1:
			errs = append(errs, field.Required(at.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
		if r.Key != metav1.ObjectNameField {
			return append(errs, field.Invalid(at.Child("key"), r.Key, "not a valid field selector key"))
		}
		return append(errs, validate.Each(r.Values, at.Child("values"), func(name *string, at *field.Path) field.ErrorList {
			return validate.FromMessages(*name, at, validation.IsDNS1123Subdomain(*name))
		})...)
	})...)
}

func validateNodeRequirement(r *corev1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
	values := at.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			return field.ErrorList{field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'")}
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			return field.ErrorList{field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")}
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			return field.ErrorList{field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'")}
		}
	default:
		return field.ErrorList{field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator")}
	}
	return nil
}

func validatePodTerm(t *corev1.PodAffinityTerm, at *field.Path) field.ErrorList {
	return slices.Concat(
		validate.OptionalLabelSelector(t.LabelSelector, at.Child("labelSelector")),
		validate.OptionalLabelSelector(t.NamespaceSelector, at.Child("namespaceSelector")),
		validateTermNamespaces(t.Namespaces, at.Child("namespace")),
		requiredTopologyKey(t.TopologyKey, at.Child("topologyKey")),
		validateLabelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, at),
	)
}

// requiredTopologyKey checks the topology key of a term. An absent key is reported as absent and as invalid.
func requiredTopologyKey(key string, at *field.Path) field.ErrorList {
	if key == "" {
		return append(validateTopologyKey(key, at), metav1validation.ValidateLabelName(key, at)...)
	}
	return validateTopologyKey(key, at)
}

// validateTermNamespaces checks names of namespaces. Kubernetes reports them for the whole list.
func validateTermNamespaces(names []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range names {
		errs = append(errs, validate.FromMessages(name, at, validation.IsDNS1123Label(name))...)
	}
	return errs
}
