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
		p, err := d.Protection(t.Context(), &inventory.Object{
			Object: ownership.Object{Namespace: "shop", Name: "db"}, Labels: inventory.Labels{{Name: protection.Label, Value: "outlives"}},
			Resource: &inventory.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}},
		})
		if err != nil || !p.Enforced || (p.Unchecked == "") != test.checked || asked != test.checked || (len(p.Remaining) > 0) != test.checked {
			t.Errorf("%s: %v, protected %t, unchecked %q, looked up %t, left %v", name, err, p.Enforced, p.Unchecked, asked, p.Remaining)
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

// Whether a server enforces protection is unknown to a user who may not read its policies and webhooks.
func TestEnforcementThatMayNotBeRead(t *testing.T) {
	const webhooks, bindings, policies = "validatingwebhookconfigurations", "validatingadmissionpolicybindings", "validatingadmissionpolicies"
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: protection.Enforcer},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: protection.Enforcer}}
	for name, test := range map[string]struct {
		stored    []runtime.Object
		forbidden []string
		want      bool
		says      string // empty if it is known
	}{
		"nothing":                       {},
		"a policy":                      {stored: []runtime.Object{binding, policy}, want: true},
		"a binding alone":               {stored: []runtime.Object{binding}},
		"a policy, the webhook unread":  {stored: []runtime.Object{binding, policy}, forbidden: []string{webhooks}, want: true},
		"no policy, the webhook unread": {forbidden: []string{webhooks}, says: "you may not get " + webhooks},
		"bindings unread":               {stored: []runtime.Object{binding, policy}, forbidden: []string{bindings}, says: "you may not get " + bindings},
		"both unread":                   {forbidden: []string{webhooks, bindings}, says: "you may not get " + webhooks + ".admissionregistration.k8s.io, and you may not get " + bindings},
		"policies unread":               {stored: []runtime.Object{binding, policy}, forbidden: []string{policies}, says: "you may not get " + policies},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.stored...)
			for _, resource := range test.forbidden {
				client.PrependReactor("get", resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), protection.Enforcer, errors.New("no"))
				})
			}
			d := &Facts{client: client}
			labelled := &inventory.Object{
				Labels:   inventory.Labels{{Name: protection.Label, Value: string(protection.Cascading)}},
				Resource: &inventory.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}},
			}
			p, err := d.Protection(t.Context(), labelled)
			if p.Enforced != test.want || (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%t, %v; want %t, %q", p.Enforced, err, test.want, test.says)
			}
		})
	}
}

// Policies and webhooks that a user may not list are unknown, and the reason names the right.
func TestAdmissionThatMayNotBeListed(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no"))
	})
	facts := inventory.NewFacts()
	facts.AllPolicies()
	facts.AllWebhooks()
	(&Facts{client: client}).Read(t.Context(), facts.Needs(), facts)
	const of = ".admissionregistration.k8s.io"
	if got, want := facts.AllPolicies().Unread, "you may not list validatingadmissionpolicybindings"+of; got != want {
		t.Errorf("policies: %q, want %q", got, want)
	}
	if got, want := facts.AllWebhooks().Unread, "you may not list validatingwebhookconfigurations"+of; got != want {
		t.Errorf("webhooks: %q, want %q", got, want)
	}
}
