// Package auth issues the certificates of a control plane, and assembles its authentication and
// authorization.
//
// A control plane has one certificate authority, created on its first start and kept with mode 0600 in its
// data directory, so that a kubeconfig stays valid across restarts. Beside it is another one for requests
// to aggregated API servers (FrontProxy). The serving certificate and the administrator's certificate are
// issued on each start, and again when a third of their year is left. They are kept in memory; only the
// kubeconfig contains a copy of the administrator's.
package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/serviceaccounttoken"
	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
)

const (
	// AdminUser is the common name of the administrator's certificate.
	AdminUser = "coppice-admin"

	authorityFile = "ca.crt"
	authorityKey  = "ca.key"

	certValidity = 365 * 24 * time.Hour
	// clockSkew is how far a client's clock may be behind.
	clockSkew = 5 * time.Minute
)

// Pair is a certificate with its key, both in PEM.
type Pair struct {
	Certificate []byte
	Key         []byte
	// Due is when the certificate should be replaced, well before it expires.
	Due time.Time
}

// Authority issues the certificates of one control plane.
type Authority struct {
	pem        []byte
	cert       *x509.Certificate
	key        crypto.Signer
	tokens     *serviceaccounttoken.Key
	frontProxy *FrontProxy
	now        func() time.Time
}

// authorityFiles are the common name and the files of an authority.
type authorityFiles struct{ name, certificate, key string }

func mainAuthority() authorityFiles { return authorityFiles{"coppice-ca", authorityFile, authorityKey} }

// LoadAuthority reads the authority, the authority of the front proxy, and the key of service account
// tokens from dir, or creates them if they do not exist. It creates the directory with mode 0700, and keys
// with mode 0600.
func LoadAuthority(dir string, now func() time.Time) (*Authority, error) {
	a, err := loadAuthority(dir, mainAuthority(), now)
	if err != nil {
		return nil, err
	}
	proxies, err := loadAuthority(dir, frontProxyAuthority(), now)
	if err != nil {
		return nil, err
	}
	a.frontProxy = &FrontProxy{authority: proxies}
	a.tokens, err = serviceaccounttoken.LoadKey(dir, now)
	return a, err
}

// ServiceAccounts returns the key of service account tokens.
func (a *Authority) ServiceAccounts() *serviceaccounttoken.Key { return a.tokens }

func loadAuthority(dir string, files authorityFiles, now func() time.Time) (*Authority, error) {
	certPath, keyPath := filepath.Join(dir, files.certificate), filepath.Join(dir, files.key)
	certPEM, err := os.ReadFile(certPath)
	if errors.Is(err, fs.ErrNotExist) {
		return createAuthority(dir, files, now)
	}
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	keyPEM, err := keyfile.Load(keyPath)
	if err != nil {
		return nil, fmt.Errorf("read the key of the certificate authority: %w", err)
	}
	certs, err := certutil.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", certPath, err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", keyPath, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("parse %s: a %T cannot sign", keyPath, key)
	}
	if end := certs[0].NotAfter; !now().Before(end) {
		return nil, fmt.Errorf("the certificate authority in %s expired at %s: remove it and its key to have a new one created; all kubeconfigs then have to be replaced", certPath, end.Format(time.RFC3339))
	}
	return &Authority{pem: certPEM, cert: certs[0], key: signer, now: now}, nil
}

func createAuthority(dir string, files authorityFiles, now func() time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of the certificate authority: %w", err)
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: files.name, NotBefore: now().Add(-clockSkew).UTC()}, key)
	if err != nil {
		return nil, fmt.Errorf("create the certificate authority: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of the certificate authority: %w", err)
	}
	a := &Authority{pem: encodeCertificate(cert.Raw), cert: cert, key: key, now: now}
	// The key is written first: a certificate without its key would look like a complete authority.
	if err := keyfile.Store(filepath.Join(dir, files.key), keyPEM); err != nil {
		return nil, fmt.Errorf("write the key of the certificate authority: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, files.certificate), a.pem, 0o600); err != nil {
		return nil, fmt.Errorf("write the certificate authority: %w", err)
	}
	return a, nil
}

// Fingerprint returns the SHA-256 of the authority's certificate in hexadecimal.
func (a *Authority) Fingerprint() string { return fmt.Sprintf("%x", sha256.Sum256(a.cert.Raw)) }

// Certificate returns the authority's own certificate in PEM.
func (a *Authority) Certificate() []byte { return a.pem }

// Serving issues the serving certificate of the API server, valid for the address, the additional names and
// addresses, loopback, and the server's names inside a cluster.
func (a *Authority) Serving(address net.IP, also ...string) (Pair, error) {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if address != nil && !address.IsUnspecified() && !address.IsLoopback() {
		ips = append(ips, address)
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	for _, name := range also {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, name)
		}
	}
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "coppice-apiserver"},
		DNSNames:    names,
		IPAddresses: ips,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// Admin issues a client certificate in group system:masters.
func (a *Authority) Admin() (Pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: AdminUser, Organization: []string{user.SystemPrivilegedGroup}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Component issues the client certificate of a component in another process, a user in no group.
func (a *Authority) Component(name string) (Pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Node issues the certificate of a node in a process of its own: its client certificate to the
// API server, and the serving certificate of its agent, valid for NodeServingName only.
func (a *Authority) Node(name string) (Pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: bootstrappolicy.NodeUserPrefix + name, Organization: []string{user.NodesGroup}},
		DNSNames:    []string{NodeServingName(name)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
}

// subordinate issues an authority that signs client certificates, and no further authorities.
func (a *Authority) subordinate(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key for %s: %w", name, err)
	}
	now := a.now()
	certificate, err := a.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(certValidity),
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key.Public())
	if err != nil {
		return nil, err
	}
	parsed, err := certutil.ParseCertsPEM(certificate)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate of %s: %w", name, err)
	}
	return &Authority{pem: certificate, cert: parsed[0], key: key, now: a.now}, nil
}

func (a *Authority) issue(template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate a key for %s: %w", template.Subject.CommonName, err)
	}
	now := a.now()
	template.NotBefore, template.NotAfter = now.Add(-clockSkew), now.Add(certValidity)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	certificate, err := a.Sign(template, key.Public())
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode the key of %s: %w", template.Subject.CommonName, err)
	}
	return Pair{Certificate: certificate, Key: keyPEM, Due: dueAt(now, template.NotAfter)}, nil
}

// Sign issues a certificate in PEM from the template, for the public key of another party. It sets the
// serial number in the template, and limits its validity to the end of the authority's.
func (a *Authority) Sign(template *x509.Certificate, publicKey any) ([]byte, error) {
	if end := a.cert.NotAfter; !a.now().Before(end) {
		return nil, fmt.Errorf("the certificate authority expired at %s", end.Format(time.RFC3339))
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, fmt.Errorf("choose a serial number: %w", err)
	}
	template.SerialNumber = serial
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter // it must not outlive its issuer
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, publicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for %s: %w", template.Subject.CommonName, err)
	}
	return encodeCertificate(der), nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
}
