package realserver

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"text/template"
	"time"
)

// validity is how long the certificates are good for: longer than any run.
const validity = 24 * time.Hour

// The files with keys and certificates, in a server's directory.
const (
	authorityFile    = "ca.crt"
	servingFile      = "serving.crt"
	servingKeyFile   = "serving.key"
	accountsFile     = "service-accounts.key"
	accountsPubFile  = "service-accounts.pub"
	kubeconfigFile   = "kubeconfig"
	administratorsOU = "system:masters"
)

// pair is a certificate and its key, in PEM.
type pair struct{ Certificate, Key []byte }

// authority signs the certificates of one server.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// writeKeys makes all keys and certificates that a kube-apiserver needs, and
// returns the administrator's.
func writeKeys(dir string) (admin pair, ca []byte, err error) {
	signer, ca, err := newAuthority()
	if err != nil {
		return pair{}, nil, err
	}
	serving, err := signer.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	})
	if err != nil {
		return pair{}, nil, err
	}
	admin, err = signer.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{administratorsOU}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return pair{}, nil, err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, nil, fmt.Errorf("make the key of service accounts: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(accounts)
	if err != nil {
		return pair{}, nil, fmt.Errorf("encode the key of service accounts: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(accounts.Public())
	if err != nil {
		return pair{}, nil, fmt.Errorf("encode the key of service accounts: %w", err)
	}
	for name, data := range map[string][]byte{
		authorityFile: ca, servingFile: serving.Certificate, servingKeyFile: serving.Key,
		accountsFile: encode("EC PRIVATE KEY", private), accountsPubFile: encode("PUBLIC KEY", public),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return pair{}, nil, fmt.Errorf("write keys: %w", err)
		}
	}
	return admin, ca, nil
}

func newAuthority() (*authority, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the key of the authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(validity),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("parse the authority: %w", err)
	}
	return &authority{certificate, key}, encode("CERTIFICATE", der), nil
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make a key: %w", err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.NotBefore, template.NotAfter = a.certificate.NotBefore, a.certificate.NotAfter
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode a key: %w", err)
	}
	return pair{encode("CERTIFICATE", der), encode("EC PRIVATE KEY", private)}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

var kubeconfig = template.Must(template.New("kubeconfig").Parse(`apiVersion: v1
kind: Config
clusters:
- name: bench
  cluster:
    server: {{.Server}}
    certificate-authority-data: {{.Authority}}
users:
- name: admin
  user:
    client-certificate-data: {{.Certificate}}
    client-key-data: {{.Key}}
contexts:
- name: bench
  context: {cluster: bench, user: admin}
current-context: bench
`))

func writeKubeconfig(path, server string, ca []byte, admin pair) error {
	var text bytes.Buffer
	err := kubeconfig.Execute(&text, map[string]string{
		"Server": server, "Authority": base64Of(ca), "Certificate": base64Of(admin.Certificate), "Key": base64Of(admin.Key),
	})
	if err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}
