package admissionchain

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestTrustBundlesNeedThePermissionToAttest(t *testing.T) {
	bundle := func(signer string, change func(*certificatesv1.ClusterTrustBundle)) *certificatesv1.ClusterTrustBundle {
		b := &certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: "a"}}
		if change != nil {
			change(b)
		}
		return b
	}
	const signer = "example.com/a"
	owned := func(b *certificatesv1.ClusterTrustBundle) {
		b.OwnerReferences, b.Finalizers = []metav1.OwnerReference{{UID: "u"}}, []string{"example.com/f"}
	}
	const refused = `user not permitted to attest for signerName "example.com/a"`
	for name, test := range map[string]struct {
		permissions permissions
		obj, old    runtime.Object
		want        string
	}{
		"may attest":                 {permissions{"attest " + signer}, bundle(signer, nil), nil, ""},
		"may attest for the domain":  {permissions{"attest example.com/*"}, bundle(signer, nil), nil, ""},
		"may sign":                   {permissions{"sign " + signer}, bundle(signer, nil), nil, refused},
		"may attest for others":      {permissions{"attest example.com/b"}, bundle(signer, nil), nil, refused},
		"no signer":                  {nil, bundle("", nil), nil, ""},
		"other certificates":         {nil, bundle(signer, func(b *certificatesv1.ClusterTrustBundle) { b.Spec.TrustBundle = "b" }), bundle(signer, nil), refused},
		"a label":                    {nil, bundle(signer, func(b *certificatesv1.ClusterTrustBundle) { b.Labels = map[string]string{"a": "b"} }), bundle(signer, nil), refused},
		"an annotation":              {nil, bundle(signer, func(b *certificatesv1.ClusterTrustBundle) { b.Annotations = map[string]string{"a": "b"} }), bundle(signer, nil), refused},
		"what the collector changes": {nil, bundle(signer, owned), bundle(signer, nil), ""},
		"another kind":               {nil, &corev1.Pod{}, nil, "expected type ClusterTrustBundle, got: *v1.Pod"},
	} {
		plugin, err := newTrustBundleAttest(test.permissions)
		if err != nil {
			t.Fatal(err)
		}
		operation := admission.Create
		if test.old != nil {
			operation = admission.Update
		}
		a := admission.NewAttributesRecord(test.obj, test.old, certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"), "", "a",
			certificatesv1.SchemeGroupVersion.WithResource("clustertrustbundles"), "", operation, nil, false, &user.DefaultInfo{Name: "ann"})
		says(t, name, plugin.Validate(t.Context(), a, nil), test.want)
	}
}

func TestPodCertificatesNeedThePermissionToSign(t *testing.T) {
	request := func(signer, chain string) *certificatesv1.PodCertificateRequest {
		r := &certificatesv1.PodCertificateRequest{Spec: certificatesv1.PodCertificateRequestSpec{SignerName: signer}}
		r.Status.CertificateChain = chain
		return r
	}
	const signer = "example.com/a"
	for name, test := range map[string]struct {
		permissions permissions
		subresource string
		sent        *certificatesv1.PodCertificateRequest
		want        string
	}{
		"may sign":                     {permissions{"sign " + signer}, "status", request(signer, "c"), ""},
		"may sign for the domain":      {permissions{"sign example.com/*"}, "status", request(signer, "c"), ""},
		"may sign for others":          {permissions{"sign example.com/b"}, "status", request("example.com/b", "c"), `spec.signerName: Forbidden: User "ann" is not permitted to "sign" for signer "example.com/a"`},
		"a status that is as it was":   {nil, "status", request(signer, ""), ""},
		"an update of the main object": {nil, "", request(signer, "c"), ""},
	} {
		plugin, err := newPodCertificateSigning(test.permissions)
		if err != nil {
			t.Fatal(err)
		}
		a := admission.NewAttributesRecord(test.sent, request(signer, ""), certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"), "ns", "a",
			certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests"), test.subresource, admission.Update, nil, false, &user.DefaultInfo{Name: "ann"})
		err = plugin.Validate(t.Context(), a, nil)
		says(t, name, err, test.want)
		if test.want != "" && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v is not a 422", name, err)
		}
	}
}
