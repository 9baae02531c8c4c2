package ownerreferences

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// PluginName is the name of Kubernetes' plug-in for the same purpose.
const PluginName = "OwnerReferencesPermissionEnforcement"

// Admission refuses writes that Check rejects, and writes of users who lack a permission. It is safe for
// concurrent use.
type Admission struct {
	*admission.Handler
	kinds     Kinds
	authorize authorizer.UnconditionalAuthorizer
}

// Kinds finds the resources of served kinds.
type Kinds interface {
	// ResourceOf implements Served, without I/O.
	ResourceOf(kind schema.GroupKind) (r ServedResource, ok bool)
	// ReadResourceOf reads the resource of a kind that ResourceOf does not know: its cache may be behind the client.
	ReadResourceOf(ctx context.Context, kind schema.GroupKind) (r ServedResource, ok bool)
}

// maxReads bounds the kinds that are read for one write: the server reads them for a user who may have no rights.
const maxReads = 4

var _ admission.ValidationInterface = (*Admission)(nil)

// NewAdmission returns an Admission; authorize decides about permissions.
func NewAdmission(kinds Kinds, authorize authorizer.UnconditionalAuthorizer) (*Admission, error) {
	if kinds == nil || authorize == nil {
		return nil, errors.New("ownerreferences: kinds and authorize are required")
	}
	return &Admission{admission.NewHandler(admission.Create, admission.Update), kinds, authorize}, nil
}

// Validate implements admission.ValidationInterface.
func (p *Admission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	w, ok := writeOf(a)
	if !ok {
		return nil
	}
	permissions, errs := Check(w, p.served(ctx))
	if len(errs) > 0 {
		return admission.NewForbidden(a, errs.ToAggregate())
	}
	for _, permission := range permissions {
		if err := p.authorizeUser(ctx, a, permission); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// served returns the kinds that are served for one write. It looks up each kind once, and reads at most maxReads.
func (p *Admission) served(ctx context.Context) Served {
	type answer struct {
		resource ServedResource
		ok       bool
	}
	known, reads := map[schema.GroupKind]answer{}, 0
	return func(kind schema.GroupKind) (ServedResource, bool) {
		a, isKnown := known[kind]
		if !isKnown {
			if a.resource, a.ok = p.kinds.ResourceOf(kind); !a.ok && reads < maxReads {
				reads++
				a.resource, a.ok = p.kinds.ReadResourceOf(ctx, kind)
			}
			known[kind] = a
		}
		return a.resource, a.ok
	}
}

// writeOf returns the write to check; false if it does not write an object's metadata.
func writeOf(a admission.Attributes) (Write, bool) {
	creates := a.GetOperation() == admission.Create
	if creates && a.GetSubresource() != "" {
		return Write{}, false // an operation on an object, such as a binding
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return Write{}, false
	}
	w := Write{
		Kind: a.GetKind().GroupKind(), Resource: a.GetResource().GroupResource(), Namespace: a.GetNamespace(), Name: cmp.Or(a.GetName(), obj.GetName()),
		UID: obj.GetUID(), Creates: creates, ByNode: slices.Contains(a.GetUserInfo().GetGroups(), user.NodesGroup), Wants: obj.GetOwnerReferences(),
	}
	if w.Resource.Group == "" && w.Resource.Resource == "namespaces" {
		w.Namespace = "" // k8s.io/apiserver puts the name of the namespace there
	}
	if !creates && a.GetOldObject() != nil {
		old, err := meta.Accessor(a.GetOldObject())
		if err != nil {
			return Write{}, false
		}
		w.Old, w.UID = old.GetOwnerReferences(), old.GetUID()
	}
	return w, true
}

// authorizeUser returns an error that names the missing rule if the user lacks a permission.
func (p *Admission) authorizeUser(ctx context.Context, a admission.Attributes, r Permission) error {
	user := a.GetUserInfo()
	decision, reason, err := p.authorize.Authorize(ctx, authorizer.AttributesRecord{
		User: user, ResourceRequest: true, Verb: r.Verb, Namespace: r.Namespace,
		APIGroup: r.Resource.Group, APIVersion: "*", Resource: r.Resource.Resource, Subresource: r.Subresource, Name: r.Name,
	})
	if err == nil && decision == authorizer.DecisionAllow {
		return nil
	}
	missing := fmt.Errorf("%s: user %q lacks the rule %s %s", r.Why, user.GetName(), r.Rule(), r.Scope())
	if reason != "" {
		missing = fmt.Errorf("%w (%s)", missing, reason)
	}
	return errors.Join(missing, err)
}
