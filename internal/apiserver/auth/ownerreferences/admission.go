package ownerreferences

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// PluginName is what the admission is called in the field.
const PluginName = "OwnerReferencesPermissionEnforcement"

// Admission refuses writes that Judge finds something wrong with, and those whose writer
// lacks a right. It is safe for concurrent use.
type Admission struct {
	*admission.Handler
	served    Served
	authorize authorizer.UnconditionalAuthorizer
}

var _ admission.ValidationInterface = (*Admission)(nil)

// NewAdmission checks both; authorize decides on rights.
func NewAdmission(served Served, authorize authorizer.UnconditionalAuthorizer) (*Admission, error) {
	if served == nil || authorize == nil {
		return nil, errors.New("the admission of owner references needs to know the kinds and the rights")
	}
	return &Admission{admission.NewHandler(admission.Create, admission.Update), served, authorize}, nil
}

// Validate implements admission.ValidationInterface.
func (p *Admission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	w, ok := writeOf(a)
	if !ok {
		return nil
	}
	rights, errs := Judge(w, p.served)
	if len(errs) > 0 {
		return admission.NewForbidden(a, errs.ToAggregate())
	}
	for _, right := range rights {
		if err := p.check(ctx, a, right); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// writeOf is the write that is to be judged; false if it is of no object's metadata.
func writeOf(a admission.Attributes) (Write, bool) {
	creates := a.GetOperation() == admission.Create
	if creates && a.GetSubresource() != "" {
		return Write{}, false // not an object, but something that is done to one
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
		w.Namespace = "" // the library has its name there
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

// check asks whether the writer has a right. If not, the error says which rule is missing.
func (p *Admission) check(ctx context.Context, a admission.Attributes, r Right) error {
	writer := a.GetUserInfo()
	decision, reason, err := p.authorize.Authorize(ctx, authorizer.AttributesRecord{
		User: writer, ResourceRequest: true, Verb: r.Verb, Namespace: r.Namespace,
		APIGroup: r.Resource.Group, APIVersion: "*", Resource: r.Resource.Resource, Subresource: r.Subresource, Name: r.Name,
	})
	if err == nil && decision == authorizer.DecisionAllow {
		return nil
	}
	missing := fmt.Errorf("%s: user %q lacks the rule %s %s", r.Why, writer.GetName(), r.Rule(), r.Place())
	if reason != "" {
		missing = fmt.Errorf("%w (%s)", missing, reason)
	}
	return errors.Join(missing, err)
}
