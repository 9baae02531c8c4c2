package protected

import (
	"context"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

const (
	// writes is the name of the webhook that checks entries, in its configuration.
	writes = "write.protect.coppice.dev"
	// source is the origin of its configuration.
	source = "deploy/kustomize/protect-webhook"
)

// conditions are the names of the conditions of that webhook. The last one is renamed whenever it covers more
// writes, so that the configuration of an older version is recognized.
func conditions() []string { return []string{"lists", "lists-more-or-says-checked"} }

// Checker returns the parts of the webhook's configuration that matter for entries. Without a configuration,
// or if it cannot be read, nothing counts as checked.
func Checker(ctx context.Context, configurations admissionregistrationclient.ValidatingWebhookConfigurationInterface) protection.Checker {
	checker, err := ReadChecker(ctx, configurations)
	switch {
	case apierrors.IsNotFound(err):
		checker.Gap = fmt.Sprintf("there is no ValidatingWebhookConfiguration %s, which would say since when entries are checked; create it from %s", protection.Enforcer, source)
	case err != nil:
		checker.Gap = fmt.Sprintf("the ValidatingWebhookConfiguration %s, which says since when entries are checked, cannot be read: %s", protection.Enforcer, err)
	}
	return checker
}

// ReadChecker is Checker for callers that handle the error, which comes from the server.
func ReadChecker(ctx context.Context, configurations admissionregistrationclient.ValidatingWebhookConfigurationInterface) (protection.Checker, error) {
	c, err := configurations.Get(ctx, protection.Enforcer, metav1.GetOptions{})
	if err != nil {
		return protection.Checker{}, err
	}
	checker := protection.Checker{UID: c.UID, Since: c.CreationTimestamp.Time, Defaults: defaultsIn(c.Webhooks)}
	if !slices.ContainsFunc(c.Webhooks, checksAll) {
		checker.Gap = fmt.Sprintf("the webhook %s of the ValidatingWebhookConfiguration %s leaves writes out; delete that, and create it from %s", writes, protection.Enforcer, source)
	}
	return checker, nil
}

// checksAll reports whether a webhook is the one for entries, and no write of an entry escapes it.
func checksAll(w admissionregistrationv1.ValidatingWebhook) bool {
	if w.Name != writes || w.FailurePolicy != nil && *w.FailurePolicy != admissionregistrationv1.Fail {
		return false
	}
	if s := w.NamespaceSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		return false
	}
	if s := w.ObjectSelector; s != nil && (len(s.MatchExpressions) > 0 || !maps.Equal(s.MatchLabels, map[string]string{protection.Label: string(protection.Outlives)})) {
		return false
	}
	return slices.ContainsFunc(w.Rules, isAboutAll) && !slices.ContainsFunc(w.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
		return !slices.Contains(conditions(), c.Name)
	})
}

func isAboutAll(r admissionregistrationv1.RuleWithOperations) bool {
	return slices.Contains(r.Operations, admissionregistrationv1.Create) && slices.Contains(r.Operations, admissionregistrationv1.Update) &&
		slices.Contains(r.APIGroups, "*") && slices.Contains(r.APIVersions, "*") && slices.Contains(r.Resources, "*/*") &&
		(r.Scope == nil || *r.Scope == admissionregistrationv1.AllScopes)
}
