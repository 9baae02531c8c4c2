package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// issue returns a certificate of an issuer, or its own authority.
func issue(t *testing.T, issuer *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: issuer == nil,
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

// R28: the webhook answers nobody but callers with a certificate of the authority for API servers.
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
	served := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	served.Listener = tls.NewListener(served.Listener, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: f.tls})
	served.Start()
	t.Cleanup(served.Close)
	roots := x509.NewCertPool()
	roots.AddCert(serving.Leaf)
	for name, test := range map[string]struct {
		certificate *tls.Certificate
		answered    bool
	}{
		"an API server":     {issue(t, authority), true},
		"nobody":            {&tls.Certificate{}, false},
		"another authority": {issue(t, another), false},
		"self-signed":       {issue(t, nil), false},
	} {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			RootCAs: roots, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return test.certificate, nil },
		}}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+served.Listener.Addr().String()+"/protect", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		if (err == nil) != test.answered {
			t.Errorf("%s: %v, want an answer %t", name, err, test.answered)
		}
	}
	if err := os.WriteFile(f.callersFile, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.tls(nil); err == nil {
		t.Error("a file without a certificate is taken for an authority")
	}
}
