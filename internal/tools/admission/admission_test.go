package admission_test

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/admission"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// everything selects all objects, as the server defaults selectors.
var everything = &metav1.LabelSelector{}

// deletions are rules that match each DELETE of ConfigMaps.
func deletions(versions ...string) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: versions, Resources: []string{"configmaps"}},
	}}
}

// policy returns a policy about DELETEs of ConfigMaps with one binding that denies.
func policy(expression string, change ...func(*inventory.Policy)) inventory.Policy {
	p := inventory.Policy{}
	p.Name = "keep"
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		NamespaceSelector: everything, ObjectSelector: everything,
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: deletions("v1")[0]}},
	}
	p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: expression, Message: "it is kept"}}
	p.Bindings = []admissionregistrationv1.ValidatingAdmissionPolicyBinding{{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "keep", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}}
	for _, f := range change {
		f(&p)
	}
	return p
}

// hook returns a webhook about DELETEs of ConfigMaps that fails closed and has one endpoint.
func hook(change ...func(*inventory.Webhook)) inventory.Webhook {
	w := inventory.Webhook{
		Configuration: "ValidatingWebhookConfiguration c", Name: "w", Rules: deletions("v1"), FailsClosed: true,
		Service: types.NamespacedName{Namespace: "ops", Name: "hook"}, Endpoints: 1,
	}
	for _, f := range change {
		f(&w)
	}
	return w
}

func object(kind, namespace, name string, labels map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"size": "7"}}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetLabels(labels)
	return o
}

// deletion is a DELETE of a ConfigMap by ann, in a namespace of the team red.
func deletion(policies []inventory.Policy, webhooks []inventory.Webhook) preview.Review {
	return preview.Review{
		Resource: &inventory.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap", Namespaced: true},
		Object:   object("ConfigMap", "shop", "a", map[string]string{"keep": "yes"}), Namespace: object("Namespace", "", "shop", map[string]string{"team": "red"}),
		Propagation: metav1.DeletePropagationForeground, User: authenticationv1.UserInfo{Username: "ann", Groups: []string{"staff"}},
		Policies: policies, Webhooks: webhooks,
	}
}

// Policies are evaluated as the server does: their selectors, conditions, bindings, variables and parameters, with the
// object, its namespace, the options and the user.
func TestPoliciesAreEvaluatedAsByTheServer(t *testing.T) {
	selected := func(label, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}
	}
	withParam := func(params ...*unstructured.Unstructured) func(*inventory.Policy) {
		return func(p *inventory.Policy) {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			p.ParamsAreNamespaced, p.Params.Value = true, params
			deny := admissionregistrationv1.DenyAction
			p.Bindings[0].Spec.ParamRef = &admissionregistrationv1.ParamRef{Name: "limit", Namespace: "ops", ParameterNotFoundAction: &deny}
		}
	}
	for name, test := range map[string]struct {
		policy inventory.Policy
		want   string // "refused: " and its words, "undecided: " and who decides, or "" for permitted
	}{
		"label":          {policy(`oldObject.metadata.labels["keep"] != "yes"`), "refused: it is kept"},
		"field":          {policy(`oldObject.data.size == "7"`), ""},
		"user":           {policy(`request.userInfo.username != "ann" || !("staff" in request.userInfo.groups)`), "refused: it is kept"},
		"operation":      {policy(`request.operation != "DELETE"`), "refused: it is kept"},
		"options":        {policy(`request.options.propagationPolicy != "Foreground"`), "refused: it is kept"},
		"namespace":      {policy(`namespaceObject.metadata.labels["team"] != "red"`), "refused: it is kept"},
		"object is null": {policy(`object == null`), ""},
		"error":          {policy(`oldObject.data.colour == "7"`), "refused: expression 'oldObject.data.colour == \"7\"' resulted in error: no such key: colour"},
		"error, fails open": {policy(`oldObject.data.colour == "7"`, func(p *inventory.Policy) {
			ignore := admissionregistrationv1.Ignore
			p.Spec.FailurePolicy = &ignore
		}), ""},
		"variable": {policy(`variables.kept == false`, func(p *inventory.Policy) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "kept", Expression: `"keep" in oldObject.metadata.labels`}}
		}), "refused: it is kept"},
		"message": {policy(`false`, func(p *inventory.Policy) {
			p.Spec.Validations[0].MessageExpression = `"not " + oldObject.metadata.name`
		}), "refused: not a"},
		"condition": {policy(`false`, func(p *inventory.Policy) {
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "bob", Expression: `request.userInfo.username == "bob"`}}
		}), ""},
		"object selector":    {policy(`false`, func(p *inventory.Policy) { p.Spec.MatchConstraints.ObjectSelector = selected("keep", "no") }), ""},
		"namespace selector": {policy(`false`, func(p *inventory.Policy) { p.Spec.MatchConstraints.NamespaceSelector = selected("team", "blue") }), ""},
		"excluded": {policy(`false`, func(p *inventory.Policy) {
			p.Spec.MatchConstraints.ExcludeResourceRules = []admissionregistrationv1.NamedRuleWithOperations{{ResourceNames: []string{"a"}, RuleWithOperations: deletions("*")[0]}}
		}), ""},
		"binding for others": {policy(`false`, func(p *inventory.Policy) {
			p.Bindings[0].Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: selected("team", "blue"), ObjectSelector: everything}
		}), ""},
		"binding that warns": {policy(`false`, func(p *inventory.Policy) {
			p.Bindings[0].Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn, admissionregistrationv1.Audit}
		}), ""},
		"parameter":         {policy(`params.data.size != "7"`, withParam(object("ConfigMap", "ops", "limit", nil))), "refused: it is kept"},
		"missing parameter": {policy(`true`, withParam()), "refused: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"},
		"unread parameters": {policy(`true`, withParam(), func(p *inventory.Policy) { p.Params.Unread = "not allowed" }), "undecided: ValidatingAdmissionPolicy keep: its parameters are unknown: not allowed"},
		"rights": {
			policy(`authorizer.group("").resource("configmaps").check("update").allowed()`),
			"undecided: ValidatingAdmissionPolicy keep: it asks for rights of the user",
		},
		"another version": {
			policy(`false`, func(p *inventory.Policy) { p.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v2"} }),
			"undecided: ValidatingAdmissionPolicy keep: it names another version of configmaps",
		},
		"another version, exactly": {policy(`false`, func(p *inventory.Policy) {
			exact := admissionregistrationv1.Exact
			p.Spec.MatchConstraints.ResourceRules[0].APIVersions, p.Spec.MatchConstraints.MatchPolicy = []string{"v2"}, &exact
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := admission.New().Decide(deletion([]inventory.Policy{test.policy}, nil))
			if said := said(got); said != test.want {
				t.Errorf("%q, want %q", said, test.want)
			}
			if r := got.Refusal; r != nil && (r.By != refusal.ByPolicy || r.Name != "keep" || r.Binding != "all") {
				t.Errorf("refused by %+v", r)
			}
		})
	}
}

// said returns a judgement in words.
func said(j preview.Judgement) string {
	switch {
	case j.Refusal != nil:
		return "refused: " + j.Refusal.Message
	case len(j.Deciders) > 0:
		return "undecided: " + strings.Join(j.Deciders, ", ")
	}
	return ""
}

// A webhook that is called and dead refuses, one that answers decides.
func TestDeadWebhookRefusesUnlessItFailsOpen(t *testing.T) {
	const decides = "undecided: webhook w of ValidatingWebhookConfiguration c"
	const dead = "refused: it fails closed, and its service ops/hook has no endpoints"
	condition := func(expression string) func(*inventory.Webhook) {
		return func(w *inventory.Webhook) {
			w.Conditions = []admissionregistrationv1.MatchCondition{{Name: "some", Expression: expression}}
		}
	}
	kill := func(w *inventory.Webhook) { w.Endpoints = 0 }
	open := func(w *inventory.Webhook) { w.FailsClosed = false }
	for name, test := range map[string]struct {
		webhook inventory.Webhook
		want    string
	}{
		"alive":                   {hook(), decides},
		"dead":                    {hook(kill), dead},
		"dead, fails open":        {hook(kill, open), ""},
		"alive, fails open":       {hook(open), decides},
		"URL":                     {hook(kill, func(w *inventory.Webhook) { w.Service, w.Endpoints = types.NamespacedName{}, -1 }), decides},
		"unknown endpoints":       {hook(func(w *inventory.Webhook) { w.Endpoints = -1 }), decides},
		"condition is true":       {hook(kill, condition(`oldObject.metadata.name == "a"`)), dead},
		"condition is false":      {hook(kill, condition(`oldObject.metadata.name == "b"`)), ""},
		"condition about rights":  {hook(condition(`authorizer.group("").resource("pods").check("get").allowed()`)), decides},
		"condition fails":         {hook(condition(`oldObject.colour == "red"`)), "refused: expression 'oldObject.colour == \"red\"' resulted in error: no such key: colour"},
		"condition fails, opened": {hook(open, condition(`oldObject.colour == "red"`)), ""},
		"other objects": {hook(kill, func(w *inventory.Webhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"keep": "no"}}
		}), ""},
		"other namespaces": {hook(kill, func(w *inventory.Webhook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
		}), ""},
		"another version": {hook(kill, func(w *inventory.Webhook) { w.Rules = deletions("v2") }), dead},
		"other resources": {hook(kill, func(w *inventory.Webhook) { w.Rules[0].Resources = []string{"secrets"} }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := admission.New().Decide(deletion(nil, []inventory.Webhook{test.webhook}))
			if said := said(got); said != test.want {
				t.Errorf("%q, want %q", said, test.want)
			}
		})
	}
}

// A namespace is selected by its own labels, and other cluster-scoped objects by no namespace.
func TestNamespaceIsSelectedByItsOwnLabels(t *testing.T) {
	blue := policy(`false`, func(p *inventory.Policy) {
		p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
		p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"*"}
	})
	of := func(o *unstructured.Unstructured, resource string) preview.Review {
		d := deletion([]inventory.Policy{blue}, nil)
		d.Resource = &inventory.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Kind: o.GetKind()}
		d.Object, d.Namespace = o, nil
		if resource == "namespaces" {
			d.Namespace = o
		}
		return d
	}
	for _, test := range []struct {
		deletion preview.Review
		want     string
	}{
		{of(object("Namespace", "", "shop", map[string]string{"team": "blue"}), "namespaces"), "refused: it is kept"},
		{of(object("Namespace", "", "shop", map[string]string{"team": "red"}), "namespaces"), ""},
		{of(object("Node", "", "n", nil), "nodes"), "refused: it is kept"},
	} {
		if got := said(admission.New().Decide(test.deletion)); got != test.want {
			t.Errorf("%s %v: %q, want %q", test.deletion.Object.GetKind(), test.deletion.Object.GetLabels(), got, test.want)
		}
	}
}

// A user who may not read the namespace of an object learns that its admission cannot be foreseen.
func TestNamespaceThatCannotBeRead(t *testing.T) {
	d := deletion([]inventory.Policy{policy(`false`)}, []inventory.Webhook{hook()})
	d.Namespace = nil
	const want = "undecided: admission, which cannot be foreseen: namespace shop could not be read"
	if got := said(admission.New().Decide(d)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Mutating webhooks are called before policies are evaluated, and validating webhooks afterwards.
func TestMutatingWebhooksComeFirst(t *testing.T) {
	dead := func(w *inventory.Webhook) { w.Endpoints = 0 }
	mutating := hook(dead, func(w *inventory.Webhook) { w.Name, w.Mutates = "m", true })
	got := admission.New().Decide(deletion([]inventory.Policy{policy(`false`)}, []inventory.Webhook{hook(dead), mutating}))
	if got.Refusal == nil || got.Refusal.Name != "m" {
		t.Errorf("refused by %+v", got.Refusal)
	}
}

// The first refusal counts, and all that decide are named.
func TestFirstRefusalCounts(t *testing.T) {
	second := policy(`false`, func(p *inventory.Policy) { p.ResourceVersion = "2" }) // not the compiled form of the first
	got := admission.New().Decide(deletion([]inventory.Policy{policy(`true`), second}, []inventory.Webhook{hook(), hook(func(w *inventory.Webhook) { w.Endpoints = 0 })}))
	if got.Refusal == nil || got.Refusal.By != refusal.ByPolicy || len(got.Deciders) != 1 {
		t.Errorf("%+v", got)
	}
}

// A policy sees an UPDATE with the object before and after it, and a webhook about updates is called.
func TestUpdatesAreEvaluatedAsByTheServer(t *testing.T) {
	updates := func(rules []admissionregistrationv1.RuleWithOperations) {
		rules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	}
	for name, test := range map[string]struct {
		expression string
		want       string
	}{
		"it permits":        {"request.operation == 'UPDATE'", ""},
		"by the operation":  {"request.operation != 'UPDATE'", "refused"},
		"by what goes":      {"size(object.metadata.ownerReferences) == size(oldObject.metadata.ownerReferences)", "refused"},
		"by what it was":    {"size(oldObject.metadata.ownerReferences) == 2", ""},
		"by who changes it": {"request.userInfo.username != 'ann'", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			review := deletion([]inventory.Policy{policy(test.expression, func(p *inventory.Policy) {
				p.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
			})}, nil)
			references := []metav1.OwnerReference{{Name: "a", UID: "a"}, {Name: "b", UID: "b"}}
			review.After = review.Object.DeepCopy()
			review.Object.SetOwnerReferences(references)
			review.After.SetOwnerReferences(references[:1])
			if got := admission.New().Decide(review); (got.Refusal != nil) != (test.want == "refused") || len(got.Deciders) > 0 {
				t.Errorf("%+v, want %q", got, test.want)
			}
		})
	}
	review := deletion(nil, []inventory.Webhook{hook(func(w *inventory.Webhook) { updates(w.Rules) })})
	review.After = review.Object.DeepCopy()
	if got := admission.New().Decide(review); len(got.Deciders) != 1 {
		t.Errorf("%+v, and the webhook decides", got)
	}
	review.After = nil
	if got := admission.New().Decide(review); len(got.Deciders) != 0 {
		t.Errorf("%+v, and the webhook is not called for a DELETE", got)
	}
}
