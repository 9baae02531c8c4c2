package restriction

import (
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/controller/signingrequest"
)

// checkCertificateRequest allows a node to request a certificate and to wait for it by the name of the
// request. Requests contain no secrets, but a node need not know the requests of others.
func checkCertificateRequest(a authorizer.Attributes) error {
	if err := checkVerb(a, "create", "get", "list", "watch"); err != nil {
		return err
	}
	if a.GetVerb() == "create" || a.GetVerb() == "get" {
		return nil
	}
	requirements, err := a.GetFieldSelector()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(requirements, func(r fields.Requirement) bool {
		return r.Field == "metadata.name" && r.Value != "" && isEquality(r)
	}) {
		return nil
	}
	return errors.New("it must select by metadata.name")
}

// checkCertificateRequest allows requests of a node for its own certificates.
func (n nodeWrites) checkCertificateRequest(a admission.Attributes) error {
	csr, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok || n.node == "" {
		return errOwnOnly
	}
	if err := checkNoOwnersOrFinalizers(csr); err != nil {
		return err
	}
	kubelets := []string{certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName}
	if !slices.Contains(kubelets, csr.Spec.SignerName) {
		return errors.New("it can request certificates of kubelets only")
	}
	request, err := signingrequest.Parse(csr.Spec.Request)
	if err != nil {
		return err
	}
	if own := bootstrappolicy.NodeUserPrefix + n.node; request.Subject.CommonName != own {
		return fmt.Errorf("it can request certificates for %s only", own)
	}
	return nil
}
