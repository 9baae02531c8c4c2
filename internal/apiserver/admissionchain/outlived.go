package admissionchain

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// outlived refuses a write that adds an entry to the list of objects that an object outlives, if the user may
// not read the object of that entry (R28). Otherwise the deletion of the first object would tell the user
// whether the second one exists.
//
// A write adds at most maxAdded entries: each costs a check of the user's rights.
//
// An entry in a template counts like an entry of the object itself: a controller copies it to the objects
// that it creates. So the users who write templates need the permission, and the controllers that copy them
// do not.
type outlived struct {
	*admission.Handler

	check func(ctx context.Context, who user.Info, namespace string, added []protection.Outlived) error
}

// maxAdded is the maximum number of entries that a write adds to an object and its templates: eight full lists.
const maxAdded = 8 * protection.MaxOutlives

func newOutlived(check func(context.Context, user.Info, string, []protection.Outlived) error) admission.ValidationInterface {
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
	if len(added) > maxAdded {
		return admission.NewForbidden(a, fmt.Errorf("the annotations %s of the object and of its templates add %d entries, and may add %d in one write",
			protection.Annotation, len(added), maxAdded))
	}
	if err := p.check(ctx, who, namespaceOf(a), added); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// namespaceOf returns the namespace of an object; "" for a Namespace, whose attributes in k8s.io/apiserver have
// its name there.
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
