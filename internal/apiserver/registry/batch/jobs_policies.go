package batch

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Policies of a Job for pods that end.

const (
	// maxIndexed is the parallelism that an indexed Job may have.
	maxIndexed = 100_000
	// maxManager is the maximum length of the name of a Job's manager.
	maxManager = 63
	// maxJobRules is the maximum number of rules in a policy of a Job.
	maxJobRules = 20
	// maxExitCodes is the maximum number of exit codes in a rule.
	maxExitCodes = 255
	// maxConditionPatterns is the maximum number of conditions of pods in a rule.
	maxConditionPatterns = 20
	// maxSucceededIndexes is the maximum length of a list of indexes in a rule, in bytes.
	maxSucceededIndexes = 64 << 10
)

// validateIndexed checks the fields that only indexed Jobs have.
func validateIndexed(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	const text = "requires indexed completion mode"
	var errs field.ErrorList
	perIndex := spec.Child("backoffLimitPerIndex")
	if s.MaxFailedIndexes != nil {
		errs = append(errs, validate.NotNegative(s.MaxFailedIndexes, spec.Child("maxFailedIndexes"))...)
		if s.BackoffLimitPerIndex == nil {
			errs = append(errs, field.Required(perIndex, "when maxFailedIndexes is specified"))
		}
		if s.Completions != nil && isIndexed(s) && *s.MaxFailedIndexes > *s.Completions {
			errs = append(errs, field.Invalid(spec.Child("maxFailedIndexes"), *s.MaxFailedIndexes, "must be less than or equal to completions"))
		}
	}
	if ptr.Deref(s.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.NonIndexedCompletion {
		if s.MaxFailedIndexes != nil {
			errs = append(errs, field.Invalid(spec.Child("maxFailedIndexes"), *s.MaxFailedIndexes, text))
		}
		if s.BackoffLimitPerIndex != nil {
			errs = append(errs, field.Invalid(perIndex, *s.BackoffLimitPerIndex, text))
		}
	}
	if !isIndexed(s) { // an unknown mode is reported elsewhere
		if s.SuccessPolicy != nil {
			errs = append(errs, field.Invalid(spec.Child("successPolicy"), s.SuccessPolicy, text))
		}
		return errs
	}
	if s.Completions == nil {
		errs = append(errs, field.Required(spec.Child("completions"), "when completion mode is Indexed"))
	}
	if ptr.Deref(s.Parallelism, 0) > maxIndexed {
		errs = append(errs, field.Invalid(spec.Child("parallelism"), *s.Parallelism, "must be less than or equal to 100000 when completion mode is Indexed"))
	}
	if ptr.Deref(s.MaxFailedIndexes, 0) > maxIndexed {
		errs = append(errs, field.Invalid(spec.Child("maxFailedIndexes"), *s.MaxFailedIndexes, "must be less than or equal to 100000"))
	}
	if ptr.Deref(s.Completions, 0) > maxIndexed && s.BackoffLimitPerIndex != nil {
		errs = append(errs, validateManyIndexes(s, spec)...)
	}
	return errs
}

// validateManyIndexes checks that the status can list the indexes of many that have failed.
func validateManyIndexes(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	const most, text = 10_000, "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"
	var errs field.ErrorList
	if s.MaxFailedIndexes == nil {
		errs = append(errs, field.Required(spec.Child("maxFailedIndexes"), "must be specified when completions is above 100000"))
	}
	if ptr.Deref(s.Parallelism, 0) > most {
		errs = append(errs, field.Invalid(spec.Child("parallelism"), *s.Parallelism, text))
	}
	if ptr.Deref(s.MaxFailedIndexes, 0) > most {
		errs = append(errs, field.Invalid(spec.Child("maxFailedIndexes"), *s.MaxFailedIndexes, text))
	}
	return errs
}

// validateManager checks the name of the controller that manages a Job instead of the
// built-in one.
func validateManager(manager *string, at *field.Path) field.ErrorList {
	if manager == nil {
		return nil
	}
	if *manager == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	errs = append(errs, validate.MaxBytes(*manager, at, maxManager)...)
	if domain, path, ok := strings.Cut(*manager, "/"); !ok || domain == "" || path == "" {
		return append(errs, field.Invalid(at, *manager, "must be a domain-prefixed path (such as \"acme.io/foo\")"))
	}
	return append(errs, validate.FromMessages(*manager, at, validation.IsQualifiedName(*manager))...)
}

func validateJobPolicies(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p := s.SuccessPolicy; p != nil && isIndexed(s) {
		rules := spec.Child("successPolicy", "rules")
		if len(p.Rules) == 0 {
			errs = append(errs, field.Required(rules, "at least one rules must be specified when the successPolicy is specified"))
		}
		errs = append(errs, validate.MaxItems(p.Rules, rules, maxJobRules)...)
		errs = append(errs, validate.Each(p.Rules, rules, func(r *batchv1.SuccessPolicyRule, at *field.Path) field.ErrorList {
			return validateSuccessRule(r, ptr.Deref(s.Completions, 0), at)
		})...)
	}
	p := s.PodFailurePolicy
	if p == nil {
		return errs
	}
	rules := spec.Child("podFailurePolicy", "rules")
	errs = append(errs, validate.MaxItems(p.Rules, rules, maxJobRules)...)
	var names []string
	for _, c := range slices.Concat(s.Template.Spec.InitContainers, s.Template.Spec.Containers) {
		names = append(names, c.Name)
	}
	return append(errs, validate.Each(p.Rules, rules, func(r *batchv1.PodFailurePolicyRule, at *field.Path) field.ErrorList {
		errs := validateFailureRule(r, names, at)
		if r.Action == batchv1.PodFailurePolicyActionFailIndex && s.BackoffLimitPerIndex == nil {
			errs = append(errs, field.Invalid(at.Child("action"), r.Action, "requires the backoffLimitPerIndex to be set"))
		}
		return errs
	})...)
}

// oneOfNamed is validate.OneOf, but its error for an empty value lists the allowed values, too.
func oneOfNamed[T ~string](value T, at *field.Path, allowed ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, fmt.Sprintf("valid values: %q", allowed))}
	}
	return validate.OneOf(value, at, allowed...)
}

func validateFailureRule(r *batchv1.PodFailurePolicyRule, containers []string, at *field.Path) field.ErrorList {
	errs := oneOfNamed(r.Action, at.Child("action"), batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
		batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
	switch {
	case r.OnExitCodes != nil && len(r.OnPodConditions) > 0:
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
	case r.OnExitCodes == nil && len(r.OnPodConditions) == 0:
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
	}
	if r.OnExitCodes != nil {
		errs = append(errs, validateExitCodes(r.OnExitCodes, containers, at.Child("onExitCodes"))...)
	}
	errs = append(errs, validate.MaxItems(r.OnPodConditions, at.Child("onPodConditions"), maxConditionPatterns)...)
	return append(errs, validate.Each(r.OnPodConditions, at.Child("onPodConditions"), func(c *batchv1.PodFailurePolicyOnPodConditionsPattern, at *field.Path) field.ErrorList {
		return append(validate.FromMessages(c.Type, at.Child("type"), validation.IsQualifiedName(string(c.Type))),
			validate.OneOf(c.Status, at.Child("status"), corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)...)
	})...)
}

func validateExitCodes(codes *batchv1.PodFailurePolicyOnExitCodesRequirement, containers []string, at *field.Path) field.ErrorList {
	errs := oneOfNamed(codes.Operator, at.Child("operator"), batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if name := codes.ContainerName; name != nil && !slices.Contains(containers, *name) {
		errs = append(errs, field.Invalid(at.Child("containerName"), *name, "must be one of the container or initContainer names in the pod template"))
	}
	values := at.Child("values")
	if len(codes.Values) == 0 {
		errs = append(errs, field.Invalid(values, codes.Values, "at least one value is required"))
	}
	errs = append(errs, validate.MaxItems(codes.Values, values, maxExitCodes)...)
	seen := map[int32]bool{}
	errs = append(errs, validate.Each(codes.Values, values, func(code *int32, at *field.Path) field.ErrorList {
		var errs field.ErrorList
		if *code == 0 && codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			errs = append(errs, field.Invalid(at, *code, "must not be 0 for the In operator"))
		}
		if seen[*code] {
			errs = append(errs, field.Duplicate(at, *code))
		}
		seen[*code] = true
		return errs
	})...)
	if !slices.IsSorted(codes.Values) {
		errs = append(errs, field.Invalid(values, codes.Values, "must be ordered"))
	}
	return errs
}
