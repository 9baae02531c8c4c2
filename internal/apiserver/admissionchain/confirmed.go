package admissionchain

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// confirmed refuses a write that confirms a deletion, if the user may not confirm deletions of the object (R32). It checks
// whether or not the server has limits: they may be set later.
type confirmed struct {
	*admission.Handler

	authorizer authorizer.Authorizer
	now        func() time.Time
}

func newConfirmed(authorizer authorizer.Authorizer, now func() time.Time) admission.ValidationInterface {
	return confirmed{admission.NewHandler(admission.Update), authorizer, now}
}

// Validate implements admission.ValidationInterface.
func (p confirmed) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	before, hadMetadata := a.GetOldObject().(metav1.Object)
	after, hasMetadata := a.GetObject().(metav1.Object)
	if !hadMetadata || !hasMetadata {
		return nil
	}
	confirmation, isNew := protection.NewConfirmation(before, after)
	if !isNew {
		return nil
	}
	if err := confirmation.CheckTime(p.now()); err != nil {
		return admission.NewForbidden(a, err)
	}
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: protection.ConfirmVerb, ResourceRequest: true, Namespace: namespaceOf(a), Name: a.GetName(),
		APIGroup: a.GetResource().Group, APIVersion: a.GetResource().Version, Resource: a.GetResource().Resource,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return admission.NewForbidden(a, fmt.Errorf("whether the user may %s deletions: %w", protection.ConfirmVerb, err))
	}
	return admission.NewForbidden(a, fmt.Errorf("user %q may not %s deletions of %s: that is a right of its own in RBAC",
		a.GetUserInfo().GetName(), protection.ConfirmVerb, a.GetResource().GroupResource()))
}
