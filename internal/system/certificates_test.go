package system

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
)

// TestApprovedRequestsGetCertificatesThatTheServerAccepts checks that a user whose request an administrator approves, and a node whose request the
// controller approves, get certificates that the server accepts; a request that its signer refuses fails.
func TestApprovedRequestsGetCertificatesThatTheServerAccepts(t *testing.T) {
	runWithPlane(t, ephemeral(t), func(ctx context.Context, p Plane) error {
		client, err := kubernetes.NewForConfig(p.Config)
		if err != nil {
			return err
		}
		c := certificateClient{plane: p, admin: client}
		return errors.Join(c.user(ctx), c.node(ctx), c.refused(ctx))
	})
}

type certificateClient struct {
	plane Plane
	admin kubernetes.Interface
}

// request creates a request and returns it with its key in PEM.
func (c certificateClient) request(ctx context.Context, config *rest.Config, name, signer string, subject pkix.Name) (*certificatesv1.CertificateSigningRequest, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	hour := int32(time.Hour / time.Second)
	csr, err := client.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer, ExpirationSeconds: &hour,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	return csr, keyPEM, err
}

func (c certificateClient) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	})
	_, err := c.admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
	return err
}

// becomes waits until wanted holds for a request, and returns the request.
func (c certificateClient) becomes(ctx context.Context, name, what string, wanted func(certificatesv1.CertificateSigningRequestStatus) bool) (csr *certificatesv1.CertificateSigningRequest, err error) {
	err = becomesTrue(ctx, name+" is "+what, func(ctx context.Context) (bool, error) {
		csr, err = c.admin.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		return err == nil && wanted(csr.Status), err
	})
	return csr, err
}

// holder waits for the certificate, and returns a client configuration with it.
func (c certificateClient) holder(ctx context.Context, name string, key []byte) (*rest.Config, error) {
	csr, err := c.becomes(ctx, name, "issued", func(s certificatesv1.CertificateSigningRequestStatus) bool { return len(s.Certificate) > 0 })
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(csr.Status.Certificate)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if left := time.Until(certificate.NotAfter); left <= 0 || left > time.Hour {
		return nil, fmt.Errorf("the certificate of %s is valid until %s", name, certificate.NotAfter)
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.plane.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.CertData, config.KeyData, config.CertFile, config.KeyFile = csr.Status.Certificate, key, "", ""
	return config, nil
}

// isUser checks the user and group that the server assigns to a client.
func isUser(ctx context.Context, config *rest.Config, user, group string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("with the certificate of %s: %w", user, err)
	}
	if got := review.Status.UserInfo; got.Username != user || !slices.Contains(got.Groups, group) {
		return fmt.Errorf("the server takes %s for %q in %q", user, got.Username, got.Groups)
	}
	return nil
}

func (c certificateClient) user(ctx context.Context) error {
	csr, key, err := c.request(ctx, c.plane.Config, "ann", certificatesv1.KubeAPIServerClientSignerName, pkix.Name{CommonName: "ann", Organization: []string{"team"}})
	if err != nil {
		return err
	}
	if err := c.approve(ctx, csr); err != nil {
		return err
	}
	config, err := c.holder(ctx, "ann", key)
	if err != nil {
		return err
	}
	return isUser(ctx, config, "ann", "team")
}

// node requests a certificate as a user whose requests for node certificates are approved, and with it
// another one as the node, whose requests for its own certificate are approved. The role that is bound last
// takes effect last, so an accepted request is also approved.
func (c certificateClient) node(ctx context.Context) error {
	const approved = "system:certificates.k8s.io:certificatesigningrequests:"
	user := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "bootstrap"}
	nodes := rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:nodes"}
	for _, bound := range []struct {
		role string
		to   rbacv1.Subject
	}{{approved + "selfnodeclient", nodes}, {approved + "nodeclient", user}, {"system:node-bootstrapper", user}} {
		_, err := c.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "bootstrap-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: bound.role},
			Subjects:   []rbacv1.Subject{bound.to},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	bootstrap := rest.CopyConfig(c.plane.Config)
	bootstrap.Impersonate.UserName = user.Name
	worker := pkix.Name{CommonName: "system:node:worker", Organization: []string{"system:nodes"}}
	var key []byte
	err := becomesTrue(ctx, "the node may request a certificate", func(ctx context.Context) (bool, error) {
		_, made, err := c.request(ctx, bootstrap, "node", certificatesv1.KubeAPIServerClientKubeletSignerName, worker)
		key = made
		return err == nil, nil // the roles may not be effective yet
	})
	if err != nil {
		return err
	}
	config, err := c.holder(ctx, "node", key)
	if err != nil {
		return err
	}
	if err := isUser(ctx, config, worker.CommonName, "system:nodes"); err != nil {
		return err
	}
	if _, key, err = c.request(ctx, config, "renewed", certificatesv1.KubeAPIServerClientKubeletSignerName, worker); err != nil {
		return err
	}
	if config, err = c.holder(ctx, "renewed", key); err != nil {
		return err
	}
	return isUser(ctx, config, worker.CommonName, "system:nodes")
}

func (c certificateClient) refused(ctx context.Context) error {
	csr, _, err := c.request(ctx, c.plane.Config, "refused", certificatesv1.KubeletServingSignerName, pkix.Name{CommonName: "ann"})
	if err != nil {
		return err
	}
	if err := c.approve(ctx, csr); err != nil {
		return err
	}
	csr, err = c.becomes(ctx, "refused", "failed", func(s certificatesv1.CertificateSigningRequestStatus) bool { return len(s.Conditions) > 1 })
	if err != nil {
		return err
	}
	if failed := csr.Status.Conditions[1]; failed.Type != certificatesv1.CertificateFailed || failed.Reason != "SignerValidationFailure" || len(csr.Status.Certificate) > 0 {
		return fmt.Errorf("%+v", csr.Status)
	}
	return nil
}
