package auth

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"
)

// The serving certificate of a node is valid for that node and for no host name, whatever the name of the
// node.
func TestNodeServesAsItselfOnly(t *testing.T) {
	a := newAuthority(t)
	for _, node := range []string{"worker", "localhost", "kubernetes.default.svc", "127.0.0.1"} {
		pair, err := a.Node(node)
		if err != nil {
			t.Fatal(err)
		}
		certificate := parse(t, pair)
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			if _, err := certificate.Verify(x509.VerifyOptions{
				Roots: pool(a), CurrentTime: testNow(), DNSName: NodeServingName(node), KeyUsages: []x509.ExtKeyUsage{usage},
			}); err != nil {
				t.Errorf("node %s: %v", node, err)
			}
		}
		for _, name := range []string{node, NodeServingName("other"), "localhost", "kubernetes", "127.0.0.1", "system", "*"} {
			if certificate.VerifyHostname(name) == nil {
				t.Errorf("the certificate of node %s is good for %s", node, name)
			}
		}
	}
	for _, other := range []*x509.Certificate{serving(t, a, nil), admin(t, a)} {
		if other.VerifyHostname(NodeServingName("worker")) == nil {
			t.Errorf("the certificate of %s is good for a node", other.Subject)
		}
	}
}

// The certificate of the log reader is for clients only, and is replaced before it expires.
func TestLogReader(t *testing.T) {
	a := newAuthority(t)
	now := testNow()
	a.now = func() time.Time { return now }
	reader := NewLogReader(a)
	shown := func() *x509.Certificate {
		t.Helper()
		config, err := reader.TLS("worker")
		if err != nil {
			t.Fatal(err)
		}
		if config.ServerName != NodeServingName("worker") || config.InsecureSkipVerify || config.RootCAs == nil || len(config.Certificates) != 1 {
			t.Fatalf("%+v", config)
		}
		return config.Certificates[0].Leaf
	}
	first := shown()
	if first.Subject.CommonName != LogReaderUser || len(first.Subject.Organization) > 0 || !slices.Equal(first.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		t.Errorf("%s, %v", first.Subject, first.ExtKeyUsage)
	}
	now = now.Add(certValidity / 2)
	if !shown().Equal(first) {
		t.Error("it has another before it is due")
	}
	now = now.Add(certValidity / 4)
	if second := shown(); second.Equal(first) || !second.NotAfter.After(first.NotAfter) {
		t.Error("it has no other when it is due")
	}
}
