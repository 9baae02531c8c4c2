package apiserver_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// behindService serves HTTPS with a certificate for a service hook in a namespace, and returns the port.
// The service has the external name localhost: EndpointSlices may not contain loopback addresses.
func (s *server) behindService(t *testing.T, namespace string, handler http.HandlerFunc) int32 {
	t.Helper()
	certificate, err := auth.NewServingCertificate(s.authority, net.IPv4(192, 0, 2, 1), clock.RealClock{}, func(err error) { t.Error(err) }, "hook."+namespace+".svc")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate.CurrentCertKeyContent())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(at.Port(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	_, err = typed(t, s.config).CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}

// inService is the configuration of a webhook in a service.
func (s *server) inService(namespace, name string, port int32) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{
		CABundle: s.authority.Certificate(),
		Service:  &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: name, Port: &port, Path: new("/review")},
	}
}

// validates registers a webhook that validates new ConfigMaps of a namespace.
func (s *server) validates(t *testing.T, namespace string, client admissionregistrationv1.WebhookClientConfig, change func(*admissionregistrationv1.ValidatingWebhook)) {
	t.Helper()
	hook := admissionregistrationv1.ValidatingWebhook{
		Name: "hook.example.com", ClientConfig: client, Rules: writes(s.configMaps(t, namespace), admissionregistrationv1.Create),
		NamespaceSelector: inNamespace(namespace), SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
	}
	if change != nil {
		change(&hook)
	}
	configurations := typed(t, s.config).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	created, err := configurations.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: unique("hook")}, Webhooks: []admissionregistrationv1.ValidatingWebhook{hook},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := configurations.Delete(context.WithoutCancel(t.Context()), created.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// answers serves admission reviews.
func answers(t *testing.T, answer func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			t.Errorf("the webhook gets no review: %v", err)
			return
		}
		review.Response = answer(r, review.Request)
		review.Response.UID = review.Request.UID
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}
}

func denies(message string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message}}
}

// refusedWith waits until new ConfigMaps are refused with an error of that kind.
func (s *server) refusedWith(t *testing.T, namespace string, is func(error) bool, parts ...string) {
	t.Helper()
	c := s.configMaps(t, namespace)
	eventually.Agrees(t, func() string {
		_, err := c.tryPost(c.named(unique("a")))
		for _, part := range parts {
			if err == nil || !is(err) || !strings.Contains(err.Error(), part) {
				return errText(err) + ", want " + part
			}
		}
		return ""
	})
}

// accepted waits until a ConfigMap can be created.
func (s *server) accepted(t *testing.T, namespace string) {
	t.Helper()
	c := s.configMaps(t, namespace)
	eventually.Agrees(t, func() string {
		_, err := c.tryPost(c.named(unique("a")))
		return errText(err)
	})
}

func TestWebhookInAService(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	namespace := s.namespace(t)
	port := s.behindService(t, namespace, answers(t, func(r *http.Request, a *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return denies(r.Method + " " + r.URL.Path + " as " + r.TLS.ServerName + ": " + string(a.Operation) + " by " + a.UserInfo.Username)
	}))
	s.validates(t, namespace, s.inService(namespace, "hook", port), nil)
	s.refusedWith(t, namespace, apierrors.IsForbidden, "denied the request: POST /review as hook."+namespace+".svc: CREATE by system:apiserver")
}

func TestMutatingWebhookInAService(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	namespace := s.namespace(t)
	port := s.behindService(t, namespace, answers(t, func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{
			Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch), Patch: []byte(`[{"op":"add","path":"/metadata/annotations","value":{"hooked":"yes"}}]`),
		}
	}))
	configurations := typed(t, s.config).AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := configurations.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: unique("hook")},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "hook.example.com", ClientConfig: s.inService(namespace, "hook", port), Rules: writes(s.configMaps(t, namespace), admissionregistrationv1.Create),
			NamespaceSelector: inNamespace(namespace), SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		if s.configMaps(t, namespace).create(unique("a")).GetAnnotations()["hooked"] != "yes" {
			return "the webhook is not called"
		}
		return ""
	})
}

// The failure policy decides about requests whose webhook cannot be reached, and the error contains a
// remedy.
func TestFailurePolicyOfAWebhookInAService(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	for name, test := range map[string]struct {
		service func(*testing.T, string) admissionregistrationv1.WebhookClientConfig
		says    []string
	}{
		"missing": {
			func(_ *testing.T, namespace string) admissionregistrationv1.WebhookClientConfig {
				return s.inService(namespace, "hook", 443)
			},
			[]string{"service/hook in", "is not present", "create the service"},
		},
		"without endpoints": {
			func(t *testing.T, namespace string) admissionregistrationv1.WebhookClientConfig {
				_, err := typed(t, s.config).CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return s.inService(namespace, "hook", 443)
			},
			[]string{"service/hook in", "cannot find endpointslices", "wait until a pod of the service is ready"},
		},
		"slow": {
			func(t *testing.T, namespace string) admissionregistrationv1.WebhookClientConfig {
				return s.inService(namespace, "hook", s.behindService(t, namespace, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client disconnects
					<-r.Context().Done()
				}))
			},
			[]string{"context deadline exceeded"},
		},
		"under another name": {
			func(t *testing.T, namespace string) admissionregistrationv1.WebhookClientConfig {
				other := s.namespace(t)
				port := s.behindService(t, other, answers(t, func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					return denies("reached")
				}))
				_, err := typed(t, s.config).CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return s.inService(namespace, "hook", port)
			},
			[]string{"certificate is valid for"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closed, open := s.namespace(t), s.namespace(t)
			within := func(policy admissionregistrationv1.FailurePolicyType) func(*admissionregistrationv1.ValidatingWebhook) {
				return func(w *admissionregistrationv1.ValidatingWebhook) {
					w.FailurePolicy, w.TimeoutSeconds = &policy, new(int32(1))
				}
			}
			s.validates(t, closed, test.service(t, closed), within(admissionregistrationv1.Fail))
			s.refusedWith(t, closed, apierrors.IsInternalError, append(test.says, `failed calling webhook "hook.example.com"`)...)
			s.validates(t, open, test.service(t, open), within(admissionregistrationv1.Ignore))
			s.accepted(t, open)
		})
	}
}

// An aggregated API server may have webhooks of its own, which are reached like its resources.
func TestWebhookInAnAggregatedServer(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	group := "hooks.example.com"
	port := s.behindService(t, metav1.NamespaceDefault, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			answers(t, func(r *http.Request, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				return denies("by " + r.URL.Path + " for " + r.Header.Get("X-Remote-User"))
			})(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"kind":"APIResourceList","groupVersion":"` + group + `/v1","resources":[]}`))
	})
	s.register(t, group, "hook", "https://localhost:"+strconv.Itoa(int(port)), map[string]any{"caBundle": s.authority.Certificate()})
	s.becomes(t, "v1."+group, "True Passed")
	own := s.inService(metav1.NamespaceDefault, "kubernetes", 443)
	own.Service.Path = new("/apis/" + group + "/v1/reviews")
	allowed := s.namespace(t)
	s.validates(t, allowed, own, nil)
	s.refusedWith(t, allowed, apierrors.IsForbidden, "denied the request: by /apis/"+group+"/v1/reviews for system:apiserver")

	elsewhere := s.inService(metav1.NamespaceDefault, "kubernetes", 443)
	elsewhere.Service.Path = new("/api/v1/namespaces")
	refused := s.namespace(t)
	s.validates(t, refused, elsewhere, nil)
	s.refusedWith(t, refused, apierrors.IsInternalError, "aggregated API servers only", "/api/v1/namespaces")
}

// convert answers conversion reviews: it changes the version, and records the original one.
func convert(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(raw.Raw); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = unstructured.SetNestedField(o.Object, o.GetAPIVersion(), "spec", "was")
		o.SetAPIVersion(review.Request.DesiredAPIVersion)
		answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Object: o})
	}
	review.Response, review.Request = answer, nil
	_ = json.NewEncoder(w).Encode(review)
}

// A webhook in a service converts custom resources. When it is unavailable, requests fail with its reason.
func TestConversionInAService(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	namespace := s.namespace(t)
	port := s.behindService(t, namespace, convert)
	group := unique("g") + ".coppice.dev"
	d := definition(group, "things", "Thing")
	spec := d["spec"].(map[string]any)
	older := spec["versions"].([]any)[0].(map[string]any)
	newer := map[string]any{"name": "v2", "served": true, "storage": false, "schema": older["schema"]}
	spec["versions"] = []any{older, newer}
	spec["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig": map[string]any{
			"caBundle": s.authority.Certificate(),
			"service":  map[string]any{"namespace": namespace, "name": "hook", "port": int64(port), "path": "/convert"},
		},
	}}
	s.define(t, d)
	first, second := s.collection(t, gvk(group, "v1", "Thing"), "things", namespace, nil), s.collection(t, gvk(group, "v2", "Thing"), "things", namespace, nil)
	first.create("a")
	converted := func() string {
		got, err := second.send(http.MethodGet, second.at("a"), "", nil)
		if err != nil {
			return err.Error()
		}
		was, _, _ := unstructured.NestedString(got.Object, "spec", "was")
		return got.GetAPIVersion() + " was " + was
	}
	if got, want := converted(), group+"/v2 was "+group+"/v1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	list, err := second.send(http.MethodGet, second.path, "", nil)
	if items, _, _ := unstructured.NestedSlice(list.Object, "items"); err != nil || len(items) != 1 {
		t.Errorf("the list has %d items, %v", len(items), err)
	}

	services := typed(t, s.config).CoreV1().Services(namespace)
	if err := services.Delete(t.Context(), "hook", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		if got := converted(); !strings.Contains(got, "conversion webhook for") || !strings.Contains(got, "is not present: create the service") {
			return got
		}
		return ""
	})
	// Objects that need no conversion are served nevertheless.
	if _, err := first.patch("a", types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}); err != nil {
		t.Error(err)
	}
}
