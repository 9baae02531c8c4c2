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

// directory finds the registries of other kinds, for what one kind has to know of
// another. It is filled before the server serves, and not changed afterwards.
type directory map[schema.GroupResource]*REST

// listOf lists a cluster-scoped resource from its watch cache: what was written a
// moment ago may be missing. A resource that is not served has no objects.
func listOf[P runtime.Object](ctx context.Context, d directory, resource schema.GroupResource) ([]P, error) {
	r := d[resource]
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
