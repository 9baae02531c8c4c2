package apiserver_test

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func apply(expression string) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
	}
}

func jsonPatch(expression string) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression},
	}
}

// annotated returns a mutation that sets an annotation to the value of an expression.
func annotated(key, expression string) admissionregistrationv1.Mutation {
	return apply(`Object{metadata: Object.metadata{annotations: {"` + key + `": ` + expression + `}}}`)
}

// mutated creates a policy for new objects of a collection, and a binding of it. change may change both.
func mutated(t *testing.T, c collection, change func(*admissionregistrationv1.MutatingAdmissionPolicySpec, *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec), mutations ...admissionregistrationv1.Mutation) string {
	t.Helper()
	client := typed(t, sharedServer(t).config).AdmissionregistrationV1()
	rules := []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: writes(c, admissionregistrationv1.Create)[0]}}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: unique("mutation")},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   &admissionregistrationv1.MatchResources{ResourceRules: rules},
			Mutations:          mutations,
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		},
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName:     policy.Name,
			MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: inNamespace(namespaceOf(c))},
		},
	}
	if change != nil {
		change(&policy.Spec, &binding.Spec)
	}
	if _, err := client.MutatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.MutatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return policy.Name
}

// A MutatingAdmissionPolicy changes stored objects of built-in and custom kinds, by merging and by JSON
// patches, with variables, if its conditions match.
func TestMutatingAdmissionPolicy(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		mutated(t, c, func(p *admissionregistrationv1.MutatingAdmissionPolicySpec, _ *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) {
			p.Variables = []admissionregistrationv1.Variable{{Name: "who", Expression: "request.userInfo.username"}}
			p.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "named", Expression: `!object.metadata.name.startsWith("other")`}}
		},
			annotated("created-by", "variables.who"),
			jsonPatch(`[JSONPatch{op: "add", path: "/metadata/labels", value: {"patched": "yes"}}]`),
		)
		eventually.Agrees(t, func() string {
			o := c.create(unique("a"))
			if o.GetAnnotations()["created-by"] != "system:apiserver" || o.GetLabels()["patched"] != "yes" {
				return "not changed by the policy: " + strings.Join(append(keys(o.GetAnnotations()), keys(o.GetLabels())...), " ")
			}
			return ""
		})
		if o := c.create("other"); o.GetAnnotations()["created-by"] != "" || o.GetLabels()["patched"] != "" {
			t.Errorf("changed although the condition does not match: %v, %v", o.GetAnnotations(), o.GetLabels())
		}
	})
}

func keys(m map[string]string) []string {
	var all []string
	for k, v := range m {
		all = append(all, k+"="+v)
	}
	return all
}

// Parameters come from an object in the namespace of the request. If it does not exist, the binding decides
// what follows.
func TestMutatingAdmissionPolicyParameters(t *testing.T) {
	s := sharedServer(t)
	c := s.subject(t, subjects[0], s.namespace(t))
	mutated(t, c, func(p *admissionregistrationv1.MutatingAdmissionPolicySpec, b *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) {
		p.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		b.ParamRef = &admissionregistrationv1.ParamRef{Name: "teams", ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
	}, annotated("team", "params.data.team"))
	eventually.Agrees(t, func() string {
		if _, err := c.tryPost(c.named(unique("a"))); err == nil || !strings.Contains(err.Error(), "no params found") {
			return "without parameters: " + errText(err)
		}
		return ""
	})
	_, err := typed(t, s.config).CoreV1().ConfigMaps(namespaceOf(c)).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "teams"}, Data: map[string]string{"team": "red"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		o, err := c.tryPost(c.named(unique("a")))
		if err != nil {
			return err.Error()
		}
		if team := o.GetAnnotations()["team"]; team != "red" {
			return "the team is " + team
		}
		return ""
	})
}

// A policy finds its parameters, too, if all earlier policies with parameters of that kind were deleted.
func TestParametersAreObservedAfterTheLastPolicyWasDeleted(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	c := s.subject(t, subjects[0], s.namespace(t))
	client := typed(t, s.config)
	for _, name := range []string{"first", "second"} {
		policy := mutated(t, c, func(p *admissionregistrationv1.MutatingAdmissionPolicySpec, b *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) {
			p.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "PodTemplate"} // of no other test
			b.ParamRef = &admissionregistrationv1.ParamRef{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": name}}, ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
			}
		}, annotated("team", "params.metadata.name"))
		if _, err := client.CoreV1().PodTemplates(namespaceOf(c)).Create(t.Context(), &corev1.PodTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		untilTeam := func(want string) {
			t.Helper()
			eventually.Agrees(t, func() string {
				switch o, err := c.tryPost(c.named(unique("a"))); {
				case err != nil:
					return err.Error()
				case o.GetAnnotations()["team"] != want:
					return "the team is " + o.GetAnnotations()["team"]
				}
				return ""
			})
		}
		untilTeam(name)
		if err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Delete(t.Context(), policy, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().Delete(t.Context(), policy, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		untilTeam("")
	}
}

// The failurePolicy decides whether an expression that fails refuses the request or is skipped.
func TestMutatingAdmissionPolicyFailures(t *testing.T) {
	const fails = `object.metadata.annotations["is not there"]`
	for _, failure := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
		t.Run(string(failure), func(t *testing.T) {
			t.Parallel()
			s := sharedServer(t)
			c := s.subject(t, subjects[0], s.namespace(t))
			name := mutated(t, c, func(p *admissionregistrationv1.MutatingAdmissionPolicySpec, _ *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) {
				p.FailurePolicy = &failure
			}, annotated("first", `"yes"`), annotated("second", fails))
			eventually.Agrees(t, func() string {
				o, err := c.tryPost(c.named(unique("a")))
				switch {
				case failure == admissionregistrationv1.Fail && (err == nil || !strings.Contains(err.Error(), name)):
					return "not refused by the policy: " + errText(err)
				case failure == admissionregistrationv1.Ignore && err != nil:
					t.Fatal(err)
				case failure == admissionregistrationv1.Ignore && o.GetAnnotations()["first"] != "yes":
					return "the policy is not effective"
				}
				return ""
			})
		})
	}
}

// A policy with reinvocation sees the changes of later policies.
func TestMutatingAdmissionPolicyReinvocation(t *testing.T) {
	s := sharedServer(t)
	c := s.subject(t, subjects[0], s.namespace(t))
	labelled := `has(object.metadata.labels) && "late" in object.metadata.labels`
	mutated(t, c, func(p *admissionregistrationv1.MutatingAdmissionPolicySpec, _ *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) {
		p.ReinvocationPolicy = admissionregistrationv1.IfNeededReinvocationPolicy
	}, annotated("seen", labelled+` ? "late" : "nothing"`))
	mutated(t, c, nil, apply(`Object{metadata: Object.metadata{labels: {"late": "yes"}}}`))
	eventually.Agrees(t, func() string {
		if seen := c.create(unique("a")).GetAnnotations()["seen"]; seen != "late" {
			return "seen: " + seen
		}
		return ""
	})
}

// Custom resources are merged by the schema of their definition, from the first object on.
func TestMutatingAdmissionPolicyMergesByTheSchema(t *testing.T) {
	s := sharedServer(t)
	c := s.collection(t, schema.GroupVersionKind{Group: "merged.coppice.dev", Version: "v1", Kind: "Gadget"}, "gadgets", s.namespace(t), map[string]any{
		"spec": map[string]any{"parts": []any{map[string]any{"name": "a", "size": int64(1)}}},
	})
	// The policy is effective for other kinds of the group before this one is defined.
	s.define(t, definition("merged.coppice.dev", "others", "Other"))
	others := s.collection(t, schema.GroupVersionKind{Group: "merged.coppice.dev", Version: "v1", Kind: "Other"}, "others", namespaceOf(c), nil)
	mutated(t, c, func(p *admissionregistrationv1.MutatingAdmissionPolicySpec, _ *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) {
		p.MatchConstraints.ResourceRules[0].Resources = []string{"*"}
	}, annotated("merged", `"yes"`), apply(`Object{spec: Object.spec{parts: [Object.spec.parts{name: "b", size: 2}]}}`))
	eventually.Agrees(t, func() string {
		if others.create(unique("a")).GetAnnotations()["merged"] != "yes" {
			return "the policy is not effective"
		}
		return ""
	})
	d := definition("merged.coppice.dev", "gadgets", "Gadget")
	part := map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}, "size": map[string]any{"type": "integer"}}, "required": []any{"name"}}
	parts := map[string]any{"type": "array", "items": part, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"name"}}
	version := d["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{
		"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": map[string]any{"parts": parts}}},
	}}
	s.define(t, d)
	o := c.create("first")
	got, _, err := unstructured.NestedSlice(o.Object, "spec", "parts")
	if err != nil || len(got) != 2 || o.GetAnnotations()["merged"] != "yes" {
		t.Errorf("%v, %v, annotations %v: want both parts", got, err, o.GetAnnotations())
	}
}
