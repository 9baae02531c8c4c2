package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

func testNow() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	return load(t, t.TempDir())
}

func load(t *testing.T, dir string) *Authority {
	t.Helper()
	a, err := LoadAuthority(dir, testNow)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// parse returns a certificate, and checks that it belongs to the key.
func parse(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	if _, err := tls.X509KeyPair(p.Certificate, p.Key); err != nil {
		t.Fatal(err)
	}
	certs, err := certutil.ParseCertsPEM(p.Certificate)
	if err != nil || len(certs) != 1 {
		t.Fatalf("%d certificates, %v", len(certs), err)
	}
	return certs[0]
}

func pool(a *Authority) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Certificate())
	return roots
}

func serving(t *testing.T, a *Authority, address net.IP) *x509.Certificate {
	t.Helper()
	p, err := a.Serving(address)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, p)
}

func admin(t *testing.T, a *Authority) *x509.Certificate {
	t.Helper()
	p, err := a.Admin()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, p)
}

// The authority is created once: certificates from before a restart stay valid.
func TestAuthorityIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "pki")
	first := load(t, dir)
	second := load(t, dir)
	if string(first.Certificate()) != string(second.Certificate()) {
		t.Error("the second start has created another authority")
	}
	options := x509.VerifyOptions{Roots: pool(second), CurrentTime: testNow(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := admin(t, first).Verify(options); err != nil {
		t.Error(err)
	}
	if _, err := admin(t, second).Verify(options); err != nil {
		t.Error(err)
	}
	for path, mode := range map[string]os.FileMode{"": 0o700, authorityFile: 0o600, authorityKey: 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != mode {
			t.Errorf("%q has mode %o, want %o", path, got, mode)
		}
	}
}

// A start that was interrupted between the two files leaves a key without a certificate; the next start
// replaces both.
func TestAuthorityAfterInterruptedStart(t *testing.T) {
	dir := t.TempDir()
	load(t, dir)
	if err := os.Remove(filepath.Join(dir, authorityFile)); err != nil {
		t.Fatal(err)
	}
	a := load(t, dir)
	serving(t, a, nil)
	if again := load(t, dir); string(again.Certificate()) != string(a.Certificate()) {
		t.Error("it was not kept")
	}
}

func TestDamagedAuthorityIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		file, content string // no content: the file is missing
		says          string
	}{
		"no key":              {authorityKey, "", "read the key"},
		"key without meaning": {authorityKey, "nonsense", "parse"},
		"no certificate":      {authorityFile, "nonsense", "parse"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			load(t, dir)
			path := filepath.Join(dir, test.file)
			err := os.WriteFile(path, []byte(test.content), 0o600)
			if test.content == "" {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := LoadAuthority(dir, testNow); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
	t.Run("another key", func(t *testing.T) {
		dir, other := t.TempDir(), t.TempDir()
		load(t, dir)
		load(t, other)
		key, err := os.ReadFile(filepath.Join(other, authorityKey))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, authorityKey), key, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := LoadAuthority(dir, testNow)
		if err == nil {
			_, err = a.Admin()
		}
		if err == nil {
			t.Error("it issues certificates that cannot be verified")
		}
	})
	t.Run("no directory", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadAuthority(filepath.Join(file, "pki"), testNow); err == nil {
			t.Error("no error")
		}
	})
}

func TestServingCertificate(t *testing.T) {
	a := newAuthority(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	always := []string{"127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", host}
	for name, test := range map[string]struct {
		address net.IP
		more    []string
	}{
		"none":        {nil, nil},
		"loopback":    {net.IPv4(127, 0, 0, 1), nil},
		"unspecified": {net.IPv4zero, nil},
		"address":     {net.IPv4(192, 0, 2, 7), []string{"192.0.2.7"}},
		"IPv6":        {net.ParseIP("2001:db8::7"), []string{"2001:db8::7"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := serving(t, a, test.address)
			for _, name := range slices.Concat(always, test.more) {
				if err := c.VerifyHostname(name); err != nil {
					t.Error(err)
				}
			}
			if got, want := len(c.IPAddresses), 2+len(test.more); got != want {
				t.Errorf("%d addresses, want %d: %v", got, want, c.IPAddresses)
			}
			for _, name := range []string{"example.com", "0.0.0.0", "192.0.2.8"} {
				if c.VerifyHostname(name) == nil {
					t.Errorf("it is good for %s", name)
				}
			}
		})
	}
}

// Issued certificates are valid for a year from now, for one usage, and cannot sign others.
func TestIssuedCertificates(t *testing.T) {
	a := newAuthority(t)
	for name, test := range map[string]struct {
		cert       *x509.Certificate
		good, fail x509.ExtKeyUsage
	}{
		"serving": {serving(t, a, nil), x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		"admin":   {admin(t, a), x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	} {
		t.Run(name, func(t *testing.T) {
			verify := func(at time.Time, usage x509.ExtKeyUsage) error {
				_, err := test.cert.Verify(x509.VerifyOptions{Roots: pool(a), CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
				return err
			}
			for _, at := range []time.Time{testNow().Add(-clockSkew), testNow(), testNow().Add(certValidity)} {
				if err := verify(at, test.good); err != nil {
					t.Errorf("at %s: %v", at, err)
				}
			}
			for _, at := range []time.Time{testNow().Add(-clockSkew - time.Minute), testNow().Add(certValidity + time.Minute)} {
				if verify(at, test.good) == nil {
					t.Errorf("good at %s", at)
				}
			}
			if verify(testNow(), test.fail) == nil {
				t.Error("good for the other purpose")
			}
			if test.cert.IsCA {
				t.Error("it can issue certificates")
			}
		})
	}
	if first, second := admin(t, a), admin(t, a); first.SerialNumber.Cmp(second.SerialNumber) == 0 {
		t.Error("two certificates have one serial number")
	}
}

func TestAdminCertificate(t *testing.T) {
	subject := admin(t, newAuthority(t)).Subject
	if subject.CommonName != AdminUser || !slices.Equal(subject.Organization, []string{"system:masters"}) {
		t.Errorf("%v", subject)
	}
}

// A certificate for another party's key expires no later than the authority.
func TestSignedCertificateExpiresWithTheAuthority(t *testing.T) {
	now := testNow()
	a, err := LoadAuthority(t.TempDir(), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ann := func() *x509.Certificate {
		return &x509.Certificate{
			Subject: pkix.Name{CommonName: "ann"}, NotBefore: now, NotAfter: now.AddDate(20, 0, 0), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
	}
	signed, err := a.Sign(ann(), key.Public())
	if err != nil {
		t.Fatal(err)
	}
	certs, err := certutil.ParseCertsPEM(signed)
	if err != nil || len(certs) != 1 {
		t.Fatalf("%d certificates, %v", len(certs), err)
	}
	if !certs[0].NotAfter.Equal(a.cert.NotAfter) || !key.PublicKey.Equal(certs[0].PublicKey) || certs[0].Subject.CommonName != "ann" {
		t.Errorf("%s until %s for %v", certs[0].Subject, certs[0].NotAfter, certs[0].PublicKey)
	}
	if _, err := certs[0].Verify(x509.VerifyOptions{Roots: pool(a), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	now = a.cert.NotAfter
	if _, err := a.Sign(ann(), key.Public()); err == nil || !strings.Contains(err.Error(), "the certificate authority expired at") {
		t.Errorf("after its end: %v", err)
	}
}
