package apiserver_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// webhook serves admission reviews over HTTPS, and returns its client configuration.
func webhook(t *testing.T, answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) admissionregistrationv1.WebhookClientConfig {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			t.Errorf("the webhook was sent no review: %v", err)
			return
		}
		review.Response = answer(review.Request)
		review.Response.UID = review.Request.UID
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return admissionregistrationv1.WebhookClientConfig{
		URL: new(server.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}

// inNamespace selects the namespace of one test.
func inNamespace(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": name}}
}

func writes(c collection, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{c.resource.Group}, APIVersions: []string{"v1"}, Resources: []string{c.resource.Resource}},
	}}
}

func namespaceOf(c collection) string {
	return strings.Split(c.path, "/")[strings.Count(c.path, "/")-1]
}

// A mutating webhook changes the stored object, of built-in and custom kinds.
func TestMutatingWebhook(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		namespace, none := namespaceOf(c), admissionregistrationv1.SideEffectClassNone
		hook := webhook(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{
				Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch),
				Patch: []byte(`[{"op":"add","path":"/metadata/annotations","value":{"hooked":"yes"}}]`),
			}
		})
		_, err := typed(t, sharedServer(t).config).AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: unique("hook")},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "hook.example.com", ClientConfig: hook, Rules: writes(c, admissionregistrationv1.Create), NamespaceSelector: inNamespace(namespace),
				SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		eventually.Agrees(t, func() string {
			if c.create(unique("a")).GetAnnotations()["hooked"] != "yes" {
				return "the webhook is not asked"
			}
			return ""
		})
	})
}

// A validating webhook gets the user and the operation, including deletions, and can refuse. If it cannot
// be reached and its failure policy is Fail, the request is refused, too.
func TestValidatingWebhook(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		namespace, none, fail := namespaceOf(c), admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
		configurations := typed(t, sharedServer(t).config).AdmissionregistrationV1().ValidatingWebhookConfigurations()
		install := func(client admissionregistrationv1.WebhookClientConfig) string {
			t.Helper()
			name := unique("hook")
			_, err := configurations.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Webhooks: []admissionregistrationv1.ValidatingWebhook{{
					Name: "hook.example.com", ClientConfig: client, Rules: writes(c, admissionregistrationv1.Create, admissionregistrationv1.Delete),
					NamespaceSelector: inNamespace(namespace), SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return name
		}
		kept := c.create("kept")
		name := install(webhook(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: string(r.Operation) + " of " + r.Kind.Kind + " by " + r.UserInfo.Username}}
		}))
		eventually.Agrees(t, func() string {
			_, err := c.remove(kept.GetName(), &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			if want := "DELETE of " + c.kind.Kind + " by system:apiserver"; err == nil || !strings.Contains(err.Error(), want) {
				return errText(err) + ", want " + want
			}
			return ""
		})
		if _, err := c.tryPost(c.named("refused")); err == nil || !strings.Contains(err.Error(), `admission webhook "hook.example.com" denied the request: CREATE of `) {
			t.Errorf("%v", err)
		}
		if err := configurations.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually.Agrees(t, func() string {
			_, err := c.tryPost(c.named(unique("free")))
			return errText(err)
		})
		install(admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")})
		eventually.Agrees(t, func() string {
			if _, err := c.tryPost(c.named(unique("b"))); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "failed calling webhook") {
				return "a webhook that cannot be reached: " + errText(err)
			}
			return ""
		})
	})
}

// A ValidatingAdmissionPolicy refuses with its own message, for built-in and custom kinds.
func TestValidatingAdmissionPolicy(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		client := typed(t, sharedServer(t).config).AdmissionregistrationV1()
		name, fail := unique("policy"), admissionregistrationv1.Fail
		rules := []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: writes(c, admissionregistrationv1.Create)[0]}}
		_, err := client.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy:    &fail,
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules},
				Validations: []admissionregistrationv1.Validation{{
					Expression: `!object.metadata.name.startsWith("bad")`, MessageExpression: `"no " + object.metadata.name + " here, " + request.userInfo.username`,
				}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: inNamespace(namespaceOf(c))},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		eventually.Agrees(t, func() string {
			bad := unique("bad")
			if _, err := c.tryPost(c.named(bad)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "no "+bad+" here, system:apiserver") {
				return "the policy does not refuse: " + errText(err)
			}
			return ""
		})
		c.create("good")
	})
}
