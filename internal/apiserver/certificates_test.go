package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// certificateRequest returns a request for a client certificate, with a key of its own.
func certificateRequest(name, signer string, subject pkix.Name) (*certificatesv1.CertificateSigningRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		return nil, err
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, nil
}

// nodeRequest returns the body of a request, named after a node, for a certificate of the node. On an
// error, it returns the error text, which the server refuses.
func nodeRequest(signer, node string) string {
	csr, err := certificateRequest(node, signer, pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}})
	if err != nil {
		return err.Error()
	}
	body, err := json.Marshal(csr)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// allow gives a user permissions in the whole cluster, and waits until that is effective.
func (s *server) allow(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	admin := typed(t, s.config).RbacV1()
	meta := metav1.ObjectMeta{Name: user}
	if _, err := admin.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := admin.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client := typed(t, s.acting(user))
	eventually.Succeeds(t, func() error {
		_, err := client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		return err
	})
}

func onRequests(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		Verbs: append(verbs, "list"), APIGroups: []string{certificatesv1.GroupName},
		Resources: []string{"certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"},
	}
}

func onSigner(verb, signer string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"signers"}, ResourceNames: []string{signer}}
}

// The server, not the client, sets the user of a request for a certificate, and no update changes it.
func TestRequesterOfACertificate(t *testing.T) {
	s := sharedServer(t)
	name := unique("ann")
	s.allow(t, name, onRequests("create", "update"))
	config := s.acting(name, "team")
	config.Impersonate.Extra = map[string][]string{"scope": {"a", "b"}}
	requests := typed(t, config).CertificatesV1().CertificateSigningRequests()
	csr, err := certificateRequest(name, "example.com/a", pkix.Name{CommonName: "x"})
	if err != nil {
		t.Fatal(err)
	}
	csr.Spec.Username, csr.Spec.UID, csr.Spec.Groups = "root", "0", []string{"system:masters"}
	csr.Spec.Extra = map[string]certificatesv1.ExtraValue{"forged": {"x"}}
	csr.Status.Certificate = []byte("forged")
	created, err := requests.Create(t.Context(), csr, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec := created.Spec
	if spec.Username != name || spec.UID != "" || !slices.Contains(spec.Groups, "team") || slices.Contains(spec.Groups, "system:masters") {
		t.Errorf("requested by %q %q %q", spec.Username, spec.UID, spec.Groups)
	}
	if len(spec.Extra) != 1 || !slices.Equal(spec.Extra["scope"], []string{"a", "b"}) || len(created.Status.Certificate) > 0 {
		t.Errorf("extra %v, certificate %q", spec.Extra, created.Status.Certificate)
	}
	changed := created.DeepCopy()
	changed.Spec.Username, changed.Spec.SignerName = "root", "example.com/b"
	changed.Labels = map[string]string{"a": "b"}
	changed, err = requests.Update(t.Context(), changed, metav1.UpdateOptions{})
	if err != nil || changed.Spec.Username != name || changed.Spec.SignerName != "example.com/a" || changed.Labels["a"] != "b" {
		t.Errorf("%v %v", changed, err)
	}
}

// The permission to update a subresource is not enough: approvers and signers also need the permission for
// the signer.
func TestApproversAndSigners(t *testing.T) {
	s := sharedServer(t)
	name := unique("request")
	admin := typed(t, s.config).CertificatesV1().CertificateSigningRequests()
	csr, err := certificateRequest(name, "example.com/a", pkix.Name{CommonName: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if csr, err = admin.Create(t.Context(), csr, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	approver, signer, other := unique("approver"), unique("signer"), unique("other")
	s.allow(t, approver, onRequests("update"), onSigner("approve", "example.com/a"))
	s.allow(t, signer, onRequests("update"), onSigner("sign", "example.com/*"))
	s.allow(t, other, onRequests("update"), onSigner("approve", "example.com/b"), onSigner("sign", "example.com/b"))

	approved, signed := approve(csr), csr.DeepCopy()
	signed.Status.Certificate = s.Authority()
	update := func(user string, sent *certificatesv1.CertificateSigningRequest, by func(kubernetes.Interface, *certificatesv1.CertificateSigningRequest) error) error {
		sent = sent.DeepCopy()
		sent.ResourceVersion = ""
		return by(typed(t, s.acting(user)), sent)
	}
	approval := func(c kubernetes.Interface, sent *certificatesv1.CertificateSigningRequest) error {
		_, err := c.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), name, sent, metav1.UpdateOptions{})
		return err
	}
	status := func(c kubernetes.Interface, sent *certificatesv1.CertificateSigningRequest) error {
		_, err := c.CertificatesV1().CertificateSigningRequests().UpdateStatus(t.Context(), sent, metav1.UpdateOptions{})
		return err
	}
	for _, user := range []string{signer, other} {
		if err := update(user, approved, approval); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `not permitted to approve requests with signerName "example.com/a"`) {
			t.Errorf("%s approves: %v", user, err)
		}
	}
	for _, user := range []string{approver, other} {
		if err := update(user, signed, status); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `not permitted to sign requests with signerName "example.com/a"`) {
			t.Errorf("%s signs: %v", user, err)
		}
	}
	if err := update(approver, approved, approval); err != nil {
		t.Error(err)
	}
	approved.Status.Certificate = s.Authority()
	if err := update(signer, approved, status); err != nil {
		t.Error(err)
	}
	got, err := admin.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || len(got.Status.Conditions) != 1 || string(got.Status.Certificate) != string(s.Authority()) {
		t.Fatalf("%+v %v", got, err)
	}
	if c := got.Status.Conditions[0]; c.Type != certificatesv1.CertificateApproved || c.LastUpdateTime.IsZero() || c.LastTransitionTime.IsZero() {
		t.Errorf("%+v", c)
	}
}

func approve(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	csr = csr.DeepCopy()
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
	return csr
}

// No request results in the certificate of an administrator.
func TestNoRequestsOfAdministrators(t *testing.T) {
	s := sharedServer(t)
	csr, err := certificateRequest(unique("root"), certificatesv1.KubeAPIServerClientSignerName, pkix.Name{CommonName: "root", Organization: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = typed(t, s.config).CertificatesV1().CertificateSigningRequests().Create(t.Context(), csr, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:masters group is not allowed") {
		t.Errorf("%v", err)
	}
}
