package system

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/web"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// reviewed is a user that an API server names in a review: it lists the objects of walkProtect that this user may
// read.
type reviewed struct {
	groups                      []string
	secret, settings, finalizer bool
}

func reviewedUsers() map[string]reviewed {
	return map[string]reviewed{
		"system:anonymous":                      {groups: []string{"system:unauthenticated"}},
		"bob":                                   {},
		"ann":                                   {settings: true}, // a reader of one namespace, but not of Secrets
		adminToken:                              {groups: []string{"system:masters"}, secret: true, settings: true, finalizer: true},
		bootstrappolicy.NodeUserPrefix + "na":   {groups: []string{"system:nodes"}},
		bootstrappolicy.Collector:               {secret: true, settings: true, finalizer: true}, // their metadata, and the webhook reads no more
		bootstrappolicy.NamespaceController:     {secret: true, settings: true, finalizer: true},
		bootstrappolicy.Scheduler:               {},
		"system:kube-scheduler":                 {},
		"system:kube-controller-manager":        {secret: true, settings: true, finalizer: true}, // by its role, in upstream's clusters, too
		"system:serviceaccount:default:default": {groups: []string{"system:serviceaccounts", "system:serviceaccounts:default"}},
	}
}

// walkProtect sends reviews for every identity to the webhook of a collector: the answers about an entry of
// coppice.dev/outlives depend on the existence of the object only if the user may read it. internal/cli has the test
// for callers of the webhook: it answers API servers only.
func walkProtect(ctx context.Context, t *testing.T, client kubernetes.Interface, handler http.Handler) error {
	t.Helper()
	const carried = "acme.io/carried"
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings", Finalizers: []string{carried}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	installed, err := installWebhook(ctx, client)
	if err != nil {
		return err
	}
	created := metav1.NewTime(installed.Add(2 * protection.Margin)) // the webhook has checked its entries
	pairs := map[string][2]protection.Outlived{                     // one that exists and one that does not
		"secret":    {{APIVersion: "v1", Kind: "Secret", Name: secretName}, {APIVersion: "v1", Kind: "Secret", Name: "absent"}},
		"settings":  {{APIVersion: "v1", Kind: "ConfigMap", Name: "settings"}, {APIVersion: "v1", Kind: "ConfigMap", Name: "absent"}},
		"finalizer": {{Finalizer: carried}, {Finalizer: "acme.io/absent"}},
	}
	eventually.Agrees(t, func() string {
		if reviewDelete(t, handler, created, adminToken, []string{"system:masters"}, pairs["finalizer"][0]) == "" {
			return "the collector has not observed the finalizer"
		}
		return ""
	})
	eventually.Agrees(t, func() string {
		if reviewDelete(t, handler, created, "ann", nil, pairs["settings"][1]) != "" {
			return "the server has not observed the rights of ann"
		}
		return ""
	})
	for who, user := range reviewedUsers() {
		reads := map[string]bool{"secret": user.secret, "settings": user.settings, "finalizer": user.finalizer}
		for what, pair := range pairs {
			there := reviewDelete(t, handler, created, who, user.groups, pair[0])
			absent := reviewDelete(t, handler, created, who, user.groups, pair[1])
			if differ := there != absent; differ != reads[what] {
				t.Errorf("the webhook answers %s about a %s that is there %q, and about one that is absent %q", who, what, there, absent)
			}
			if there == "" {
				t.Errorf("the webhook lets %s delete what outlives a %s that is there", who, what)
			}
		}
	}
	for _, path := range []string{"/", web.Status, web.Records, web.Settled, web.Graph, "/metrics", api.Component, api.Explain, protected.WebhookPath + "/more"} {
		if code, body := ask(t, handler, http.MethodGet, path, ""); code != http.StatusNotFound {
			t.Errorf("the port of the webhook answers at %s: %d %s", path, code, body)
		}
	}
	return nil
}

// installWebhook creates the webhook's configuration and returns its creation time. The server never calls the webhook:
// no object has the label.
func installWebhook(ctx context.Context, client kubernetes.Interface) (time.Time, error) {
	url, none := "https://127.0.0.1:1/", admissionregistrationv1.SideEffectClassNone
	rule := admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}}
	configuration, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: protection.Enforcer},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:           "write.protect.coppice.dev",
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{protection.Label: string(protection.Outlives)}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}, Rule: rule,
			}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	return configuration.GetCreationTimestamp().Time, err
}

// reviewDelete reviews whether a user may delete an object that outlives another one. It returns the refusal, without
// the name of the other one.
func reviewDelete(t *testing.T, handler http.Handler, created metav1.Time, user string, groups []string, other protection.Outlived) string {
	t.Helper()
	list, err := protection.FormatOutlives([]protection.Outlived{other})
	if err != nil {
		t.Fatal(err)
	}
	object, err := json.Marshal(metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "kept", CreationTimestamp: created, Labels: map[string]string{protection.Label: "outlives"}, Annotations: map[string]string{protection.Annotation: list},
	}})
	if err != nil {
		t.Fatal(err)
	}
	question, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Delete, Name: "kept", Namespace: "default", OldObject: runtime.RawExtension{Raw: object},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			UserInfo: authenticationv1.UserInfo{Username: user, Groups: append(groups, "system:authenticated")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	code, body := ask(t, handler, http.MethodPost, protected.WebhookPath, string(question))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(body), &review); err != nil || review.Response == nil {
		t.Fatalf("the webhook answers %d %s: %v", code, body, err)
	}
	if review.Response.Allowed {
		return ""
	}
	for _, name := range []string{other.Name, other.Finalizer} {
		if name != "" {
			body = strings.ReplaceAll(review.Response.Result.Message, name, "NAME")
		}
	}
	return fmt.Sprint(review.Response.Result.Code, " ", body)
}

func ask(t *testing.T, handler http.Handler, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}
