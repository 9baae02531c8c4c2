package reader

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// configured returns a client of a server with the webhook, which looks up only objects that are newer than itself.
func configured(since time.Time) *fake.Clientset {
	scope := admissionregistrationv1.AllScopes
	return fake.NewClientset(&admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: protection.Enforcer, UID: "c", CreationTimestamp: metav1.NewTime(since)},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "write.protect.coppice.dev",
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}, Scope: &scope},
			}},
		}},
	})
}

// R28: previews and explanations report, like the webhook, that an unchecked list is not looked up, and do not look
// it up.
func TestR28_PreviewsLookUpNothingUnchecked(t *testing.T) {
	since := time.Unix(1_000_000, 0)
	for name, test := range map[string]struct {
		created time.Time
		says    string
		checked bool
	}{
		"older":          {since.Add(-time.Hour), "", false},
		"older, checked": {since.Add(-time.Hour), "c", true},
		"newer":          {since.Add(time.Hour), "", true},
	} {
		asked := false // for the other object
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if !strings.HasSuffix(r.URL.Path, "/configmaps/db") {
				asked = true
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_ = json.NewEncoder(w).Encode(metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "shop", Name: "db", CreationTimestamp: metav1.NewTime(test.created), Labels: map[string]string{protection.Label: "outlives"},
					Annotations: map[string]string{protection.Annotation: `[{"finalizer":"example.com/x"},{"apiVersion":"v1","kind":"Secret","name":"key"}]`, protection.Checked: test.says},
				},
			})
		}))
		t.Cleanup(server.Close)
		client := configured(since)
		client.Discovery().(*fakediscovery.FakeDiscovery).Resources = []*metav1.APIResourceList{{
			GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "secrets", Kind: "Secret", Namespaced: true}},
		}}
		d := &Facts{client: client, config: &rest.Config{Host: server.URL}}
		p := d.Protection(t.Context(), &inventory.Object{
			Object: ownership.Object{Namespace: "shop", Name: "db"}, Labels: inventory.Labels{{Name: protection.Label, Value: "outlives"}},
			Resource: &inventory.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}},
		})
		if !p.Enforced || (p.Unchecked == "") != test.checked || asked != test.checked || (len(p.Remaining) > 0) != test.checked {
			t.Errorf("%s: protected %t, unchecked %q, looked up %t, left %v", name, p.Enforced, p.Unchecked, asked, p.Remaining)
		}
	}
}

// Users who may not read the configuration learn that the checks are unknown, except on our server, which checks all
// lists.
func TestCheckerThatMayNotBeRead(t *testing.T) {
	for kubernetes, want := range map[string]bool{"v1.37.2": true, version.Kubernetes(): false} {
		client := fake.NewClientset()
		client.PrependReactor("get", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{}, protection.Enforcer, errors.New("no"))
		})
		client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &kubeversion.Info{GitVersion: kubernetes}
		d := &Facts{client: client}
		if checker, err := d.Checker(t.Context()); checker != nil || (err != nil) != want {
			t.Errorf("%s: %v, %v", kubernetes, checker, err)
		}
	}
	if checker, err := (&Facts{client: fake.NewClientset()}).Checker(t.Context()); checker != nil || err != nil {
		t.Errorf("without a webhook: %v, %v", checker, err)
	}
}
