package admissionchain

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coppice-dev/coppice/internal/apiserver/definitions"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// customMistakes refuses custom resources with more mistakes than a response lists, before apiextensions-apiserver
// validates them. It changes nothing, but apiextensions-apiserver validates after the mutating plug-ins, and before the
// others.
type customMistakes struct {
	*admission.Handler

	checker *definitions.Checker
}

func newCustomMistakes(checker *definitions.Checker) admission.MutationInterface {
	return customMistakes{admission.NewHandler(admission.Create, admission.Update), checker}
}

// Admit implements admission.MutationInterface.
func (p customMistakes) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	obj, isCustom := a.GetObject().(*unstructured.Unstructured)
	if !isCustom {
		return nil
	}
	write := definitions.Write{Kind: a.GetKind(), Resource: a.GetResource().GroupResource(), Subresource: a.GetSubresource(), New: obj}
	if a.GetOperation() == admission.Update {
		old, ok := a.GetOldObject().(*unstructured.Unstructured)
		if !ok {
			return nil
		}
		write.Old = old
	}
	if errs := p.checker.Mistakes(ctx, write); len(errs) > 0 {
		return validate.NewInvalid(a.GetKind().GroupKind(), obj.GetName(), errs)
	}
	return nil
}
