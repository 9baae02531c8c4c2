package certificates

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/controller"
)

// stamp is an authority whose certificates consist of the subject's name.
type stamp struct{}

func (stamp) Sign(template *x509.Certificate, publicKey any) ([]byte, error) {
	if publicKey == nil {
		return nil, errors.New("no key")
	}
	return []byte("certificate of " + template.Subject.CommonName), nil
}

// reconciled returns the writes by which the controller reconciles a request at a time after the
// epoch, and when it does so again. Users have the permissions that are named.
func reconciled(t *testing.T, csr *certificatesv1.CertificateSigningRequest, after time.Duration, permissions ...string) (writes []string, requeueAfter time.Duration) {
	t.Helper()
	csr.UID, csr.ResourceVersion = "u", "7"
	client := fake.NewClientset(csr)
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		attributes := review.Spec.ResourceAttributes
		review.Status.Allowed = review.Spec.User == csr.Spec.Username && attributes.Verb == "create" && slices.Contains(permissions, attributes.Subresource)
		return true, review, nil
	})
	shared, err := controller.NewContext(client, clocktesting.NewFakeClock(epoch.Add(after)), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c := New(shared, stamp{})
	if err := shared.Informers.CertificateSigningRequests.Informer().GetIndexer().Add(csr); err != nil {
		t.Fatal(err)
	}
	requeueAfter, err = c.Reconcile(t.Context(), cache.ObjectName{Name: csr.Name})
	if err != nil {
		t.Fatal(err)
	}
	for _, action := range client.Actions() {
		if action.GetResource().Resource == "certificatesigningrequests" {
			writes = append(writes, describe(t, action))
		}
	}
	return writes, requeueAfter
}

// describe describes a write, and checks that it is conditioned on the version of the decision.
func describe(t *testing.T, action clienttesting.Action) string {
	t.Helper()
	switch action := action.(type) {
	case clienttesting.UpdateAction:
		sent := action.GetObject().(*certificatesv1.CertificateSigningRequest)
		if sent.UID != "u" || sent.ResourceVersion != "7" {
			t.Errorf("an update of uid %q, version %q", sent.UID, sent.ResourceVersion)
		}
		words := []string{action.GetSubresource()}
		for _, c := range sent.Status.Conditions {
			words = append(words, strings.TrimSpace(fmt.Sprintf("%s %s", c.Type, c.Reason)))
		}
		return strings.Join(append(words, string(sent.Status.Certificate)), ", ")
	case clienttesting.DeleteAction:
		p := action.GetDeleteOptions().Preconditions
		if p == nil || p.UID == nil || *p.UID != "u" || p.ResourceVersion == nil || *p.ResourceVersion != "7" {
			t.Errorf("a deletion with preconditions %v", p)
		}
		return "delete"
	}
	return fmt.Sprintf("%T", action)
}

func TestRequestsAreApprovedSignedOrDeleted(t *testing.T) {
	const approved, denied = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied
	node := func() *certificatesv1.CertificateSigningRequest {
		return signing(t, kubeletClient, nodeRequest(), "digital signature", "client auth")
	}
	own := node()
	own.Spec.Username = "system:node:a"
	for name, test := range map[string]struct {
		csr          *certificatesv1.CertificateSigningRequest
		after        time.Duration
		permissions  []string
		want         string
		requeueAfter time.Duration
	}{
		"signed":                   {with(node(), approved), 0, nil, "status, Approved, certificate of system:node:a", 24*time.Hour + time.Second},
		"refused":                  {with(signing(t, kubeletServer, nodeRequest(), "server auth"), approved), 0, nil, "status, Approved, Failed SignerValidationFailure, ", 24*time.Hour + time.Second},
		"approved":                 {node(), 0, []string{"nodeclient"}, "approval, Approved AutoApproved, ", reviewPeriod},
		"approved for itself":      {own, 0, []string{"selfnodeclient"}, "approval, Approved AutoApproved, ", reviewPeriod},
		"another's, for itself":    {node(), 0, []string{"selfnodeclient"}, "", reviewPeriod},
		"not approved":             {node(), 0, nil, "", reviewPeriod},
		"not approved, for a day":  {node(), 24*time.Hour + time.Second, []string{"nodeclient"}, "delete", time.Second},
		"denied":                   {with(node(), denied), time.Minute, []string{"nodeclient"}, "", 59*time.Minute + time.Second},
		"denied more than an hour": {with(node(), denied), time.Hour + time.Second, nil, "delete", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			writes, requeueAfter := reconciled(t, test.csr, test.after, test.permissions...)
			if got := strings.Join(writes, "; "); got != test.want || requeueAfter != test.requeueAfter {
				t.Errorf("%q and again in %s, want %q in %s", got, requeueAfter, test.want, test.requeueAfter)
			}
		})
	}
}
