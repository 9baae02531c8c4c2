package details

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"

	"github.com/coppice-dev/coppice/internal/collect/protected/others"
	"github.com/coppice-dev/coppice/internal/collect/protected/webhook"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// Protection returns the protection of an object that is marked as protected (R28), and the existing objects that it
// outlives, as far as the user may read them. It returns false if the object has no such label, or if the server does
// not enforce it: coppice up does not run the server, and it has neither Coppice's policy nor the webhook.
func (d *Reader) Protection(o *inventory.Object) (protection.Protection, []protection.Left, bool) {
	label, labelled := o.Labels.Lookup(protection.Label)
	if !labelled || !d.protects() {
		return protection.Protection{}, nil, false
	}
	if protection.Mode(label) != protection.Outlives {
		return protection.New(label, ""), nil, true
	}
	client, err := metadata.NewForConfig(d.config)
	if err != nil {
		return protection.New(label, ""), nil, true // this has the effect of always
	}
	now, err := client.Resource(o.Resource.GroupVersionResource).Namespace(o.Namespace).Get(d.ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return protection.New(label, ""), nil, true
	}
	p, protected := protection.Of(now)
	if checker, err := d.Checker(); err == nil && checker != nil {
		p = p.CheckedBy(*checker, now)
	}
	if !p.NeedsLookup() {
		return p, nil, protected
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d.client.Discovery()))
	return p, others.Lookup{Mapper: mapper, Metadata: client}.Left(d.ctx, nil, o.Namespace, p.Others), true
}

// protects reports whether the server refuses to delete objects with the label.
func (d *Reader) protects() bool {
	if d.enforced == nil {
		d.enforced = new(d.isEnforced())
	}
	return *d.enforced
}

func (d *Reader) isEnforced() bool {
	if d.isOurs() {
		return true
	}
	if checker, _ := d.Checker(); checker != nil {
		return true
	}
	admission := d.client.AdmissionregistrationV1()
	binding, err := admission.ValidatingAdmissionPolicyBindings().Get(d.ctx, protection.Enforcer, metav1.GetOptions{})
	if err != nil || !denies(binding) {
		return false
	}
	_, err = admission.ValidatingAdmissionPolicies().Get(d.ctx, protection.Enforcer, metav1.GetOptions{})
	return err == nil
}

// Checker returns the configuration of the webhook that checks additions to the list of outlived objects; nil if
// there is no webhook. It is an error if the user may not read it, except on our own server, which does that check
// itself.
func (d *Reader) Checker() (*protection.Checker, error) {
	if d.checker == nil {
		checker, err := webhook.ReadChecker(d.ctx, d.client.AdmissionregistrationV1().ValidatingWebhookConfigurations())
		switch {
		case err == nil:
			d.checker = &answer[*protection.Checker]{value: &checker}
		case apierrors.IsNotFound(err) || d.isOurs():
			d.checker = &answer[*protection.Checker]{}
		default:
			d.checker = &answer[*protection.Checker]{err: fmt.Errorf("read since when a webhook checks what objects outlive: %w", err)}
		}
	}
	return d.checker.value, d.checker.err
}

// RepeatedReplaces implements preview.Details.
func (d *Reader) RepeatedReplaces() bool { return !d.isOurs() }

// isOurs reports whether coppice up runs the server.
func (d *Reader) isOurs() bool {
	if d.ours == nil {
		of, err := d.client.Discovery().ServerVersion()
		d.ours = new(err == nil && version.IsOurs(of.GitVersion))
	}
	return *d.ours
}

// denies reports whether a binding has more effect than a warning.
func denies(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
	return slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny)
}
