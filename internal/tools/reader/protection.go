package reader

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// Protection reads the protection of an object that is marked as protected (R28), and which of the objects that it
// outlives exist, as far as the user may read them. It is not enforced if the object has no such label, or if coppice
// up does not run the server and the server has neither Coppice's policy nor the webhook. It is an error if that is
// unknown: the object may be protected.
func (r *Facts) Protection(ctx context.Context, o *inventory.Object) (inventory.Protection, error) {
	if !r.isMarked(ctx, o) {
		return inventory.Protection{}, nil
	}
	enforces, err := r.Enforces(ctx)
	if err != nil || !enforces {
		return inventory.Protection{}, err
	}
	return r.protectionOf(ctx, o), nil
}

// isMarked reports whether an object has a label of protection, or its resource a default mode. An unknown default counts
// as none.
func (r *Facts) isMarked(ctx context.Context, o *inventory.Object) bool {
	if label, labelled := o.Labels.Lookup(protection.Label); labelled {
		return label != protection.None
	}
	defaults, err := r.Defaults(ctx)
	_, hasDefault := defaults[o.Resource.GroupResource()]
	return err == nil && hasDefault
}

// protectionOf reads the protection of a marked object on a server that enforces it.
func (r *Facts) protectionOf(ctx context.Context, o *inventory.Object) inventory.Protection {
	label, labelled := o.Labels.Lookup(protection.Label)
	resource := o.Resource.GroupResource()
	defaults, _ := r.Defaults(ctx) // those that could not be read count as none
	mode := defaults[resource]
	always := inventory.Protection{Protection: protection.New(label, ""), Enforced: true} // if the object cannot be read
	if !labelled {
		always.Protection = protection.Protection{Label: string(mode), Mode: mode, ByDefault: true}
	} else if !always.NeedsLookup() && protection.Mode(label) != protection.Outlives { // which needs its annotation
		return always
	}
	client, err := metadata.NewForConfig(r.config)
	if err != nil {
		return always
	}
	now, err := client.Resource(o.Resource.GroupVersionResource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return always
	}
	p, isProtected := defaults.Of(resource, now)
	if checker, err := r.Checker(ctx); err == nil && checker != nil {
		p = p.CheckedBy(*checker, now)
	}
	if !p.NeedsLookup() {
		return inventory.Protection{Protection: p, Enforced: isProtected}
	}
	remaining, isPart := r.remaining(ctx, client, o, p)
	return inventory.Protection{Protection: p, Enforced: true, Remaining: remaining, IsPart: isPart}
}

// remaining returns the objects because of which a protected object stays. The server looks up the users of an object with
// rights of its own: kinds that the user may not list are left out here, and isPart reports that.
func (r *Facts) remaining(ctx context.Context, client metadata.Interface, o *inventory.Object, p protection.Protection) (remaining []protection.Remaining, isPart bool) {
	objects, err := r.objects()
	if err != nil {
		return []protection.Remaining{{Outlived: protection.Outlived{Kind: "any"}, Unknown: err.Error()}}, false
	}
	lookup := protected.Lookup{Mapper: r.mapper(), Metadata: client, Objects: objects, Discovery: r.client.Discovery()}
	of := inuse.Object{Kind: schema.GroupKind{Group: o.Kind.Group, Kind: o.Kind.Kind}, Namespace: o.Namespace, Name: o.Name}
	remaining = lookup.Remaining(ctx, nil, of, p)
	if p.Mode == protection.Unused {
		all := len(remaining)
		remaining = slices.DeleteFunc(remaining, func(l protection.Remaining) bool { return l.Unread })
		isPart = len(remaining) < all
	}
	return remaining, isPart
}

// Users returns the objects that use a protected one, as far as their kinds are served: their kind, namespace and UID.
func (r *Facts) Users(remaining []protection.Remaining) []*inventory.Object {
	var users []*inventory.Object
	for _, one := range remaining {
		kind := one.GroupVersionKind()
		mapping, err := r.mapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil || one.UID == "" {
			continue
		}
		users = append(users, &inventory.Object{
			Object:   ownership.Object{UID: ownership.UID(one.UID), Kind: ownership.Kind{Group: kind.Group, Kind: kind.Kind}, Namespace: one.Namespace, Name: one.Name},
			Resource: &inventory.Resource{GroupVersionResource: mapping.Resource, Kind: kind.Kind, Namespaced: one.Namespace != ""},
		})
	}
	return users
}

// Enforces reports whether the server refuses to delete objects with the label. It is an error if that is unknown.
func (r *Facts) Enforces(ctx context.Context) (bool, error) {
	if r.enforced == nil {
		is, err := r.isEnforced(ctx)
		r.enforced = &enforced{is, err}
	}
	return r.enforced.is, r.enforced.err
}

// enforced reports whether the server enforces protection, or has the error of that question.
type enforced struct {
	is  bool
	err error
}

func (r *Facts) isEnforced(ctx context.Context) (bool, error) {
	if r.isOurs() {
		return true, nil
	}
	checker, unknown := r.Checker(ctx) // the error counts unless the policy enforces it, too
	if checker != nil {
		return true, nil
	}
	admission := r.client.AdmissionregistrationV1()
	binding, err := admission.ValidatingAdmissionPolicyBindings().Get(ctx, protection.Enforcer, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && !denies(binding):
		return false, unknown
	case err != nil:
		return false, both(unknown, missingRight(err, "get"))
	}
	_, err = admission.ValidatingAdmissionPolicies().Get(ctx, protection.Enforcer, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, unknown
	case err != nil:
		return false, both(unknown, missingRight(err, "get"))
	}
	return true, nil
}

// both returns two errors as one, in one line; the first one may be nil.
func both(first, second error) error {
	if first == nil {
		return second
	}
	return fmt.Errorf("%w, and %w", first, second)
}

// Checker returns the configuration of the webhook that checks additions to the list of outlived objects; nil if
// there is no webhook. It is an error if the user may not read it, except on our own server, which does that check
// itself.
func (r *Facts) Checker(ctx context.Context) (*protection.Checker, error) {
	if r.checker == nil {
		checker, err := protected.ReadChecker(ctx, r.client.AdmissionregistrationV1().ValidatingWebhookConfigurations())
		switch {
		case err == nil:
			r.checker = &checked{by: &checker}
		case apierrors.IsNotFound(err) || r.isOurs():
			r.checker = &checked{}
		default:
			r.checker = &checked{err: fmt.Errorf("read the webhook of protection: %w", missingRight(err, "get"))}
		}
	}
	return r.checker.by, r.checker.err
}

// Defaults returns the modes of protection of objects without a label. It is an error if the user may not read them.
func (r *Facts) Defaults(ctx context.Context) (protection.Defaults, error) {
	if r.defaults == nil {
		r.defaults = new(r.readDefaults(ctx))
	}
	return r.defaults.of, r.defaults.err
}

// defaults are the default modes of protection, or the error of their read.
type defaults struct {
	of  protection.Defaults
	err error
}

func (r *Facts) readDefaults(ctx context.Context) defaults {
	if r.isOurs() {
		of, err := protected.ReadDefaults(ctx, r.client.Discovery().RESTClient())
		return defaults{of, err}
	}
	checker, err := r.Checker(ctx)
	if checker == nil || err != nil {
		return defaults{err: err}
	}
	return defaults{of: checker.Defaults}
}

// isOurs reports whether coppice up runs the server.
func (r *Facts) isOurs() bool {
	if r.ours == nil {
		of, err := r.client.Discovery().ServerVersion()
		r.ours = new(err == nil && version.IsOurs(of.GitVersion))
	}
	return *r.ours
}

// denies reports whether a binding has more effect than a warning.
func denies(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
	return slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny)
}
