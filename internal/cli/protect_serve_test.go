package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// issue returns a certificate of an issuer, or a self-signed authority if issuer is nil.
func issue(t *testing.T, issuer *tls.Certificate) *tls.Certificate {
	t.Helper()
	return issueTo(t, issuer, "")
}

// issueTo returns a certificate with a name.
func issueTo(t *testing.T, issuer *tls.Certificate, name string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: issuer == nil, Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, any(key)
	if issuer != nil {
		parent, signer = issuer.Leaf, issuer.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pem")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// reviewOfDelete is the review of a request by ann to delete an object that outlives a Secret.
const reviewOfDelete = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"DELETE",
	"userInfo":{"username":"ann"},"resource":{"version":"v1","resource":"configmaps"},"name":"kept","namespace":"shop",
	"oldObject":{"metadata":{"name":"kept","creationTimestamp":"2026-01-01T00:00:00Z","namespace":"shop","labels":{"coppice.dev/protect":"outlives"},
		"annotations":{"coppice.dev/outlives":"[{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"name\":\"key\"}]"}}}}}`

// protectingSecrets returns the webhook of a cluster with Secrets that no user may read. It calls asked for each
// SubjectAccessReview.
func protectingSecrets(t *testing.T, asked func()) http.Handler {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	client := kubernetesfake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked()
		return true, &authorizationv1.SubjectAccessReview{}, nil
	})
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return protected.Webhook{
		Checker: func(context.Context) protection.Checker { return protection.Checker{UID: "c", Since: time.Unix(0, 0)} }, Now: time.Now,
		Outlived: protected.Lookup{Mapper: mapper, Metadata: metadatafake.NewSimpleMetadataClient(scheme)}, Reviews: client.AuthorizationV1().SubjectAccessReviews(),
	}
}

// callersOfCluster returns identities of a cluster that may reach the port of the webhook.
func callersOfCluster() []string {
	return []string{
		"system:anonymous", "bob", "ann", "admin", "system:node:na", "system:coppice:collector", "system:coppice:namespace-controller",
		"system:kube-controller-manager", "system:serviceaccount:coppice-system:coppice",
	}
}

// R28: the webhook answers only callers with a certificate of the authority for API servers. A token, or a certificate
// of another authority, does not help.
func TestR28_WebhookAnswersAPIServersOnly(t *testing.T) {
	authority, another, serving := issue(t, nil), issue(t, nil), issue(t, nil)
	key, err := x509.MarshalPKCS8PrivateKey(serving.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	f := &protectServer{
		certFile: writePEM(t, "CERTIFICATE", serving.Certificate[0]), keyFile: writePEM(t, "PRIVATE KEY", key),
		callersFile: writePEM(t, "CERTIFICATE", authority.Certificate[0]),
	}
	asked := 0 // the number of SubjectAccessReviews of the webhook
	handler := protectingSecrets(t, func() { asked++ })
	served := httptest.NewUnstartedServer(handler)
	served.Listener = tls.NewListener(served.Listener, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: f.tls})
	served.Start()
	t.Cleanup(served.Close)
	roots := x509.NewCertPool()
	roots.AddCert(serving.Leaf)
	type caller struct {
		certificate *tls.Certificate
		answered    bool
	}
	callers := map[string]caller{
		"an API server":     {issue(t, authority), true},
		"nobody":            {&tls.Certificate{}, false},
		"another authority": {issue(t, another), false},
		"self-signed":       {issue(t, nil), false},
	}
	for _, who := range callersOfCluster() {
		callers["the token of "+who] = caller{&tls.Certificate{}, false}
		callers["the cluster's certificate of "+who] = caller{issueTo(t, another, who), false}
	}
	for name, test := range callers {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			RootCAs: roots, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return test.certificate, nil },
		}}}
		asked = 0
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+served.Listener.Addr().String()+protected.WebhookPath, strings.NewReader(reviewOfDelete))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+name)
		response, err := client.Do(request)
		if (err == nil) != test.answered {
			t.Errorf("%s: %v, want an answer %t", name, err, test.answered)
		}
		if (asked > 0) != test.answered {
			t.Errorf("%s: the webhook asked for rights %d times, want it to only if it answers: %t", name, asked, test.answered)
		}
		if err != nil {
			continue
		}
		var review admissionv1.AdmissionReview
		err = json.NewDecoder(response.Body).Decode(&review)
		_ = response.Body.Close()
		if err != nil || review.Response == nil || review.Response.UID != "1" || review.Response.Allowed {
			t.Errorf("%s: answered %+v, %v", name, review.Response, err)
		}
	}
	if err := os.WriteFile(f.callersFile, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.tls(nil); err == nil {
		t.Error("a file without a certificate is taken for an authority")
	}
}
