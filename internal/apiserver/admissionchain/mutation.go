package admissionchain

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	policy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// newMutatingPolicies returns the plug-in of MutatingAdmissionPolicies. mutating.NewPlugin of
// k8s.io/apiserver would build the OpenAPI documents of all kinds at the start, and again after every
// change (serving.MergeTypes).
func newMutatingPolicies(types patch.TypeConverterManager) *mutating.Plugin {
	return &mutating.Plugin{Plugin: generic.NewPlugin(
		admission.NewHandler(admission.Create, admission.Update, admission.Connect), // deletions are not mutated
		func(f informers.SharedInformerFactory, _ kubernetes.Interface, client dynamic.Interface, mapper meta.RESTMapper) generic.Source[mutating.PolicyHook] {
			kinds := f.Admissionregistration().V1()
			return generic.NewPolicySource(
				kinds.MutatingAdmissionPolicies().Informer(), kinds.MutatingAdmissionPolicyBindings().Informer(),
				mutating.NewMutatingAdmissionPolicyAccessor, mutating.NewMutatingAdmissionPolicyBindingAccessor,
				compile, f, client, mapper)
		},
		func(a authorizer.UnconditionalAuthorizer, m *matching.Matcher, _ kubernetes.Interface) generic.Dispatcher[mutating.PolicyHook] {
			return mutating.NewDispatcher(a, m, types)
		},
	)}
}

// compile compiles the expressions of a policy, which were valid when it was stored. An expression that is
// no longer valid fails when it is evaluated; the policy's failurePolicy decides what follows.
func compile(p *admissionregistrationv1.MutatingAdmissionPolicy) mutating.PolicyEvaluator {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		// A policy without mutators fails.
		return mutating.PolicyEvaluator{Error: err}
	}
	declared := plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	for _, v := range p.Spec.Variables {
		compiler.CompileAndStoreVariable(&policy.Variable{Name: v.Name, Expression: v.Expression}, declared, environment.StoredExpressions)
	}
	evaluator := mutating.PolicyEvaluator{CompositedCompiler: compiler}
	if len(p.Spec.MatchConditions) > 0 {
		var conditions []plugincel.ExpressionAccessor
		for _, c := range p.Spec.MatchConditions {
			conditions = append(conditions, &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression})
		}
		compiled := compiler.CompileCondition(conditions, declared, environment.StoredExpressions)
		evaluator.Matcher = matchconditions.NewMatcher(compiled, p.Spec.FailurePolicy, "policy", "admit", p.Name)
	}
	declared.HasPatchTypes = true
	for _, m := range p.Spec.Mutations {
		evaluator.Mutators = append(evaluator.Mutators, patcher(compiler, declared, m))
	}
	return evaluator
}

// patcher compiles one mutation. Validation has checked that the expression exists.
func patcher(compiler *plugincel.CompositedCompiler, declared plugincel.OptionalVariableDeclarations, m admissionregistrationv1.Mutation) patch.Patcher {
	switch {
	case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
		x := &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}
		return patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(x, declared, environment.StoredExpressions))
	case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
		x := &patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}
		return patch.NewApplyConfigurationPatcher(compiler.CompileMutatingEvaluator(x, declared, environment.StoredExpressions))
	}
	return nil // the dispatcher refuses the request
}

// withoutReviews excludes reviews, which are never stored, from policies: a policy that refused them would
// lock everybody out.
type withoutReviews struct{}

// Initialize implements admission.PluginInitializer.
func (withoutReviews) Initialize(p admission.Interface) {
	wants, ok := p.(initializer.WantsExcludedAdmissionResources)
	if !ok {
		return
	}
	wants.SetExcludedAdmissionResources([]schema.GroupResource{
		{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"},
		{Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	})
}
