package coppicetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificateLife is the validity of a user's certificate. No test takes as long.
const certificateLife = 24 * time.Hour

// User returns the path of a kubeconfig for a user with a certificate. Like any user, this one may
// do what RBAC grants to the name and the groups; system:masters may do everything.
func (p *Plane) User(t testing.TB, name string, groups ...string) (kubeconfig string) {
	t.Helper()
	path, err := p.user(name, groups)
	if err != nil {
		t.Fatalf("make user %s: %v", name, err)
	}
	return path
}

func (p *Plane) user(name string, groups []string) (string, error) {
	if p.dir == "" {
		return "", errors.New("the plane is attached to a server whose certificate authority is not known here")
	}
	authority, err := tls.LoadX509KeyPair(filepath.Join(p.dir, "pki", "ca.crt"), filepath.Join(p.dir, "pki", "ca.key"))
	if err != nil {
		return "", fmt.Errorf("read the certificate authority: %w", err)
	}
	certificate, key, err := issue(authority, name, groups, time.Now())
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(p.dir, "user-*.kubeconfig")
	if err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	who := access{server: p.Host, authority: p.CertificateAuthority, certificate: certificate, key: key}
	return file.Name(), writeKubeconfig(file.Name(), name, who)
}

// issue returns a certificate for a user, and its key, as PEM.
func issue(authority tls.Certificate, name string, groups []string, now time.Time) (certificate, key []byte, err error) {
	issuer, err := x509.ParseCertificate(authority.Certificate[0])
	if err != nil {
		return nil, nil, fmt.Errorf("parse the certificate authority: %w", err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, nil, fmt.Errorf("make a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, private.Public(), authority.PrivateKey)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the certificate: %w", err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), nil
}
