// Package resource is the API group resource.k8s.io: devices that drivers offer (ResourceSlices),
// classes of them (DeviceClasses), claims on them, which pods name (ResourceClaims and
// ResourceClaimTemplates), and taints of devices (DeviceTaintRules).
//
// The fields of features that Kubernetes 1.37 does not enable by default are dropped, as its server drops them:
// attributes that are lists or derived, groups of compatible partitions, and what is optional on nodes.
package resource

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// Group returns the API group resource.k8s.io/v1.
func Group() registry.Group {
	return registry.Group{
		GroupVersion: resourcev1.SchemeGroupVersion,
		AddToScheme:  resourcev1.AddToScheme,
		Resources:    []registry.Resource{deviceClasses(), resourceClaims(), resourceClaimTemplates(), resourceSlices(), deviceTaintRules()},
	}
}

// allowAdminAccess checks that a namespace has the label that allows admin access, which includes devices in use. at is
// the path of the field that requests admin access, or nil.
func allowAdminAccess(ctx context.Context, rs registry.Registries, at *field.Path) field.ErrorList {
	if at == nil {
		return nil
	}
	namespace, err := namespaceOf(ctx, rs)
	if err != nil {
		return field.ErrorList{field.InternalError(at, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
	}
	if namespace.Labels[resourcev1.DRAAdminNamespaceLabelKey] == "true" {
		return nil
	}
	return field.ErrorList{
		field.Forbidden(at, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", resourcev1.DRAAdminNamespaceLabelKey)),
	}
}

// adminRequested returns the path of the first request with admin access, or nil.
func adminRequested(claim *resourcev1.DeviceClaim) *field.Path {
	for i, request := range claim.Requests {
		if request.Exactly != nil && ptr.Deref(request.Exactly.AdminAccess, false) {
			return field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess")
		}
	}
	return nil
}

// adminAllocated returns the path of the first device that is allocated with admin access, or nil.
func adminAllocated(claim *resourcev1.ResourceClaim) *field.Path {
	if claim.Status.Allocation == nil {
		return nil
	}
	for i, result := range claim.Status.Allocation.Devices.Results {
		if ptr.Deref(result.AdminAccess, false) {
			return field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
		}
	}
	return nil
}

// namespaceOf returns the current namespace of a request.
func namespaceOf(ctx context.Context, rs registry.Registries) (*corev1.Namespace, error) {
	namespaces := rs[corev1.Resource("namespaces")]
	if namespaces == nil {
		return nil, errors.New("there are no namespaces")
	}
	name := genericrequest.NamespaceValue(ctx)
	obj, err := namespaces.Get(genericrequest.WithNamespace(ctx, metav1.NamespaceNone), name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Namespace), nil
}
