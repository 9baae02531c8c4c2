package cri

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	testclock "k8s.io/utils/clock/testing"
)

func (w *cluster) TrustBundle(_ context.Context, name string) (*certificatesv1.ClusterTrustBundle, error) {
	for i := range w.bundles {
		if w.bundles[i].Name == name {
			return &w.bundles[i], nil
		}
	}
	return nil, apierrors.NewNotFound(certificatesv1.Resource("clustertrustbundles"), name)
}

func (w *cluster) TrustBundles(_ context.Context, signer string, selector labels.Selector) ([]certificatesv1.ClusterTrustBundle, error) {
	var found []certificatesv1.ClusterTrustBundle
	for _, b := range w.bundles {
		if b.Spec.SignerName == signer && selector.Matches(labels.Set(b.Labels)) {
			found = append(found, b)
		}
	}
	return found, nil
}

func (w *cluster) RequestCertificate(_ context.Context, r *certificatesv1.PodCertificateRequest) (*certificatesv1.PodCertificateRequest, error) {
	if w.refuses != nil {
		return nil, w.refuses
	}
	r.Name = fmt.Sprintf("%s%d", r.GenerateName, len(w.asked))
	w.asked = append(w.asked, r)
	return r, nil
}

func (w *cluster) CertificateRequest(_ context.Context, node, namespace, name string) (*certificatesv1.PodCertificateRequest, error) {
	for _, r := range w.asked {
		if r.Name == name && r.Namespace == namespace && string(r.Spec.NodeName) == node {
			return r, nil
		}
	}
	return nil, apierrors.NewNotFound(certificatesv1.Resource("podcertificaterequests"), name)
}

// sign answers the last request, with a chain that is text around one certificate.
func (w *cluster) sign(outcome string, refreshAt time.Time) {
	r := w.asked[len(w.asked)-1]
	r.Status.Conditions = []metav1.Condition{{Type: outcome, Status: metav1.ConditionTrue, Reason: "Because", Message: "of it"}}
	if outcome == certificatesv1.PodCertificateRequestConditionTypeIssued {
		r.Status.CertificateChain = "leaf of " + r.Name + ":\n" + block("leaf of "+r.Name)
		r.Status.BeginRefreshAt = new(metav1.NewTime(refreshAt))
	}
}

// block returns a PEM block that contains a text.
func block(text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
}

func certified() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"}}
	pod.Spec.NodeName, pod.Spec.ServiceAccountName = "n1", "web"
	return pod
}

// TestPodCertificates plays the life of a certificate: it is requested, issued, refreshed, and the request for its
// successor is deleted, then denied.
func TestPodCertificates(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := testclock.NewFakeClock(start)
	w := &cluster{refuses: errors.New("busy")}
	c := newCertificates(w, clock)
	p := &corev1.PodCertificateProjection{SignerName: "example.com/a", KeyType: "ED25519", UserAnnotations: map[string]string{"example.com/a": "b"}}
	get := func(wantChain, wantError string) podCredential {
		t.Helper()
		got, err := c.get(t.Context(), certified(), "v", 0, p)
		if (err == nil) != (wantError == "") || err != nil && !strings.Contains(err.Error(), wantError) || wantChain != "" && string(got.chain) != block(wantChain) {
			t.Fatalf("%q (%v), want %q, %q", got.chain, err, wantChain, wantError)
		}
		return got
	}
	get("", "busy")
	w.refuses = nil
	get("", "not issued yet")
	get("", "not issued yet")
	request := w.asked[0]
	if len(w.asked) != 1 || request.Spec.PodName != "web" || request.Spec.PodUID != "u" || request.Spec.ServiceAccountName != "web" ||
		request.Spec.NodeName != "n1" || request.Spec.SignerName != "example.com/a" || request.OwnerReferences[0].UID != "u" {
		t.Fatalf("requests %v", w.asked)
	}
	w.sign(certificatesv1.PodCertificateRequestConditionTypeIssued, start.Add(time.Hour))
	first := get("leaf of req-0", "")
	checkKey(t, request, first.key)

	clock.SetTime(start.Add(time.Hour - time.Second))
	get("leaf of req-0", "")
	clock.SetTime(start.Add(time.Hour))
	get("leaf of req-0", "") // the next one is requested
	get("leaf of req-0", "")
	w.sign(certificatesv1.PodCertificateRequestConditionTypeIssued, start.Add(2*time.Hour))
	second := get("leaf of req-1", "")
	if len(w.asked) != 2 || bytes.Equal(first.key, second.key) {
		t.Errorf("%d requests, the same key: %t", len(w.asked), bytes.Equal(first.key, second.key))
	}

	clock.SetTime(start.Add(2 * time.Hour))
	get("leaf of req-1", "")
	w.asked[2].Name = "gone"
	clock.SetTime(start.Add(2*time.Hour + abandonAfter + time.Second))
	get("leaf of req-1", "") // it counts as deleted
	get("leaf of req-1", "") // and is made again
	w.sign(certificatesv1.PodCertificateRequestConditionTypeDenied, time.Time{})
	get("", `permanently denied: reason="Because" message="of it"`)
	get("", "permanently denied")
	if len(w.asked) != 4 {
		t.Errorf("%d requests, want 4", len(w.asked))
	}
	c.forget("u")
	get("", "not issued yet")
}

// checkKey checks that a request is for the public key of a private one.
func checkKey(t *testing.T, request *certificatesv1.PodCertificateRequest, private []byte) {
	t.Helper()
	block, _ := pem.Decode(private)
	if block == nil || block.Type != "PRIVATE KEY" {
		t.Fatalf("the key is %q", private)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
	if err != nil {
		t.Fatal(err)
	}
	public, ok := key.(crypto.Signer).Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(stub.PublicKey) || stub.CheckSignature() != nil {
		t.Error("the request is for another key")
	}
}

func TestKeyTypes(t *testing.T) {
	for _, kind := range []string{"ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} { // keys of RSA take seconds
		if _, err := generateKey(kind); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := generateKey("RSA2048"); err == nil {
		t.Error("RSA2048 is a key type")
	}
}

func TestTrustBundles(t *testing.T) {
	bundle := func(name, signer, label, contents string) certificatesv1.ClusterTrustBundle {
		return certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kind": label}},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: contents},
		}
	}
	const signer = "example.com/a"
	w := &cluster{bundles: []certificatesv1.ClusterTrustBundle{
		bundle("roots", "", "x", "text\n"+block("b")+block("a")),
		bundle("example.com:a:1", signer, "x", block("c")+block("a")),
		bundle("example.com:a:2", signer, "y", block("a")+block("b")),
	}}
	yes, name, other := true, "roots", "others"
	selects := func(kind string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"kind": kind}}
	}
	by := func(selector *metav1.LabelSelector, optional *bool) *corev1.ClusterTrustBundleProjection {
		of := signer
		return &corev1.ClusterTrustBundleProjection{SignerName: &of, LabelSelector: selector, Optional: optional}
	}
	for _, test := range []struct {
		name string
		p    *corev1.ClusterTrustBundleProjection
		want string
		err  string
	}{
		{"by name", &corev1.ClusterTrustBundleProjection{Name: &name}, block("a") + block("b"), ""},
		{"a missing one", &corev1.ClusterTrustBundleProjection{Name: &other}, "", "not found"},
		{"a missing one that is optional", &corev1.ClusterTrustBundleProjection{Name: &other, Optional: &yes}, "", ""},
		{"all of a signer", by(&metav1.LabelSelector{}, nil), block("a") + block("b") + block("c"), ""},
		{"some of a signer", by(selects("y"), nil), block("a") + block("b"), ""},
		{"none of a signer", by(selects("z"), nil), "", "matched zero ClusterTrustBundles"},
		{"none that are optional", by(selects("z"), &yes), "", ""},
		{"without a selector", by(nil, nil), "", "matched zero ClusterTrustBundles"},
		{"neither", &corev1.ClusterTrustBundleProjection{}, "", "requires either name or signerName"},
	} {
		got, err := trusted(t.Context(), w, test.p)
		if string(got) != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %q (%v), want %q, %q", test.name, got, err, test.want, test.err)
		}
	}
}

// TestFilesOfCertificates checks the files of a projected volume with certificates, and their modes.
func TestFilesOfCertificates(t *testing.T) {
	pod := certified()
	name := "roots"
	trust := &corev1.ClusterTrustBundleProjection{Name: &name, Path: "roots.pem"}
	issued := &corev1.PodCertificateProjection{CredentialBundlePath: "bundle.pem", KeyPath: "key.pem", CertificateChainPath: "chain.pem"}
	volume := &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ClusterTrustBundle: trust}, {PodCertificate: issued}}}}
	m := newReferences()
	m.anchors[trust] = found[[]byte]{object: new([]byte("r"))}
	m.issued[issued] = found[podCredential]{object: &podCredential{key: []byte("k"), chain: []byte("c")}}
	for group, mode := range map[int64]os.FileMode{0: 0o644, 7: 0o600} {
		if group != 0 {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
		}
		files, err := filesOf(pod, volume, m)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range files {
			got = append(got, fmt.Sprintf("%s %s %o", f.path, f.data, f.mode))
		}
		want := []string{"bundle.pem kc", "chain.pem c", "key.pem k", "roots.pem r"}
		for i := range want {
			want[i] += fmt.Sprintf(" %o", mode)
		}
		if !slices.Equal(got, want) {
			t.Errorf("group %d: %q, want %q", group, got, want)
		}
		pod.Spec.SecurityContext = nil
	}
	m.issued[issued] = found[podCredential]{err: errNotIssued}
	if _, err := filesOf(pod, volume, m); !errors.Is(err, errNotIssued) {
		t.Errorf("a certificate that is not issued: %v", err)
	}
}
