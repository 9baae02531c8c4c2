package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	name    = "certificate-controller"
	workers = 2
	// reviewPeriod is the interval at which a request that was not approved is reviewed again: its
	// user may have got the permission meanwhile.
	reviewPeriod = time.Minute
)

// Authority issues certificates.
type Authority interface {
	// Sign issues a certificate in PEM with the contents of the template, for a public key. It
	// does not outlive the authority.
	Sign(template *x509.Certificate, publicKey any) ([]byte, error)
}

type reconciler struct {
	client    kubernetes.Interface
	requests  certificateslisters.CertificateSigningRequestLister
	authority Authority
	now       func() time.Time
}

// New returns the controller. authority issues the certificates that the API server accepts.
func New(shared *controller.Context, authority Authority) *controller.Controller {
	requests := shared.Informers.CertificateSigningRequests
	c := &reconciler{client: shared.Client, requests: requests.Lister(), authority: authority, now: shared.Clock.Now}
	return &controller.Controller{
		Name: name, Reconcile: c.reconcile, Workers: workers,
		Sources: []controller.Source{controller.For(requests.Informer())},
	}
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	csr, err := c.requests.Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	now := c.now()
	plan := Decide(csr, now)
	requeueAfter := requeueAfterPlan(plan, now)
	switch step := plan.Step.(type) {
	case Sign:
		err = c.sign(ctx, csr, step)
	case Fail:
		err = c.fail(ctx, csr, step, now)
	case Review:
		err = c.review(ctx, csr, step, now)
	case Delete:
		err = c.remove(ctx, csr)
	case Wait:
	}
	return requeueAfter, err
}

// requeueAfterPlan returns the time until a request without events is reconciled again. A time to live
// that has just passed gives a short time, since zero would mean never.
func requeueAfterPlan(plan Plan, now time.Time) time.Duration {
	var requeueAfter time.Duration
	if !plan.DeleteAt.IsZero() {
		requeueAfter = max(plan.DeleteAt.Sub(now), 0) + time.Second
	}
	if _, reviews := plan.Step.(Review); reviews && (requeueAfter == 0 || requeueAfter > reviewPeriod) {
		requeueAfter = reviewPeriod
	}
	return requeueAfter
}

func (c *reconciler) sign(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, step Sign) error {
	certificate, err := c.authority.Sign(step.Template, step.PublicKey)
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	changed := csr.DeepCopy()
	changed.Status.Certificate = certificate
	if _, err := c.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("store the certificate: %w", err)
	}
	return nil
}

func (c *reconciler) fail(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, step Fail, now time.Time) error {
	changed := csr.DeepCopy()
	changed.Status.Conditions = append(changed.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: step.Message,
		LastUpdateTime: metav1.NewTime(now),
	})
	if _, err := c.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say that the signer refuses it: %w", err)
	}
	return nil
}

// review approves a request if its user has one of the permissions.
func (c *reconciler) review(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, step Review, now time.Time) error {
	for _, permission := range step.Permissions {
		allowed, err := c.allows(ctx, csr, permission)
		if err != nil {
			return fmt.Errorf("review %s: %w", permission.Subresource, err)
		}
		if !allowed {
			continue
		}
		changed := csr.DeepCopy()
		changed.Status.Conditions = append(changed.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: permission.Message,
			LastUpdateTime: metav1.NewTime(now),
		})
		if _, err := c.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, changed.Name, changed, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("approve: %w", err)
		}
		return nil
	}
	return nil
}

func (c *reconciler) allows(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, permission Permission) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range csr.Spec.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Subresource: permission.Subresource, Verb: "create",
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func (c *reconciler) remove(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	err := c.client.CertificatesV1().CertificateSigningRequests().Delete(ctx, csr.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &csr.UID, ResourceVersion: &csr.ResourceVersion},
	})
	if controller.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}
