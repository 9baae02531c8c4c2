package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

func resourceQuotas() registry.Resource {
	return registry.Define[corev1.ResourceQuota, corev1.ResourceQuotaList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "ResourceQuota",
		Plural:              "resourcequotas",
		Namespaced:          true,
		ShortNames:          []string{"quota"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, []table.Column{
		table.Text("Request", "What is used of the requests and numbers that it limits.", func(q *corev1.ResourceQuota) string {
			return usedText(&q.Status, func(name corev1.ResourceName) bool { return !isLimitName(name) })
		}),
		table.Text("Limit", "What is used of the limits that it limits.", func(q *corev1.ResourceQuota) string {
			return usedText(&q.Status, isLimitName)
		}),
		table.Age(),
	}, registry.Strategy[*corev1.ResourceQuota]{
		Warn:           warnOfQuota,
		Validate:       validateQuota,
		ValidateUpdate: validateQuotaUpdate,
		ValidateStatusUpdate: func(q, _ *corev1.ResourceQuota) field.ErrorList {
			status := field.NewPath("status")
			return append(validateQuotaList(q.Status.Hard, status.Child("hard")), validateQuotaList(q.Status.Used, status.Child("used"))...)
		},
		CopyStatus: registry.CopyField(func(q *corev1.ResourceQuota) *corev1.ResourceQuotaStatus { return &q.Status }),
	})
}

func isLimitName(name corev1.ResourceName) bool { return strings.HasPrefix(string(name), "limits.") }

// usedText shows the usage of the resources of a quota that belong to a column.
func usedText(s *corev1.ResourceQuotaStatus, belongs func(corev1.ResourceName) bool) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(s.Hard)) {
		if belongs(name) {
			used, hard := s.Used[name], s.Hard[name]
			words = append(words, fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String()))
		}
	}
	return strings.Join(words, ", ")
}

func validateQuota(q *corev1.ResourceQuota) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(validateQuotaList(q.Spec.Hard, spec.Child("hard")), validateScopes(&q.Spec, spec.Child("scopes"))...)
	if q.Spec.ScopeSelector != nil {
		errs = append(errs, validateScopeSelector(&q.Spec, spec.Child("scopeSelector", "matchExpressions"))...)
	}
	return errs
}

// validateQuotaUpdate checks that the scopes of a quota do not change.
func validateQuotaUpdate(q, old *corev1.ResourceQuota) field.ErrorList {
	if !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, apivalidation.FieldImmutableErrorMsg)}
	}
	return nil
}

func validateScopes(s *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, scope := range s.Scopes {
		if !isScope(scope) {
			errs = append(errs, field.Invalid(path, s.Scopes, "unsupported scope"))
		}
		errs = append(errs, validateScopedResources(scope, s.Hard, s.Scopes, path)...)
	}
	return append(errs, validateScopePairs(s.Scopes, s.Scopes, path)...)
}

func validateScopeSelector(s *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var scopes []corev1.ResourceQuotaScope
	for _, r := range s.ScopeSelector.MatchExpressions {
		scopes = append(scopes, r.ScopeName)
		if !isScope(r.ScopeName) {
			errs = append(errs, field.Invalid(path.Child("scopeName"), r.ScopeName, "unsupported scope"))
		}
		errs = append(errs, validateScopedResources(r.ScopeName, s.Hard, s.ScopeSelector, path)...)
		errs = append(errs, validateScopeOperator(r, path)...)
	}
	return append(errs, validateScopePairs(scopes, s.Scopes, path)...)
}

// validateScopeOperator checks the operator of a scope selector. Scopes without values allow only Exists.
func validateScopeOperator(r corev1.ScopedResourceSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	hasValues := r.ScopeName == corev1.ResourceQuotaScopePriorityClass || r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass
	if isScope(r.ScopeName) && !hasValues && r.Operator != corev1.ScopeSelectorOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "must be 'Exists' when scope is any of "+
			"ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "+
			"ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
	}
	switch r.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"),
				"must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(r.Values) != 0 {
			errs = append(errs, field.Invalid(path.Child("values"), r.Values,
				"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return errs
}

// validateScopePairs checks that no object is excluded by two scopes together.
func validateScopePairs(scopes []corev1.ResourceQuotaScope, value any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if slices.Contains(scopes, pair[0]) && slices.Contains(scopes, pair[1]) {
			errs = append(errs, field.Invalid(path, value, "conflicting scopes"))
		}
	}
	return errs
}

// validateScopedResources checks that a scope supports the resources that a quota limits. Errors show value.
func validateScopedResources(scope corev1.ResourceQuotaScope, hard corev1.ResourceList, value any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		if !hasDomain(name) && isQuotaName(name) && !isLimitedInScope(scope, name) {
			errs = append(errs, field.Invalid(path, value, "unsupported scope applied to resource"))
		}
	}
	return errs
}

func isScope(scope corev1.ResourceQuotaScope) bool {
	return slices.Contains([]corev1.ResourceQuotaScope{
		corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
		corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
		corev1.ResourceQuotaScopeVolumeAttributesClass,
	}, scope)
}

// isLimitedInScope reports whether a quota with a scope may limit a resource. A scope selects either pods or volume
// claims, and supports their resources. BestEffort pods request nothing, so only their number is limited.
func isLimitedInScope(scope corev1.ResourceQuotaScope, name corev1.ResourceName) bool {
	switch {
	case scope == corev1.ResourceQuotaScopeVolumeAttributesClass:
		return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
	case scope == corev1.ResourceQuotaScopeBestEffort:
		return name == corev1.ResourcePods
	case !isScope(scope):
		return true
	}
	return slices.Contains([]corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
	}, name)
}
