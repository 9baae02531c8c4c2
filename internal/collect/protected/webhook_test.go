package protected

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

func post(t *testing.T, h Webhook, body string) (int, *admissionv1.AdmissionReview) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, WebhookPath, strings.NewReader(body)))
	review := &admissionv1.AdmissionReview{}
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), review); err != nil {
			t.Fatal(err)
		}
	}
	return w.Code, review
}

// The webhook decides by the label and the deleting user, and by nothing else; it refuses requests that
// it cannot read.
func TestR28_WebhookDecidesByLabelAndUser(t *testing.T) {
	h := Webhook{Collector: "system:serviceaccount:elsewhere:gc", Checker: installedAt(installed), Now: time.Now, Reviews: kubernetesfake.NewClientset().AuthorizationV1().SubjectAccessReviews()}
	for name, test := range map[string]struct {
		request admissionv1.AdmissionRequest
		object  string
		refused bool
	}{
		"always":    {admissionv1.AdmissionRequest{Operation: admissionv1.Delete}, `{"metadata":{"name":"a","labels":{"coppice.dev/protect":"always"}}}`, true},
		"a value":   {admissionv1.AdmissionRequest{Operation: admissionv1.Delete}, `{"metadata":{"name":"a","labels":{"coppice.dev/protect":""}}}`, true},
		"cascading": {admissionv1.AdmissionRequest{Operation: admissionv1.Delete}, `{"metadata":{"name":"a","labels":{"coppice.dev/protect":"cascading"}}}`, false},
		"another":   {admissionv1.AdmissionRequest{Operation: admissionv1.Delete}, `{"metadata":{"name":"a","labels":{"app":"web"}}}`, false},
		"a list that is broken": {
			admissionv1.AdmissionRequest{Operation: admissionv1.Delete},
			`{"metadata":{"name":"a","labels":{"coppice.dev/protect":"outlives"},"annotations":{"coppice.dev/outlives":"web"}}}`, true,
		},
		"unknown finalizer": {
			admissionv1.AdmissionRequest{Operation: admissionv1.Delete},
			`{"metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"coppice.dev/protect":"outlives"},"annotations":{"coppice.dev/outlives":"[{\"finalizer\":\"acme.io/x\"}]"}}}`, true,
		},
		"terminating": {
			admissionv1.AdmissionRequest{Operation: admissionv1.Delete},
			`{"metadata":{"name":"a","deletionTimestamp":"2026-01-01T00:00:00Z","labels":{"coppice.dev/protect":"always"}}}`, false,
		},
		"no object": {admissionv1.AdmissionRequest{Operation: admissionv1.Delete}, `[]`, true},
		"an update": {admissionv1.AdmissionRequest{Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: []byte(`{}`)}}, `{"metadata":{"name":"a","labels":{"coppice.dev/protect":"always"}}}`, false},
	} {
		test.request.UID, test.request.OldObject = "1", runtime.RawExtension{Raw: []byte(test.object)}
		for _, user := range []string{"ann", "system:serviceaccount:kube-system:generic-garbage-collector", h.Collector} {
			test.request.UserInfo.Username = user
			body, err := json.Marshal(admissionv1.AdmissionReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &test.request,
			})
			if err != nil {
				t.Fatal(err)
			}
			code, review := post(t, h, string(body))
			want := test.refused || name == "cascading" && user != "ann"
			if code != http.StatusOK || review.Response == nil || review.Response.UID != "1" || review.Response.Allowed == want {
				t.Errorf("%s, user %s: %d %+v, want refused %t", name, user, code, review.Response, want)
				continue
			}
			if want && (review.Response.Result.Code != http.StatusForbidden || !strings.Contains(review.Response.Result.Message, protection.Label)) {
				t.Errorf("%s: %+v", name, review.Response.Result)
			}
		}
	}
	for _, body := range []string{"", "{}", `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}`} {
		if code, _ := post(t, h, body); code != http.StatusBadRequest {
			t.Errorf("%q is answered with %d", body, code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, WebhookPath, http.NoBody))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a GET is answered with %d", w.Code)
	}
}

// pod is a client whose reads end with an error.
type pod struct {
	metadata.Interface // any other request causes a nil dereference
	metadata.Getter

	err error
}

// Resource implements metadata.Interface.
func (p pod) Resource(schema.GroupVersionResource) metadata.Getter { return p }

// Namespace implements metadata.Getter.
func (p pod) Namespace(string) metadata.ResourceInterface { return p }

// Get implements metadata.ResourceInterface.
func (p pod) Get(context.Context, string, metav1.GetOptions, ...string) (*metav1.PartialObjectMetadata, error) {
	return nil, p.err
}

// R28, R32: the eviction of a pod that does not exist is left to the server. A 404 of a load balancer does not say that.
func TestR28_EvictedPodIsGoneIfTheServerSaysSo(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	request := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Name: "a", Namespace: "shop", Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, SubResource: "eviction",
	}
	for name, test := range map[string]struct {
		err    error
		isLeft bool
	}{
		"gone":     {apierrors.NewNotFound(pods, "a"), true},
		"a page":   {apierrors.NewGenericServerResponse(http.StatusNotFound, "get", pods, "a", "default backend", 0, true), false},
		"no right": {apierrors.NewForbidden(pods, "a", nil), false},
	} {
		protects := Webhook{Outlived: Lookup{Metadata: pod{err: test.err}}}.decide(t.Context(), request)
		confirms := ConfirmWebhook{Objects: pod{err: test.err}}.decide(t.Context(), request)
		if (protects == nil) != test.isLeft || (confirms == nil) != test.isLeft {
			t.Errorf("%s: protection: %v; confirmation: %v", name, protects, confirms)
		}
	}
}
