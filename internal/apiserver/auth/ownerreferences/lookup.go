package ownerreferences

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Lookup reads owners by their references.
type Lookup struct {
	Mapper   meta.RESTMapper
	Metadata metadata.Interface
}

// Exists implements the function type Exists. An owner of a kind that is not served counts
// as existing: OwnerReferencesPermissionEnforcement refuses it with a better reason.
func (l Lookup) Exists(ctx context.Context, kind schema.GroupKind, namespace string, ref metav1.OwnerReference) (bool, error) {
	if !ownership.IsName(ref.Name) {
		return false, nil // the path of a request with this name, as the administrator, would lead elsewhere
	}
	mapping, err := l.Mapper.RESTMapping(kind)
	if err != nil {
		return true, nil //nolint:nilerr // see above
	}
	objects := metadata.ResourceInterface(l.Metadata.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		objects = l.Metadata.Resource(mapping.Resource).Namespace(namespace)
	}
	owner, err := objects.Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s %s: %w", mapping.Resource.Resource, ref.Name, err)
	}
	return owner.UID == ref.UID, nil
}
