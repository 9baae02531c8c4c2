package containers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// podSigner is a signer of certificates of pods.
type podSigner struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

const signerName = "coppice.test/pods"

func newPodSigner(t *testing.T) podSigner {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: signerName}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return podSigner{key, certificate}
}

func (s podSigner) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate.Raw}))
}

// sign returns the status with which a request is issued.
func (s podSigner) sign(t *testing.T, r *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus {
	t.Helper()
	stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: r.Namespace + "/" + r.Spec.PodName}, NotBefore: now, NotAfter: now.Add(2 * time.Hour),
	}, s.certificate, stub.PublicKey, s.key)
	if err != nil {
		t.Fatal(err)
	}
	at := func(after time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(after))) }
	return certificatesv1.PodCertificateRequestStatus{
		Conditions:       []metav1.Condition{{Type: "Issued", Status: metav1.ConditionTrue, Reason: "Signed", LastTransitionTime: *at(0)}},
		CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		NotBefore:        at(0), NotAfter: at(2 * time.Hour), BeginRefreshAt: at(time.Hour),
	}
}

// TestCertificatesInVolumes: a pod on a node outside starts when its certificate is issued, and finds it with its key and
// with the certificate of the signer.
func TestCertificatesInVolumes(t *testing.T) {
	t.Parallel()
	p, outside := outside(t, needDaemon(t), t.TempDir())
	outside()
	signer := newPodSigner(t)
	bundle, err := json.Marshal(certificatesv1.ClusterTrustBundle{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "ClusterTrustBundle"},
		ObjectMeta: metav1.ObjectMeta{Name: "coppice.test:pods:roots"},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signerName, TrustBundle: "a comment\n" + signer.pem()},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.try(string(bundle), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	s := newStory(t, p)
	of := signerName
	s.create(corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{SignerName: &of, LabelSelector: &metav1.LabelSelector{}, Path: "roots.pem"}},
			{PodCertificate: &corev1.PodCertificateProjection{SignerName: signerName, KeyType: "ECDSAP256", CredentialBundlePath: "own.pem"}},
		}}}}},
		Containers: []corev1.Container{{
			Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "all", MountPath: "/all"}},
			Command: shell(`cat /all/roots.pem > /out/roots; cat /all/own.pem > /out/own; touch /out/up; ` + idle),
		}},
	})
	var requests certificatesv1.PodCertificateRequestList
	eventually.Agrees(t, func() string {
		if err := json.Unmarshal([]byte(p.run(t, "get", "podcertificaterequests", "-o", "json")), &requests); err != nil {
			return err.Error()
		}
		if len(requests.Items) != 1 {
			return "there is no request"
		}
		return ""
	})
	status, err := json.Marshal(map[string]any{"status": signer.sign(t, &requests.Items[0])})
	if err != nil {
		t.Fatal(err)
	}
	p.run(t, "patch", "podcertificaterequest", requests.Items[0].Name, "--subresource=status", "--type=merge", "-p", string(status))
	p.eventuallyReady(t, s.name)
	s.mark("up")
	if got := s.read("roots"); got != signer.pem() {
		t.Errorf("the root certificates are %q, want %q", got, signer.pem())
	}
	own := []byte(s.read("own"))
	if _, err := tls.X509KeyPair(own, own); err != nil {
		t.Errorf("the certificate does not belong to the key: %v", err)
	}
	if got := p.run(t, "get", "podcertificaterequests"); !strings.Contains(got, "Issued") {
		t.Errorf("the request is %s", got)
	}
	p.run(t, "delete", "pod", s.name)
	eventually.Agrees(t, func() string { return p.run(t, "get", "podcertificaterequests", "-o", "name") }) // its owner is gone
}
