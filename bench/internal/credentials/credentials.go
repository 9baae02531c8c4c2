// Package credentials makes the keys and certificates of a server on loopback, and its administrator's kubeconfig.
package credentials

import (
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
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// validity of the certificates: longer than any run.
const validity = 24 * time.Hour

// administrators is the group that Kubernetes binds to the role cluster-admin.
const administrators = "system:masters"

// The files with keys and certificates, in a server's directory.
const (
	AuthorityFile   = "ca.crt"
	ServingFile     = "serving.crt"
	ServingKeyFile  = "serving.key"
	AccountsFile    = "service-accounts.key"
	AccountsPubFile = "service-accounts.pub"
	KubeconfigFile  = "kubeconfig"
)

// KeyPair is a certificate and its key, in PEM.
type KeyPair struct{ Certificate, Key []byte }

// Set is the credentials of the clients of a server.
type Set struct {
	Authority []byte // the certificate that signs all others, in PEM
	Admin     KeyPair
}

// serialBits is the length of the serial numbers of certificates.
const serialBits = 64

// authority signs the certificates of one server.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Write creates the keys and certificates that an API server needs, as files in a directory, and returns the
// administrator's.
func Write(dir string) (Set, error) {
	signer, ca, err := newAuthority()
	if err != nil {
		return Set{}, err
	}
	serving, err := signer.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	})
	if err != nil {
		return Set{}, err
	}
	admin, err := signer.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{administrators}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Set{}, err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Set{}, fmt.Errorf("make the signing key of service accounts: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(accounts)
	if err != nil {
		return Set{}, fmt.Errorf("encode the signing key of service accounts: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(accounts.Public())
	if err != nil {
		return Set{}, fmt.Errorf("encode the signing key of service accounts: %w", err)
	}
	for name, data := range map[string][]byte{
		AuthorityFile: ca, ServingFile: serving.Certificate, ServingKeyFile: serving.Key,
		AccountsFile: encode("EC PRIVATE KEY", private), AccountsPubFile: encode("PUBLIC KEY", public),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return Set{}, fmt.Errorf("write keys: %w", err)
		}
	}
	return Set{Authority: ca, Admin: admin}, nil
}

func newAuthority() (*authority, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate the key of the certificate authority: %w", err)
	}
	now := stopwatch.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(validity),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the certificate authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("parse the certificate authority: %w", err)
	}
	return &authority{certificate, key}, encode("CERTIFICATE", der), nil
}

func (a *authority) issue(template *x509.Certificate) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("generate a key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits)); err != nil {
		return KeyPair{}, fmt.Errorf("choose a serial number: %w", err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.NotBefore, template.NotAfter = a.certificate.NotBefore, a.certificate.NotAfter
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encode a key: %w", err)
	}
	return KeyPair{encode("CERTIFICATE", der), encode("EC PRIVATE KEY", private)}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// WriteKubeconfig writes the kubeconfig of the administrator of a server.
func WriteKubeconfig(path, server string, set Set) error {
	const name = "bench"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: set.Authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: set.Admin.Certificate, ClientKeyData: set.Admin.Key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}
