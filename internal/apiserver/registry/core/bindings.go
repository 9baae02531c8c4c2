package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// bindingsREST is the resource bindings, the older form of pods/binding from before subresources existed. Nothing is
// stored.
type bindingsREST struct {
	pods rest.NamedCreater
}

// NewBindings returns the resource bindings, which does what pods/binding does.
func NewBindings(podsBinding rest.NamedCreater) rest.Storage { return &bindingsREST{podsBinding} }

// New implements rest.Storage.
func (r *bindingsREST) New() runtime.Object { return r.pods.New() }

// Destroy implements rest.Storage. The storage belongs to the pods.
func (r *bindingsREST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r *bindingsREST) NamespaceScoped() bool { return true }

// GetSingularName implements rest.SingularNameProvider.
func (r *bindingsREST) GetSingularName() string { return "binding" }

// Create implements rest.Creater.
func (r *bindingsREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %T", obj))
	}
	return r.pods.Create(ctx, binding.Name, obj, validate, options)
}
