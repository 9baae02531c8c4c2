package admissionchain

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// outlived refuses a write that adds an entry to what an object outlives, if its user may not read the object
// of that entry (R28). Otherwise the deletion of the object would tell the user whether the other one exists.
//
// An entry in a template counts as one of the object: a controller copies it to the objects that it makes. So
// the users who write templates need the rights, and the controllers that copy them need none.
type outlived struct {
	*admission.Handler

	check func(ctx context.Context, who user.Info, namespace string, added []protection.Other) error
}

func newOutlived(check func(context.Context, user.Info, string, []protection.Other) error) admission.ValidationInterface {
	return outlived{admission.NewHandler(admission.Create, admission.Update), check}
}

// Validate implements admission.ValidationInterface.
func (p outlived) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	who := a.GetUserInfo()
	entries := entriesIn(a.GetObject())
	if len(entries) == 0 || protection.IsCopier(who.GetName()) {
		return nil
	}
	added := protection.Missing(entries, entriesIn(a.GetOldObject()))
	if len(added) == 0 {
		return nil
	}
	if err := p.check(ctx, who, namespaceOf(a), added); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// namespaceOf returns the namespace of an object; empty for a namespace, for which k8s.io/apiserver has its name.
func namespaceOf(a admission.Attributes) string {
	m, err := meta.Accessor(a.GetObject())
	if err != nil || a.GetResource().Group == "" && a.GetResource().Resource == "namespaces" {
		return ""
	}
	if m.GetNamespace() != "" {
		return m.GetNamespace()
	}
	return a.GetNamespace()
}
