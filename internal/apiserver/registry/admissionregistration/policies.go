package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/util/jsonpath"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func validatingAdmissionPolicies() registry.Resource {
	row := admissionRow("ValidatingAdmissionPolicy", "validatingadmissionpolicies")
	return registry.Define[admissionregistrationv1.ValidatingAdmissionPolicy, admissionregistrationv1.ValidatingAdmissionPolicyList](row, []table.Column{
		table.Number("Validations", "Expressions that have to be true.", func(p *admissionregistrationv1.ValidatingAdmissionPolicy) int { return len(p.Spec.Validations) }),
		table.Text("ParamKind", "Kind of the policy's parameters.", func(p *admissionregistrationv1.ValidatingAdmissionPolicy) string {
			return paramKindCell(p.Spec.ParamKind)
		}),
		table.Age(),
	}, registry.Strategy[*admissionregistrationv1.ValidatingAdmissionPolicy]{
		Warn:           warnOfName[*admissionregistrationv1.ValidatingAdmissionPolicy],
		ValidateCreate: refuseName[*admissionregistrationv1.ValidatingAdmissionPolicy],
		WarnOfStatus:   func(p *admissionregistrationv1.ValidatingAdmissionPolicy) []string { return warnOfName(p, nil) },
		Default: func(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
			registry.SetDefaultPtr(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
			defaultMatch(p.Spec.MatchConstraints)
		},
		Validate:             validateAdmissionPolicy,
		ValidateStatusUpdate: validatePolicyStatus,
		Desired:              func(p *admissionregistrationv1.ValidatingAdmissionPolicy) any { return p.Spec },
		CopyStatus: registry.CopyField(func(p *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicyStatus {
			return &p.Status
		}),
	})
}

func paramKindCell(k *admissionregistrationv1.ParamKind) string {
	if k == nil {
		return "<unset>"
	}
	return k.APIVersion + "/" + k.Kind
}

// paramRefCell prints a reference. A name without a namespace may be the name of a cluster-scoped object.
func paramRefCell(ref *admissionregistrationv1.ParamRef) string {
	switch {
	case ref == nil:
		return "<unset>"
	case ref.Name == "" && ref.Selector != nil:
		return ref.Selector.String()
	case ref.Namespace != "":
		return ref.Namespace + "/" + ref.Name
	default:
		return "*/" + ref.Name
	}
}

func defaultMatch(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	registry.SetDefaultPtr(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	registry.SetDefaultPtr(&m.NamespaceSelector, metav1.LabelSelector{})
	registry.SetDefaultPtr(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			registry.SetDefaultPtr(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

// maxAuditAnnotations is the maximum number of audit annotations of a policy.
const maxAuditAnnotations = 20

func validateAdmissionPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	spec := field.NewPath("spec")
	expressions := newExpressions(p.Spec.ParamKind)
	// The variables come before the expressions that use them.
	errs := slices.Concat(
		validate.OneOfPtr(p.Spec.FailurePolicy, spec.Child("failurePolicy"), admissionregistrationv1.Fail, admissionregistrationv1.Ignore),
		validateParamKind(p.Spec.ParamKind, spec.Child("paramKind")),
		validateMatchConditions(p.Spec.MatchConditions, p.Spec.ParamKind != nil, spec.Child("matchConditions")),
		validate.Each(p.Spec.Variables, spec.Child("variables"), expressions.add),
		validate.Each(p.Spec.Validations, spec.Child("validations"), expressions.validateValidation),
		validate.DistinctNames(p.Spec.AuditAnnotations, spec.Child("auditAnnotations"), func(a admissionregistrationv1.AuditAnnotation) string { return a.Key }, "key"),
		validate.Each(p.Spec.AuditAnnotations, spec.Child("auditAnnotations"), func(a *admissionregistrationv1.AuditAnnotation, at *field.Path) field.ErrorList {
			return append(validateAnnotationKey(p.Name, a.Key, at.Child("key")), expressions.validateAnnotation(a, at)...)
		}),
	)
	if len(p.Spec.Validations)+len(p.Spec.AuditAnnotations) == 0 {
		const either = "validations or auditAnnotations must contain at least one item"
		errs = append(errs, field.Required(spec.Child("validations"), either), field.Required(spec.Child("auditAnnotations"), either))
	}
	if annotations := p.Spec.AuditAnnotations; len(annotations) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(spec.Child("auditAnnotations"), annotations, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	constraints := spec.Child("matchConstraints")
	if p.Spec.MatchConstraints == nil {
		return append(errs, field.Required(constraints, ""))
	}
	if len(p.Spec.MatchConstraints.ResourceRules) == 0 {
		errs = append(errs, field.Required(constraints.Child("resourceRules"), ""))
	}
	return append(errs, validateMatch(p.Spec.MatchConstraints, constraints)...)
}

// validatePolicyStatus checks the status that the type checker and other controllers report for a policy.
func validatePolicyStatus(p, _ *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	status := field.NewPath("status")
	errs := metav1validation.ValidateConditions(p.Status.Conditions, status.Child("conditions"))
	if p.Status.TypeChecking == nil {
		return errs
	}
	warnings := status.Child("typeChecking", "expressionWarnings")
	return append(errs, validate.Each(p.Status.TypeChecking.ExpressionWarnings, warnings, func(w *admissionregistrationv1.ExpressionWarning, at *field.Path) field.ErrorList {
		return append(validate.Required(w.Warning, at.Child("warning")), validateFieldRef(w.FieldRef, at.Child("fieldRef"))...)
	})...)
}

// validateFieldRef checks the JSON path of the expression that a warning is about.
func validateFieldRef(ref string, at *field.Path) field.ErrorList {
	ref = strings.TrimSpace(ref)
	if ref == "" {
		return validate.Required(ref, at)
	}
	if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
		return field.ErrorList{field.Invalid(at, ref, "invalid JSONPath: "+err.Error())}
	}
	return nil
}

func validateParamKind(k *admissionregistrationv1.ParamKind, at *field.Path) field.ErrorList {
	if k == nil {
		return nil
	}
	errs := validate.Required(k.Kind, at.Child("kind"))
	if complaints := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(complaints) > 0 && k.Kind != "" {
		errs = append(errs, field.Invalid(at.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(complaints, ",")))
	}
	version := at.Child("apiVersion")
	if k.APIVersion == "" {
		return append(errs, field.Required(version, ""))
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return append(errs, field.Invalid(version, k.APIVersion, err.Error()))
	}
	if complaints := validation.IsDNS1123Subdomain(gv.Group); len(complaints) > 0 && gv.Group != "" {
		errs = append(errs, field.Invalid(version, gv.Group, strings.Join(complaints, ",")))
	}
	if gv.Version == "" {
		return append(errs, field.Invalid(version, k.APIVersion, "version must be specified"))
	}
	if complaints := validation.IsDNS1035Label(gv.Version); len(complaints) > 0 {
		errs = append(errs, field.Invalid(version, gv.Version, strings.Join(complaints, ",")))
	}
	return errs
}

func (e *expressions) validateValidation(v *admissionregistrationv1.Validation, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
	} else {
		x := &validating.ValidationCondition{Expression: v.Expression}
		errs = append(errs, e.check(x, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, at.Child("expression"))...)
	}
	switch message := at.Child("messageExpression"); {
	case v.MessageExpression == "":
	case strings.TrimSpace(v.MessageExpression) == "":
		errs = append(errs, field.Invalid(message, v.MessageExpression, "must be non-empty if specified"))
	default:
		x := &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		errs = append(errs, e.check(x, plugincel.OptionalVariableDeclarations{}, message)...)
	}
	if v.Message != "" && strings.TrimSpace(v.Message) == "" {
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must be non-empty if specified"))
	}
	if strings.ContainsAny(strings.TrimSpace(v.Message), "\n\r") {
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must not contain line breaks"))
	}
	return append(errs, validate.OneOfPtr(v.Reason, at.Child("reason"), metav1.StatusReasonForbidden,
		metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)...)
}

func (e *expressions) validateAnnotation(a *admissionregistrationv1.AuditAnnotation, at *field.Path) field.ErrorList {
	const longest = 5 * 1024
	value := at.Child("valueExpression")
	x := &validating.AuditAnnotationCondition{ValueExpression: strings.TrimSpace(a.ValueExpression)}
	switch {
	case x.ValueExpression == "":
		return field.ErrorList{field.Required(value, "valueExpression is not specified")}
	case len(x.ValueExpression) > longest:
		return field.ErrorList{field.Required(value, fmt.Sprintf("must not exceed %d bytes in length", longest))}
	}
	return e.check(x, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, value)
}

// validateAnnotationKey checks the key of an audit annotation, which gets the policy's name as its prefix.
func validateAnnotationKey(policy, key string, at *field.Path) field.ErrorList {
	if policy == "" {
		return field.ErrorList{field.Invalid(at, key, "requires metadata.name be non-empty")}
	}
	return validate.FromMessages(policy+"/"+key, at, validation.IsQualifiedName(policy+"/"+key))
}

func validateMatch(m *admissionregistrationv1.MatchResources, at *field.Path) field.ErrorList {
	rule := func(r *admissionregistrationv1.NamedRuleWithOperations, at *field.Path) field.ErrorList {
		names := at.Child("resourceNames")
		return slices.Concat(
			validateRuleWithOperations(&r.RuleWithOperations, at),
			validate.Distinct(r.ResourceNames, names),
			validate.Each(r.ResourceNames, names, func(name *string, at *field.Path) field.ErrorList {
				return validate.FromMessages(*name, at, content.IsPathSegmentName(*name))
			}),
		)
	}
	return slices.Concat(
		validate.OneOfPtr(m.MatchPolicy, at.Child("matchPolicy"), admissionregistrationv1.Equivalent, admissionregistrationv1.Exact),
		validateSelectors(m.NamespaceSelector, m.ObjectSelector, at),
		validate.Each(m.ResourceRules, at.Child("resourceRules"), rule),
		validate.Each(m.ExcludeResourceRules, at.Child("excludeResourceRules"), rule),
	)
}

func validatingAdmissionPolicyBindings() registry.Resource {
	row := admissionRow("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
	return registry.Define[admissionregistrationv1.ValidatingAdmissionPolicyBinding, admissionregistrationv1.ValidatingAdmissionPolicyBindingList](row, []table.Column{
		table.Text("PolicyName", "Policy that is bound.", func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) string { return b.Spec.PolicyName }),
		table.Text("ParamRef", "Parameters of the policy.", func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) string {
			return paramRefCell(b.Spec.ParamRef)
		}),
		table.Age(),
	}, registry.Strategy[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]{
		Warn:           warnOfName[*admissionregistrationv1.ValidatingAdmissionPolicyBinding],
		ValidateCreate: refuseName[*admissionregistrationv1.ValidatingAdmissionPolicyBinding],
		Default:        func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) { defaultMatch(b.Spec.MatchResources) },
		Validate:       validateAdmissionPolicyBinding,
		Desired:        func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) any { return b.Spec },
	})
}

func validateAdmissionPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	spec := field.NewPath("spec")
	actions := spec.Child("validationActions")
	errs := slices.Concat(
		validate.Required(b.Spec.PolicyName, spec.Child("policyName")),
		validateParamRef(b.Spec.ParamRef, spec.Child("paramRef")),
		validate.Each(b.Spec.ValidationActions, actions, func(a *admissionregistrationv1.ValidationAction, at *field.Path) field.ErrorList {
			return validate.OneOfPtr(a, at, admissionregistrationv1.Audit, admissionregistrationv1.Deny, admissionregistrationv1.Warn)
		}),
		validate.Distinct(b.Spec.ValidationActions, actions),
	)
	if b.Spec.PolicyName != "" {
		errs = append(errs, validate.FromMessages(b.Spec.PolicyName, spec.Child("policyName"), validation.IsDNS1123Subdomain(b.Spec.PolicyName))...)
	}
	switch given := b.Spec.ValidationActions; {
	case len(given) == 0:
		errs = append(errs, field.Required(actions, ""))
	case slices.Contains(given, admissionregistrationv1.Deny) && slices.Contains(given, admissionregistrationv1.Warn):
		errs = append(errs, field.Invalid(actions, given, "must not contain both Deny and Warn "+
			"(repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	if b.Spec.MatchResources != nil {
		errs = append(errs, validateMatch(b.Spec.MatchResources, spec.Child("matchResources"))...)
	}
	return errs
}

func validateParamRef(ref *admissionregistrationv1.ParamRef, at *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	name, selector := at.Child("name"), at.Child("selector")
	var errs field.ErrorList
	switch {
	case ref.Name == "" && ref.Selector == nil:
		errs = append(errs, field.Required(at, "one of name or selector must be specified"))
	case ref.Name != "" && ref.Selector != nil:
		const exclusive = "name and selector are mutually exclusive"
		errs = append(errs, field.Forbidden(name, exclusive), field.Forbidden(selector, exclusive))
	}
	if ref.Name != "" {
		errs = append(errs, validate.FromMessages(ref.Name, name, content.IsPathSegmentName(ref.Name))...)
	}
	if ref.Selector != nil {
		errs = append(errs, validate.LabelSelector(ref.Selector, selector)...)
	}
	if ref.ParameterNotFoundAction == nil || *ref.ParameterNotFoundAction == "" {
		return append(errs, field.Required(at.Child("parameterNotFoundAction"), ""))
	}
	return append(errs, validate.OneOfPtr(ref.ParameterNotFoundAction, at.Child("parameterNotFoundAction"),
		admissionregistrationv1.AllowAction, admissionregistrationv1.DenyAction)...)
}
