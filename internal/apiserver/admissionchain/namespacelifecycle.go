package admissionchain

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
)

// namespaceLifecycle is the plug-in of k8s.io/apiserver, with live reads before refusals (R21). That plug-in has a cache,
// in which a namespace that has come back under its name may still be the one that was deleted. A controller that is told
// that its namespace is terminating does not try again: it expects no further work there.
type namespaceLifecycle struct {
	*lifecycle.Lifecycle

	client kubernetes.Interface
}

func newNamespaceLifecycle(client kubernetes.Interface) (namespaceLifecycle, error) {
	cached, err := lifecycle.NewLifecycle(sets.New(builtin.KeptNamespaces()...))
	return namespaceLifecycle{cached, client}, err
}

// Admit implements admission.MutationInterface.
func (p namespaceLifecycle) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	refusal := p.Lifecycle.Admit(ctx, a, o)
	if !apierrors.HasStatusCause(refusal, corev1.NamespaceTerminatingCause) {
		return refusal
	}
	namespace, err := p.client.CoreV1().Namespaces().Get(ctx, a.GetNamespace(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return err
	case err != nil || namespace.Status.Phase == corev1.NamespaceTerminating:
		return refusal
	}
	return nil
}
