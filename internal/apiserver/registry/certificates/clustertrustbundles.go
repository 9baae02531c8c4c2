package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// maxTrustBundle is the maximum size of the certificates of a bundle.
const maxTrustBundle = 1 << 20

// clusterTrustBundles are the root certificates that pods may trust. The name of a bundle of a signer begins with the
// name of the signer; the admission plug-in ClusterTrustBundleAttest requires a permission to write it.
func clusterTrustBundles() registry.Resource {
	return registry.Define[certificatesv1.ClusterTrustBundle, certificatesv1.ClusterTrustBundleList](registry.Resource{
		GroupVersion: certificatesv1.SchemeGroupVersion,
		Kind:         "ClusterTrustBundle",
		Plural:       "clustertrustbundles",
		ValidateName: anyName, // validateBundle checks it
	}, []table.Column{
		table.Name(),
		table.Text("SignerName", "The signer whose certificates the bundle verifies.", func(b *certificatesv1.ClusterTrustBundle) string {
			return table.OrNone(b.Spec.SignerName)
		}),
	}, registry.Strategy[*certificatesv1.ClusterTrustBundle]{
		Validate: validateBundle,
		ValidateCreate: func(b *certificatesv1.ClusterTrustBundle) field.ErrorList {
			return validateTrustAnchors(b.Spec.TrustBundle)
		},
		ValidateUpdate: validateBundleUpdate,
		SelectableFields: func(b *certificatesv1.ClusterTrustBundle) fields.Set {
			return fields.Set{"spec.signerName": b.Spec.SignerName}
		},
	})
}

// anyName is the rule for names that the validation of a resource checks with other fields.
func anyName(string, bool) []string { return nil }

func validateBundle(b *certificatesv1.ClusterTrustBundle) field.ErrorList {
	var errs field.ErrorList
	metadata := field.NewPath("metadata")
	check := validate.TrustBundleName(b.Spec.SignerName)
	if b.GenerateName != "" {
		errs = append(errs, validate.FromMessages(b.GenerateName, metadata.Child("generateName"), check(b.GenerateName, true))...)
	}
	if b.Name != "" {
		errs = append(errs, validate.FromMessages(b.Name, metadata.Child("name"), check(b.Name, false))...)
	}
	if b.Spec.SignerName != "" {
		errs = append(errs, validate.SignerName(b.Spec.SignerName, field.NewPath("spec", "signerName"))...)
	}
	return errs
}

// validateBundleUpdate checks certificates only if they change: other versions of Go may parse others.
func validateBundleUpdate(b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
	var errs field.ErrorList
	if b.Spec.TrustBundle != old.Spec.TrustBundle {
		errs = validateTrustAnchors(b.Spec.TrustBundle)
	}
	return append(errs, validate.Immutable(b.Spec.SignerName, old.Spec.SignerName, field.NewPath("spec", "signerName"))...)
}

// validateTrustAnchors checks that a bundle contains certificates of authorities, each once, and no other PEM blocks.
func validateTrustAnchors(bundle string) field.ErrorList {
	at := field.NewPath("spec", "trustBundle")
	if errs := validate.MaxBytes(bundle, at, maxTrustBundle); len(errs) > 0 {
		return errs
	}
	invalid := func(detail string) *field.Error { return field.Invalid(at, "<value omitted>", detail) }
	var errs field.ErrorList
	var distinct []string
	indices := map[string][]int{}
	block, rest := pem.Decode([]byte(bundle))
	for i := 0; block != nil; i++ {
		if complaint := checkTrustAnchor(block); complaint != "" {
			errs = append(errs, invalid(fmt.Sprintf("entry %d %s", i, complaint)))
		}
		anchor := string(block.Bytes)
		if len(indices[anchor]) == 0 {
			distinct = append(distinct, anchor)
		}
		indices[anchor] = append(indices[anchor], i)
		block, rest = pem.Decode(rest)
	}
	switch {
	case len(errs) > 0:
		return errs
	case len(distinct) == 0:
		return field.ErrorList{invalid("at least one trust anchor must be provided")}
	}
	for _, anchor := range distinct {
		if same := indices[anchor]; len(same) > 1 {
			errs = append(errs, invalid(fmt.Sprintf("duplicate trust anchor (indices %v)", same)))
		}
	}
	return errs
}

// checkTrustAnchor returns why a PEM block is not the certificate of an authority; "" if it is one.
func checkTrustAnchor(block *pem.Block) string {
	switch {
	case block.Type != certutil.CertificateBlockType:
		return "has bad block type: " + block.Type
	case len(block.Headers) > 0:
		return "has PEM block headers"
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return "does not parse as X.509"
	case !certificate.IsCA:
		return "does not have the CA bit set"
	case !certificate.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
