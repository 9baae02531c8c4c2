// Package others looks up whether what a protected object outlives is there (R28): objects by name,
// with one GET of metadata each, and objects that carry a finalizer, by whoever knows all metadata.
//
// It fails closed: of what cannot be found out, it says why, and the object counts as there. A 404 for
// the object alone says that it is not. A kind that is not served says nothing (R3).
package others

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/protection"
)

// Lookup looks up what objects outlive. It is safe for concurrent use.
type Lookup struct {
	Mapper   meta.RESTMapper
	Metadata metadata.Interface
	// Carried reports whether any object has a finalizer. Nil: that is not known.
	Carried func(ctx context.Context, finalizer string) (bool, error)
}

// Left returns those of the others that are there, and those of which it could not be found out, but
// not many more than a refusal names. A namespaced one without a namespace is looked for in namespace,
// that of the protected object.
func (l Lookup) Left(ctx context.Context, namespace string, others []protection.Other) []protection.Left {
	var left []protection.Left
	for _, o := range others {
		there, unknown := l.find(ctx, namespace, o)
		if there || unknown != "" {
			left = append(left, protection.Left{Other: o, Unknown: unknown})
		}
		if len(left) > protection.MaxNamed {
			break
		}
	}
	return left
}

func (l Lookup) find(ctx context.Context, namespace string, o protection.Other) (there bool, unknown string) {
	if o.Finalizer != "" {
		return l.findFinalizer(ctx, o.Finalizer)
	}
	mapping, err := l.mapping(o)
	if meta.IsNoMatchError(err) {
		return false, "the kind is not served"
	}
	if err != nil {
		return false, err.Error()
	}
	objects := metadata.ResourceInterface(l.Metadata.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if o.Namespace != "" {
			namespace = o.Namespace
		}
		objects = l.Metadata.Resource(mapping.Resource).Namespace(namespace)
	}
	_, err = objects.Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return true, ""
	case isAbout(err, o.Name):
		return false, ""
	default:
		return false, err.Error()
	}
}

// mapping finds the resource. The version is a hint: any served one of the kind will do (R1).
func (l Lookup) mapping(o protection.Other) (*meta.RESTMapping, error) {
	kind := o.GroupVersionKind()
	mapping, err := l.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return l.Mapper.RESTMapping(kind.GroupKind())
	}
	return mapping, err
}

// isAbout reports whether an error is a 404 for the object, and not for the path.
func isAbout(err error, name string) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Name == name &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func (l Lookup) findFinalizer(ctx context.Context, finalizer string) (there bool, unknown string) {
	if l.Carried == nil {
		return false, "who is asked does not know all objects"
	}
	there, err := l.Carried(ctx, finalizer)
	if err != nil {
		return false, err.Error()
	}
	return there, ""
}
