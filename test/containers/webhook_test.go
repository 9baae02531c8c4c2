package containers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// hook is a Service, and a webhook that is called there about ConfigMaps such as reviewed.
const hook = `
apiVersion: v1
kind: Service
metadata: {name: hook}
spec:
  selector: {app: hook}
  ports: [{port: 443, targetPort: %d}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: hook.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  objectSelector: {matchLabels: {reviewed: "yes"}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  clientConfig: {service: {namespace: default, name: hook}, caBundle: %s}
`

const reviewed = `
apiVersion: v1
kind: ConfigMap
metadata: {name: reviewed, labels: {reviewed: "yes"}}
`

// TestWebhookInAPod: an admission webhook runs in a pod and is named by its Service, as operators install theirs. Without
// the pod, its failure policy counts.
func TestWebhookInAPod(t *testing.T) {
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(s.out, "webhook"), "./testdata/webhook")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "HOME="+home)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the webhook: %v\n%s", err, out)
	}
	bundle := s.certify("hook.default.svc")
	served := port()
	s.create(corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Command: []string{"/out/webhook", fmt.Sprintf("-address=:%d", served)},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(served)}}},
	}}})
	p.run(t, "label", "pod", s.name, "app=hook")
	p.eventuallyReady(t, s.name)
	defer func() { p.run(t, "delete", "service/hook", "validatingwebhookconfiguration/hook") }()
	p.apply(t, fmt.Sprintf(hook, served, base64.StdEncoding.EncodeToString(bundle)))

	s.eventuallyRefused("a webhook in a pod refuses it")
	p.run(t, "delete", "pod", s.name)
	s.eventuallyRefused(`failed calling webhook "hook.example.com"`)
}

// eventuallyRefused waits until the creation of a ConfigMap that the webhook reviews is refused with a text.
func (s *story) eventuallyRefused(text string) {
	s.t.Helper()
	eventually.Agrees(s.t, func() string {
		_, err := s.p.try(reviewed, "create", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), text) {
			return fmt.Sprintf("it is not refused with %q: %v", text, err)
		}
		return ""
	})
}

// certify writes a certificate for a host, and its key, to the directory that the pod shares. It returns the certificate,
// which is its own authority.
func (s *story) certify(host string) []byte {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(filepath.Join(s.out, name), text, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	return certificate
}
