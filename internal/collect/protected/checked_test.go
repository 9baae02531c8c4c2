package protected

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// uncheckedObject outlives a Secret, and is older than the webhook.
func uncheckedObject(t *testing.T, says string) runtime.RawExtension {
	t.Helper()
	raw, err := json.Marshal(metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "kept", CreationTimestamp: metav1.NewTime(installed.Add(-time.Hour)),
		Labels: map[string]string{protection.Label: "outlives"},
		Annotations: map[string]string{
			protection.Annotation: `[{"apiVersion":"v1","kind":"Secret","namespace":"vault","name":"key"}]`, protection.Checked: says,
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: raw}
}

func reviewBy(t *testing.T, h Webhook, user string, r admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	r.UID, r.UserInfo = "1", authenticationv1.UserInfo{
		Username: user, Groups: []string{"team"}, UID: "1", Extra: map[string]authenticationv1.ExtraValue{"scope": {"a"}},
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &r})
	if err != nil {
		t.Fatal(err)
	}
	_, review := post(t, h, string(body))
	if review.Response == nil {
		t.Fatal("no response")
	}
	return review.Response
}

// R28: a collector may read everything, but its decision must not depend on the existence of an object that an
// unchecked entry names. Adding the mark of checked entries has the entries checked.
func TestR28_WebhookLooksUpOnlyWhatItHasChecked(t *testing.T) {
	const collector = "system:serviceaccount:kube-system:generic-garbage-collector"
	for says, lookedUp := range map[string]bool{"": false, "b": false, "c": true} {
		for _, user := range []string{collector, "ann"} {
			refusals := map[string]bool{}
			for _, exists := range []bool{false, true} {
				response := reviewBy(t, rightsHandler(t, user, exists), user, admissionv1.AdmissionRequest{Operation: admissionv1.Delete, OldObject: uncheckedObject(t, says)})
				if want := exists || !lookedUp; response.Allowed == want {
					t.Errorf("says %q, user %s, exists %t: %+v, want refused %t", says, user, exists, response.Result, want)
				}
				if !response.Allowed {
					refusals[response.Result.Message] = true
				}
			}
			if len(refusals) != 1 {
				t.Errorf("says %q, user %s: the refusals tell whether the object exists: %v", says, user, refusals)
			}
		}
	}
	for _, test := range []struct {
		user         string
		before, says string
		allowed      bool
		warning      string
	}{
		{"ann", "", "?", true, "coppice.dev/outlives-checked=c"},
		{"ann", "", "c", true, ""},
		{"joe", "", "?", false, ""},
		{"joe", "", "c", false, ""},
		{"joe", "b", "c", false, ""},
	} {
		response := reviewBy(t, rightsHandler(t, "ann", true), test.user, admissionv1.AdmissionRequest{
			Operation: admissionv1.Update, OldObject: uncheckedObject(t, test.before), Object: uncheckedObject(t, test.says),
		})
		warning := strings.Join(response.Warnings, "; ")
		if response.Allowed != test.allowed || (warning == "") != (test.warning == "") || !strings.Contains(warning, test.warning) {
			t.Errorf("%+v: allowed %t, warning %q", test, response.Allowed, warning)
		}
	}
}

// deployed is the configuration that deploy has.
func deployed(t *testing.T) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(source), "webhook.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := yaml.Unmarshal([]byte(document), c); err == nil && c.Kind == "ValidatingWebhookConfiguration" {
			c.UID, c.CreationTimestamp = "c", metav1.NewTime(installed)
			return c
		}
	}
	t.Fatal("deploy has no configuration")
	return nil
}

// R28: nothing counts as checked where writes escape the webhook.
func TestR28_ConfigurationThatLeavesWritesOutChecksNothing(t *testing.T) {
	type configuration = admissionregistrationv1.ValidatingWebhookConfiguration
	for name, test := range map[string]struct {
		change func(c *configuration, w *admissionregistrationv1.ValidatingWebhook)
		gap    bool
	}{
		"as deploy has it": {func(*configuration, *admissionregistrationv1.ValidatingWebhook) {}, false},
		"another service, as the server completes it": {func(_ *configuration, w *admissionregistrationv1.ValidatingWebhook) {
			w.ClientConfig, w.NamespaceSelector = admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1")}, &metav1.LabelSelector{}
			w.TimeoutSeconds = new(int32(5))
		}, false},
		"none": {func(c *configuration, _ *admissionregistrationv1.ValidatingWebhook) { c.Name = "another" }, true},
		"without the webhook": {func(_ *configuration, w *admissionregistrationv1.ValidatingWebhook) {
			w.Name = "another.protect.coppice.dev"
		}, true},
		"it may fail": {func(_ *configuration, w *admissionregistrationv1.ValidatingWebhook) {
			w.FailurePolicy = new(admissionregistrationv1.Ignore)
		}, true},
		"namespaces are exempt": {func(_ *configuration, w *admissionregistrationv1.ValidatingWebhook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpExists}}}
		}, true},
		"objects are exempt": {func(_ *configuration, w *admissionregistrationv1.ValidatingWebhook) {
			w.ObjectSelector.MatchLabels["team"] = "a"
		}, true},
		"conditions of an older version": {func(_ *configuration, w *admissionregistrationv1.ValidatingWebhook) {
			w.MatchConditions[1].Name = "lists-more"
		}, true},
		"not every kind": {func(_ *configuration, w *admissionregistrationv1.ValidatingWebhook) {
			w.Rules[0].Resources = []string{"*"}
		}, true},
		"not every write": {func(_ *configuration, w *admissionregistrationv1.ValidatingWebhook) {
			w.Rules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
		}, true},
	} {
		c := deployed(t)
		test.change(c, &c.Webhooks[1])
		got := Checker(t.Context(), kubernetesfake.NewClientset(c).AdmissionregistrationV1().ValidatingWebhookConfigurations())
		if (got.Gap != "") != test.gap || !test.gap && (got.UID != "c" || !got.Since.Equal(installed)) {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Gap != "" && !strings.Contains(got.Gap, fmt.Sprintf("create it from %s", source)) {
			t.Errorf("%s: %q does not say what to do", name, got.Gap)
		}
	}
}
