package admissionregistration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func mutatingAdmissionPolicies() registry.Resource {
	row := admissionRow("MutatingAdmissionPolicy", "mutatingadmissionpolicies")
	return registry.Define[admissionregistrationv1.MutatingAdmissionPolicy, admissionregistrationv1.MutatingAdmissionPolicyList](row, []table.Column{
		table.Number("Mutations", "Mutations of an object.", func(p *admissionregistrationv1.MutatingAdmissionPolicy) int { return len(p.Spec.Mutations) }),
		table.Text("ParamKind", "Kind of the policy's parameters.", func(p *admissionregistrationv1.MutatingAdmissionPolicy) string {
			return paramKindCell(p.Spec.ParamKind)
		}),
		table.Age(),
	}, registry.Strategy[*admissionregistrationv1.MutatingAdmissionPolicy]{
		Warn:           warnOfName[*admissionregistrationv1.MutatingAdmissionPolicy],
		ValidateCreate: refuseName[*admissionregistrationv1.MutatingAdmissionPolicy],
		Default: func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
			registry.SetDefaultPtr(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
			defaultMatch(p.Spec.MatchConstraints)
		},
		Validate: validateMutatingPolicy,
		Desired:  func(p *admissionregistrationv1.MutatingAdmissionPolicy) any { return p.Spec },
	})
}

func validateMutatingPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	spec := field.NewPath("spec")
	constraints := spec.Child("matchConstraints")
	expressions := newExpressions(p.Spec.ParamKind)
	errs := slices.Concat(
		validate.OneOfPtr(p.Spec.FailurePolicy, spec.Child("failurePolicy"), admissionregistrationv1.Fail, admissionregistrationv1.Ignore),
		validateParamKind(p.Spec.ParamKind, spec.Child("paramKind")),
	)
	if m := p.Spec.MatchConstraints; m == nil {
		errs = append(errs, field.Required(constraints, ""))
	} else {
		errs = append(errs, validateMatch(m, constraints)...)
		if len(m.ResourceRules) == 0 {
			errs = append(errs, field.Required(constraints.Child("resourceRules"), ""))
		}
		errs = append(errs, validateMutable(m, constraints)...)
	}
	errs = append(errs, validateMatchConditions(p.Spec.MatchConditions, p.Spec.ParamKind != nil, spec.Child("matchConditions"))...)
	// The variables come first: the mutations use them.
	errs = append(errs, validate.Each(p.Spec.Variables, spec.Child("variables"), expressions.add)...)
	errs = append(errs, validate.Each(p.Spec.Mutations, spec.Child("mutations"), expressions.validateMutation)...)
	if len(p.Spec.Mutations) == 0 {
		errs = append(errs, field.Required(spec.Child("mutations"), "mutations must contain at least one item"))
	}
	return append(errs, validate.OneOf(p.Spec.ReinvocationPolicy, spec.Child("reinvocationPolicy"),
		admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
}

// validateMutable checks that a policy matches requests that have an object to mutate.
func validateMutable(m *admissionregistrationv1.MatchResources, at *field.Path) field.ErrorList {
	allowed := []admissionregistrationv1.OperationType{
		admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update,
	}
	var errs field.ErrorList
	for _, rule := range m.ResourceRules {
		for _, operation := range rule.Operations {
			if !slices.Contains(allowed, operation) {
				errs = append(errs, field.NotSupported(at.Child("resourceRules", "operations"), operation, allowed))
			}
		}
	}
	return errs
}

// validateMutation checks that a mutation has exactly the expression that belongs to its patch type, and compiles it.
func (e *expressions) validateMutation(m *admissionregistrationv1.Mutation, at *field.Path) field.ErrorList {
	jsonPatch, apply := at.Child("jsonPatch"), at.Child("applyConfiguration")
	var errs field.ErrorList
	switch m.PatchType {
	case admissionregistrationv1.PatchTypeJSONPatch:
		if m.JSONPatch == nil {
			errs = append(errs, field.Required(jsonPatch, "must be specified when patchType is JSONPatch"))
		} else {
			text := strings.TrimSpace(m.JSONPatch.Expression)
			errs = append(errs, e.checkPatch(&patch.JSONPatchCondition{Expression: text}, jsonPatch.Child("expression"))...)
		}
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(apply, "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
	case admissionregistrationv1.PatchTypeApplyConfiguration:
		if m.ApplyConfiguration == nil {
			errs = append(errs, field.Required(apply, "must be specified when patchType is ApplyConfiguration"))
		} else {
			text := strings.TrimSpace(m.ApplyConfiguration.Expression)
			errs = append(errs, e.checkPatch(&patch.ApplyConfigurationCondition{Expression: text}, apply.Child("expression"))...)
		}
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(jsonPatch, "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
	default:
		return validate.OneOf(m.PatchType, at.Child("patchType"),
			admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch)
	}
	return errs
}

func (e *expressions) checkPatch(x plugincel.ExpressionAccessor, at *field.Path) field.ErrorList {
	if x.GetExpression() == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return e.check(x, plugincel.OptionalVariableDeclarations{HasAuthorizer: true, HasPatchTypes: true}, at)
}

func mutatingAdmissionPolicyBindings() registry.Resource {
	row := admissionRow("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
	return registry.Define[admissionregistrationv1.MutatingAdmissionPolicyBinding, admissionregistrationv1.MutatingAdmissionPolicyBindingList](row, []table.Column{
		table.Text("PolicyName", "Policy that is bound.", func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) string { return b.Spec.PolicyName }),
		table.Text("ParamRef", "Parameters of the policy.", func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) string {
			return paramRefCell(b.Spec.ParamRef)
		}),
		table.Age(),
	}, registry.Strategy[*admissionregistrationv1.MutatingAdmissionPolicyBinding]{
		Warn:           warnOfName[*admissionregistrationv1.MutatingAdmissionPolicyBinding],
		ValidateCreate: refuseName[*admissionregistrationv1.MutatingAdmissionPolicyBinding],
		Default:        func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) { defaultMatch(b.Spec.MatchResources) },
		Validate:       validateMutatingBinding,
		Desired:        func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) any { return b.Spec },
	})
}

func validateMutatingBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validate.Required(b.Spec.PolicyName, spec.Child("policyName"))
	if b.Spec.PolicyName != "" {
		errs = validate.FromMessages(b.Spec.PolicyName, spec.Child("policyName"), validation.IsDNS1123Subdomain(b.Spec.PolicyName))
	}
	errs = append(errs, validateParamRef(b.Spec.ParamRef, spec.Child("paramRef"))...)
	if m := b.Spec.MatchResources; m != nil {
		errs = append(errs, validateMatch(m, spec.Child("matchResources"))...)
		errs = append(errs, validateMutable(m, spec.Child("matchResources"))...)
	}
	return errs
}
