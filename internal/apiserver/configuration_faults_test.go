package apiserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// A definition is established at once, and served late; the configuration of a webhook takes effect late. Both end with
// the plan.
func TestConfigurationsAreLate(t *testing.T) {
	s := startServer(t, nil)
	config := s.manager(t)
	client, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	served := func() bool {
		groups, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerGroups()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "late.example.com" })
	}
	fail(t, config, "definition-late delay=1h; webhook-late delay=1h")
	crds := s.definitions(t)
	o := &object{Object: definition("late.example.com", "things", "Thing")}
	o.SetGroupVersionKind(crds.kind)
	if created := crds.post(o); !hasCondition(created, "Established") {
		t.Errorf("the definition is not established: %v", created)
	}
	const path = "/apis/late.example.com/v1/things"
	if status, _, _ := client.exchange(http.MethodGet, path, "", nil); status != http.StatusNotFound || served() {
		t.Errorf("a definition that is late: %d, in discovery: %v", status, served())
	}
	none := admissionregistrationv1.SideEffectClassNone
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hook.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: webhook(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "no"}}
			}),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}
	if _, err := typed(t, config).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func() error {
		_, _, err := client.exchange(http.MethodPost, "/api/v1/namespaces/default/configmaps?dryRun=All", "application/json",
			map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}})
		return err
	}
	if err := create(); err != nil {
		t.Errorf("a webhook that is late: %v", err)
	}
	fail(t, config, "")
	eventually.Agrees(t, func() string {
		status, _, _ := client.exchange(http.MethodGet, path, "", nil)
		if err := create(); status != http.StatusOK || !served() || err == nil || !strings.Contains(err.Error(), "denied the request: no") {
			return "the plan has ended: " + http.StatusText(status) + ", " + errText(err)
		}
		return ""
	})
}
