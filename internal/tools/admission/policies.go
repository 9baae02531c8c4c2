package admission

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// mostCompiled bounds the policies whose compiled form is kept.
const mostCompiled = 200

// namesVersion reports whether a rule of a policy names a version.
func namesVersion(p *inventory.Policy, version string) bool {
	rules := p.Spec.MatchConstraints.ResourceRules
	return len(rules) == 0 || slices.ContainsFunc(rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.APIVersions, version) || slices.Contains(r.APIVersions, "*")
	})
}

// compile compiles the expressions of a policy. Wrong expressions deny each request, unless the policy fails open.
func compile(p *admissionregistrationv1.ValidatingAdmissionPolicy, environments *environment.EnvSet) validating.Validator {
	compiler, err := cel.NewCompositedCompiler(environments)
	if err != nil {
		return validating.NewValidator(nil, nil, nil, nil, p.Spec.FailurePolicy, err)
	}
	withRights := cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	variables := make([]cel.NamedExpressionAccessor, 0, len(p.Spec.Variables))
	for _, v := range p.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, withRights, environment.StoredExpressions)

	validations := make([]cel.ExpressionAccessor, len(p.Spec.Validations))
	messages := make([]cel.ExpressionAccessor, len(p.Spec.Validations)) // nil for a fixed message
	for i, v := range p.Spec.Validations {
		validations[i] = &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}
		if v.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	annotations := make([]cel.ExpressionAccessor, 0, len(p.Spec.AuditAnnotations))
	for _, a := range p.Spec.AuditAnnotations {
		annotations = append(annotations, &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression})
	}
	compiled := func(all []cel.ExpressionAccessor, variables cel.OptionalVariableDeclarations) cel.ConditionEvaluator {
		return compiler.CompileCondition(all, variables, environment.StoredExpressions)
	}
	var matcher matchconditions.Matcher
	if len(p.Spec.MatchConditions) > 0 {
		conditions := make([]cel.ExpressionAccessor, len(p.Spec.MatchConditions))
		for i := range p.Spec.MatchConditions {
			conditions[i] = (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i])
		}
		matcher = matchconditions.NewMatcher(compiled(conditions, withRights), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	withoutRights := cel.OptionalVariableDeclarations{HasParams: withRights.HasParams}
	return validating.NewValidator(compiled(validations, withRights), matcher, compiled(annotations, withRights),
		compiled(messages, withoutRights), p.Spec.FailurePolicy, nil)
}

// params are the objects of a paramKind, as the dispatcher expects them: in an informer that has synced.
type params struct {
	cache.SharedIndexInformer // nil: only HasSynced is called

	lister cache.GenericLister
}

func paramsOf(p *inventory.Policy) (informers.GenericInformer, meta.RESTScope) {
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, o := range p.Params.Value {
		_ = known.Add(o) // objects have names, so this does not fail
	}
	kind := schema.FromAPIVersionAndKind(p.Spec.ParamKind.APIVersion, p.Spec.ParamKind.Kind)
	scope := meta.RESTScope(meta.RESTScopeRoot)
	if p.ParamsAreNamespaced {
		scope = meta.RESTScopeNamespace
	}
	return &params{lister: cache.NewGenericLister(known, schema.GroupResource{Group: kind.Group, Resource: kind.Kind})}, scope
}

// Informer implements informers.GenericInformer.
func (p *params) Informer() cache.SharedIndexInformer { return p }

// Lister implements informers.GenericInformer.
func (p *params) Lister() cache.GenericLister { return p.lister }

// HasSynced implements cache.SharedIndexInformer.
func (p *params) HasSynced() bool { return true }
