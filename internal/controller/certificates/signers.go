package certificates

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// nodeUserPrefix is the prefix of a node's user name; the name of the node follows.
const nodeUserPrefix = "system:node:"

// requestCheck returns an error if a signer refuses a request.
type requestCheck func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error

// signers returns the signers of this control plane, by name.
func signers() map[string]requestCheck {
	return map[string]requestCheck{
		certificatesv1.KubeAPIServerClientSignerName:        checkClient,
		certificatesv1.KubeAPIServerClientKubeletSignerName: checkKubeletClient,
		certificatesv1.KubeletServingSignerName:             checkKubeletServing,
	}
}

// permissionsFor returns the permissions of which one suffices to approve a request: to get a
// client certificate for any node, or for the requesting node itself.
func permissionsFor(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) []Permission {
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || checkKubeletClient(request, csr.Spec.Usages) != nil {
		return nil
	}
	var permissions []Permission
	if csr.Spec.Username == request.Subject.CommonName {
		permissions = append(permissions, Permission{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."})
	}
	return append(permissions, Permission{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."})
}

// checkClient accepts client certificates for any user. Admission refuses requests for
// certificates of administrators.
func checkClient(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	for _, usage := range usages {
		if !slices.Contains(usagesFor(certificatesv1.UsageClientAuth), usage) {
			return fmt.Errorf("invalid usage for client certificate: %s", usage)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}

// checkKubeletClient accepts client certificates of nodes, without names or addresses to serve.
func checkKubeletClient(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !isInNodes(request):
		return errNotInNodes
	case len(request.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(request.EmailAddresses) > 0:
		return errNoEmail
	case len(request.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(request.URIs) > 0:
		return errNoURI
	case !isNode(request):
		return errNotNode
	}
	return checkExact(usages, certificatesv1.UsageClientAuth)
}

// checkKubeletServing accepts serving certificates of nodes, for names or addresses.
func checkKubeletServing(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !isInNodes(request):
		return errNotInNodes
	case len(request.DNSNames) == 0 && len(request.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(request.EmailAddresses) > 0:
		return errNoEmail
	case len(request.URIs) > 0:
		return errNoURI
	}
	if err := checkExact(usages, certificatesv1.UsageServerAuth); err != nil {
		return err
	}
	if !isNode(request) {
		return errNotNode
	}
	// The API server identifies a kubelet by such a name.
	if slices.ContainsFunc(request.DNSNames, func(name string) bool {
		return strings.HasPrefix(strings.ToLower(name), nodeUserPrefix) && name != request.Subject.CommonName
	}) {
		return errors.New("DNS subjectAltNames of other nodes are not allowed")
	}
	return nil
}

// The errors of both kubelet signers, in Kubernetes' words.
var (
	errNotInNodes = errors.New("subject organization is not " + user.NodesGroup)
	errNotNode    = fmt.Errorf("subject common name does not begin with %s", nodeUserPrefix)
	errNoEmail    = errors.New("Email subjectAltNames are not allowed")
	errNoURI      = errors.New("URI subjectAltNames are not allowed")
)

func isInNodes(request *x509.CertificateRequest) bool {
	return slices.Equal(request.Subject.Organization, []string{user.NodesGroup})
}

func isNode(request *x509.CertificateRequest) bool {
	return strings.HasPrefix(request.Subject.CommonName, nodeUserPrefix)
}

// usagesFor returns the usages of a certificate with a purpose, sorted.
func usagesFor(purpose certificatesv1.KeyUsage) []certificatesv1.KeyUsage {
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, purpose}
	slices.Sort(usages)
	return usages
}

// checkExact requires exactly the usages of a certificate with a purpose. Keys other than RSA do
// not encipher, so requests may omit that usage.
func checkExact(usages []certificatesv1.KeyUsage, purpose certificatesv1.KeyUsage) error {
	given, all := slices.Compact(slices.Sorted(slices.Values(usages))), usagesFor(purpose)
	noRSA := slices.DeleteFunc(slices.Clone(all), func(u certificatesv1.KeyUsage) bool { return u == certificatesv1.UsageKeyEncipherment })
	if slices.Equal(given, all) || slices.Equal(given, noRSA) {
		return nil
	}
	return fmt.Errorf("usages did not match %v", all)
}
