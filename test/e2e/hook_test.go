package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
)

// hook is an admission webhook: at the path /denies it denies each review, at /slow it does not answer until it is told
// to, and elsewhere it permits.
type hook struct {
	*httptest.Server

	authority string // the certificate of its authority, in base64

	mu     sync.Mutex
	asked  map[string]bool // namespace/name of the objects of slow reviews; guarded by mu
	closed chan struct{}   // ends the slow reviews; guarded by mu
}

// startHook starts a webhook whose certificate is also for the name of a service.
func startHook(t *testing.T, service string) *hook {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, []string{service})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	h := &hook{authority: base64.StdEncoding.EncodeToString(certificate), asked: map[string]bool{}, closed: make(chan struct{})}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(h.review))
	h.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	h.StartTLS()
	t.Cleanup(h.Close)
	t.Cleanup(h.answer)
	return h
}

func (h *hook) review(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprint("no review: ", err), http.StatusBadRequest)
		return
	}
	if r.URL.Path == "/slow" {
		select {
		case <-h.ask(review.Request.Namespace + "/" + review.Request.Name):
		case <-r.Context().Done():
			return
		}
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: r.URL.Path != "/denies", Result: &metav1.Status{Message: "no"}}
	_ = json.NewEncoder(w).Encode(review) // a client that has given up does not read it
}

// ask notes a slow review, and returns a channel that is closed when it is to be answered.
func (h *hook) ask(object string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked[object] = true
	return h.closed
}

// isAsked reports whether there was a slow review about an object.
func (h *hook) isAsked(namespace, name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[namespace+"/"+name]
}

// answer answers the slow reviews.
func (h *hook) answer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.closed)
	h.closed = make(chan struct{})
}
