package registry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Registries are the registries of all resources. Through them one resource reads the objects of another. They are
// collected before the server serves, and not changed afterwards.
type Registries map[schema.GroupResource]*REST

// ListFromCache lists a cluster-scoped resource from its watch cache, so the latest writes may be missing. A resource
// that is not served has no objects.
func ListFromCache[P runtime.Object](ctx context.Context, rs Registries, resource schema.GroupResource) ([]P, error) {
	r := rs[resource]
	if r == nil {
		return nil, nil
	}
	list, err := r.List(genericrequest.WithNamespace(ctx, metav1.NamespaceNone), &internalversion.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", resource, err)
	}
	var all []P
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		all = append(all, obj.(P))
		return nil
	})
	return all, err
}
