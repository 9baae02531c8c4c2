package admissionchain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// claimStatusName is the name of the plug-in. Kubernetes has no such plug-in: its registry checks this.
const claimStatusName = "ResourceClaimStatus"

// claimStatus checks which users may change which part of the status of a ResourceClaim. The permission to update
// resourceclaims/status is not enough:
//
//	allocation, reservedFor  update on resourceclaims/binding, in all namespaces
//	devices of a driver      arbitrary-node:update on resourceclaims/driver with the driver's name, or
//	                         associated-node:update for a pod on the node that has the devices
//	admin access             in namespaces that are labelled for it only
//
// These subresources are not served. As in Kubernetes, a user who lacks a permission gets the error that
// the object is invalid.
type claimStatus struct {
	*admission.Handler
	authorize authorizer.UnconditionalAuthorizer
	client    kubernetes.Interface
}

var _ admission.ValidationInterface = (*claimStatus)(nil)

// newClaimStatus returns a claimStatus; authorize decides about permissions.
func newClaimStatus(authorize authorizer.UnconditionalAuthorizer, client kubernetes.Interface) (*claimStatus, error) {
	if authorize == nil {
		return nil, errors.New("admission of resource claims: authorize is required")
	}
	return &claimStatus{Handler: admission.NewHandler(admission.Update), authorize: authorize, client: client}, nil
}

// Validate implements admission.ValidationInterface.
func (p *claimStatus) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != resourcev1.Resource("resourceclaims") || a.GetSubresource() != "status" {
		return nil
	}
	claim, ok := a.GetObject().(*resourcev1.ResourceClaim)
	old, wasOne := a.GetOldObject().(*resourcev1.ResourceClaim)
	if !ok || !wasOne {
		return apierrors.NewInternalError(fmt.Errorf("not ResourceClaims: %T and %T", a.GetObject(), a.GetOldObject()))
	}
	errs := p.checkAdminAccess(ctx, claim, old)
	request, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("authorize a change of the status: %w", err))
	}
	errs = append(errs, p.checkBinding(ctx, request, claim, old)...)
	errs = append(errs, p.checkDevices(ctx, request, claim, old)...)
	if len(errs) == 0 {
		return nil
	}
	return validate.NewInvalid(resourcev1.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), claim.Name, errs)
}

// checkAdminAccess checks that the namespace of a claim is labelled for admin access, if the claim newly
// has it.
func (p *claimStatus) checkAdminAccess(ctx context.Context, claim, old *resourcev1.ResourceClaim) field.ErrorList {
	at, was := adminAccessOf(claim), adminAccessOf(old)
	if at == nil || was != nil {
		return nil
	}
	namespace, err := p.client.CoreV1().Namespaces().Get(ctx, claim.Namespace, metav1.GetOptions{})
	if err != nil {
		return field.ErrorList{field.InternalError(at, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
	}
	if namespace.Labels[resourcev1.DRAAdminNamespaceLabelKey] == "true" {
		return nil
	}
	return field.ErrorList{field.Forbidden(at, fmt.Sprintf(
		"admin access to devices requires the `%s: true` label on the containing namespace", resourcev1.DRAAdminNamespaceLabelKey))}
}

// adminAccessOf returns the path of the first result with admin access, or nil.
func adminAccessOf(claim *resourcev1.ResourceClaim) *field.Path {
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

// checkBinding checks the permission to allocate and reserve.
func (p *claimStatus) checkBinding(ctx context.Context, request authorizer.Attributes, claim, old *resourcev1.ResourceClaim) field.ErrorList {
	if equality.Semantic.DeepEqual(claim.Status.Allocation, old.Status.Allocation) &&
		equality.Semantic.DeepEqual(claim.Status.ReservedFor, old.Status.ReservedFor) {
		return nil
	}
	asked := onSubresource{Attributes: request, verb: request.GetVerb(), subresource: resourcev1.SubresourceBinding}
	if p.allows(ctx, asked) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("status", "allocation"), fmt.Sprintf(
		`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb=%q permission`, asked.verb))}
}

// checkDevices checks the permission to report on the devices of each driver. Without an allocation, there
// is nothing to report.
func (p *claimStatus) checkDevices(ctx context.Context, request authorizer.Attributes, claim, old *resourcev1.ResourceClaim) field.ErrorList {
	if claim.Status.Allocation == nil {
		return nil
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + request.GetVerb()}
	if node := nodeOfAllocation(claim.Status.Allocation); node != "" && isOnNode(request.GetUser(), node) {
		verbs = append([]string{resourcev1.VerbPrefixAssociatedNode + request.GetVerb()}, verbs...)
	}
	var errs field.ErrorList
	for _, driver := range changedDrivers(claim.Status.Devices, old.Status.Devices) {
		if !slices.ContainsFunc(verbs, func(verb string) bool {
			return p.allows(ctx, onSubresource{request, verb, resourcev1.SubresourceDriver, request.GetNamespace(), driver})
		}) {
			errs = append(errs, field.Forbidden(field.NewPath("status", "devices"), fmt.Sprintf(
				`changing status.devices requires resource="resourceclaims/driver", name=%q, verb=%q permission`, driver, verbs)))
		}
	}
	return errs
}

func (p *claimStatus) allows(ctx context.Context, a authorizer.Attributes) bool {
	decision, _, err := p.authorize.Authorize(ctx, a)
	return err == nil && decision == authorizer.DecisionAllow
}

// onSubresource is a request for a subresource that is not served.
type onSubresource struct {
	authorizer.Attributes
	verb, subresource, namespace, name string
}

// GetVerb implements authorizer.Attributes.
func (a onSubresource) GetVerb() string { return a.verb }

// GetSubresource implements authorizer.Attributes.
func (a onSubresource) GetSubresource() string { return a.subresource }

// GetNamespace implements authorizer.Attributes.
func (a onSubresource) GetNamespace() string { return a.namespace }

// GetName implements authorizer.Attributes.
func (a onSubresource) GetName() string { return a.name }

// changedDrivers returns the drivers of devices whose status was added, changed or removed.
func changedDrivers(devices, old []resourcev1.AllocatedDeviceStatus) []string {
	var drivers []string
	missing := func(from, in []resourcev1.AllocatedDeviceStatus) {
		for _, d := range from {
			if !slices.ContainsFunc(in, func(other resourcev1.AllocatedDeviceStatus) bool { return equality.Semantic.DeepEqual(d, other) }) {
				drivers = append(drivers, d.Driver)
			}
		}
	}
	missing(devices, old)
	missing(old, devices)
	slices.Sort(drivers)
	return slices.Compact(drivers)
}

// nodeOfAllocation returns the single node that has the allocated devices, or "".
func nodeOfAllocation(allocation *resourcev1.AllocationResult) string {
	if allocation.NodeSelector == nil || len(allocation.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := allocation.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := term.MatchFields[0]
	if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// isOnNode reports whether a user is the service account of a pod on a node.
func isOnNode(u user.Info, node string) bool {
	return u != nil && strings.HasPrefix(u.GetName(), serviceaccount.ServiceAccountUsernamePrefix) &&
		slices.Equal(u.GetExtra()[serviceaccount.NodeNameKey], []string{node})
}
