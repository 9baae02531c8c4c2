package protected

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// The path at which an API server calls the webhook gives objects without a label their mode.
func TestR28_WebhookHasDefaults(t *testing.T) {
	for name, test := range map[string]struct {
		byDefault protection.Mode
		labels    string
		user      string
		refused   bool
	}{
		"always":            {protection.Always, `{}`, "ann", true},
		"no default":        {"", `{}`, "ann", false},
		"lifted":            {protection.Always, `{"coppice.dev/protect":"none"}`, "ann", false},
		"lifted by nothing": {"", `{"coppice.dev/protect":"none"}`, "ann", false},
		"its own mode":      {protection.Always, `{"coppice.dev/protect":"cascading"}`, "ann", false},
		"a request":         {protection.Cascading, `{}`, "ann", false},
		"a cascade":         {protection.Cascading, `{}`, "system:serviceaccount:kube-system:namespace-controller", true},
	} {
		request := admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Delete, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "secrets"},
			OldObject: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"a","labels":` + test.labels + `}}`)},
		}
		request.UserInfo.Username = test.user
		body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &request})
		if err != nil {
			t.Fatal(err)
		}
		_, review := post(t, Webhook{Default: test.byDefault}, string(body))
		if review.Response == nil || review.Response.Allowed == test.refused {
			t.Errorf("%s: %+v, want refused %t", name, review.Response, test.refused)
		}
	}
}

// Tools read the defaults in the configuration that is deployed.
func TestR28_ConfigurationNamesDefaults(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/kustomize/protect-defaults/defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var patch []struct {
		Value admissionregistrationv1.ValidatingWebhook `json:"value"`
	}
	if err := yaml.Unmarshal(text, &patch); err != nil || len(patch) != 1 {
		t.Fatal(err, len(patch))
	}
	at := "https://10.0.0.1:10272" + WebhookPath + "/cascading"
	elsewhere, plain := WebhookPath+"/outlives", WebhookPath
	rule := func(operation admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{operation}, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, Resources: []string{"secrets"}},
		}}
	}
	service := func(path *string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Path: path}}
	}
	got := defaultsIn([]admissionregistrationv1.ValidatingWebhook{
		patch[0].Value,
		{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &at}, Rules: rule(admissionregistrationv1.OperationAll)},
		{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &at}, Rules: rule(admissionregistrationv1.Create)},
		{ClientConfig: service(&elsewhere), Rules: rule(admissionregistrationv1.Delete)},
		{ClientConfig: service(&plain), Rules: rule(admissionregistrationv1.Delete)},
		{ClientConfig: service(nil), Rules: rule(admissionregistrationv1.Delete)},
	})
	want := protection.Defaults{{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: protection.Unused, {Resource: "secrets"}: protection.Cascading}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultsAreServed(t *testing.T) {
	h := ServeDefaults(protection.Defaults{schema.GroupResource{Resource: "secrets"}: protection.Unused})
	for method, want := range map[string]string{"GET": `{"defaults":[{"resource":"secrets","mode":"unused"}]}`, "POST": "only GET is supported"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, DefaultsPath, strings.NewReader("")))
		if got := strings.TrimSpace(w.Body.String()); got != want {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
	}
}
