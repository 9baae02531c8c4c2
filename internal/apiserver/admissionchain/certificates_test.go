package admissionchain

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// permissions are the permissions of every user: "approve example.com/a".
type permissions []string

func (p permissions) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asks := a.GetVerb() + " " + a.GetName()
	for _, permission := range p {
		if permission == asks && a.GetAPIGroup() == "certificates.k8s.io" && a.GetResource() == "signers" && a.GetNamespace() == "" {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func signedBy(signer string, change func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
	csr := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer}}
	if change != nil {
		change(csr)
	}
	return csr
}

func attributes(operation admission.Operation, subresource string, obj, old runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(obj, old, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), "", "a",
		certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), subresource, operation, nil, false, &user.DefaultInfo{Name: "ann"})
}

func says(t *testing.T, name string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

func TestCertificatePermissions(t *testing.T) {
	issued := func(csr *certificatesv1.CertificateSigningRequest) { csr.Status.Certificate = []byte("c") }
	failed := func(csr *certificatesv1.CertificateSigningRequest) {
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateFailed}}
	}
	const signer = "example.com/a"
	for name, test := range map[string]struct {
		permissions permissions
		subresource string
		sent        *certificatesv1.CertificateSigningRequest
		want        string
	}{
		"may approve":                  {permissions{"approve " + signer}, "approval", signedBy(signer, nil), ""},
		"may approve for the domain":   {permissions{"approve example.com/*"}, "approval", signedBy(signer, nil), ""},
		"may approve for others":       {permissions{"approve example.com/b", "sign " + signer}, "approval", signedBy("example.com/b", nil), `not permitted to approve requests with signerName "example.com/a"`},
		"may sign":                     {permissions{"sign " + signer}, "status", signedBy(signer, issued), ""},
		"may not sign":                 {permissions{"approve " + signer}, "status", signedBy(signer, issued), `not permitted to sign requests with signerName "example.com/a"`},
		"may not say that it fails":    {nil, "status", signedBy(signer, failed), "not permitted to sign"},
		"a status that is as it was":   {nil, "status", signedBy(signer, nil), ""},
		"an update of the main object": {nil, "", signedBy(signer, issued), ""},
	} {
		approval, err := newCertificateApproval(test.permissions)
		if err != nil {
			t.Fatal(err)
		}
		signing, err := newCertificateSigning(test.permissions)
		if err != nil {
			t.Fatal(err)
		}
		a := attributes(admission.Update, test.subresource, test.sent, signedBy(signer, nil))
		err = approval.Validate(t.Context(), a, nil)
		if err == nil {
			err = signing.Validate(t.Context(), a, nil)
		}
		says(t, name, err, test.want)
	}
}

func TestUnexpectedObjects(t *testing.T) {
	approval, err := newCertificateApproval(permissions{})
	if err != nil {
		t.Fatal(err)
	}
	says(t, "approval", approval.Validate(t.Context(), attributes(admission.Update, "approval", &corev1.Pod{}, &corev1.Pod{}), nil), "got: *v1.Pod")
	restriction := newCertificateSubjectRestriction()
	says(t, "create", restriction.Validate(t.Context(), attributes(admission.Create, "", &corev1.Pod{}, nil), nil), "got: *v1.Pod")
}

func TestSubjectRestriction(t *testing.T) {
	of := func(groups ...string) func(*certificatesv1.CertificateSigningRequest) {
		return func(csr *certificatesv1.CertificateSigningRequest) { csr.Spec.Request = request(t, groups...) }
	}
	nonsense := func(csr *certificatesv1.CertificateSigningRequest) { csr.Spec.Request = []byte("nonsense") }
	for name, test := range map[string]struct {
		csr  *certificatesv1.CertificateSigningRequest
		want string
	}{
		"an administrator":             {signedBy("kubernetes.io/kube-apiserver-client", of("team", "system:masters")), "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"},
		"somebody":                     {signedBy("kubernetes.io/kube-apiserver-client", of("team")), ""},
		"no request":                   {signedBy("kubernetes.io/kube-apiserver-client", nonsense), "failed to parse CSR"},
		"a signer of no client's":      {signedBy("example.com/a", of("system:masters")), ""},
		"no request, another's signer": {signedBy("example.com/a", nonsense), ""},
	} {
		says(t, name, newCertificateSubjectRestriction().Validate(t.Context(), attributes(admission.Create, "", test.csr, nil), nil), test.want)
	}
}

func request(t *testing.T, groups ...string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann", Organization: groups}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
