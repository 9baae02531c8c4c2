package systemobjects

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// serviceCIDRName is the name of the ServiceCIDR with the server's own range.
const serviceCIDRName = "kubernetes"

// EnsureServiceCIDR creates the ServiceCIDR with the address range of services, and retries until ctx ends.
// The ranges of a ServiceCIDR cannot be changed: if an earlier start has created it with another range, it
// stays, and EnsureServiceCIDR logs that.
func EnsureServiceCIDR(ctx context.Context, log *slog.Logger, client networkingclient.ServiceCIDRsGetter, addresses netip.Prefix) error {
	ranges := addresses.Masked().String()
	return pace.Retry(ctx, log, "create service CIDR "+serviceCIDRName, func(ctx context.Context) error {
		cidr, err := ensureServiceCIDR(ctx, client.ServiceCIDRs(), ranges)
		if err == nil && !slices.Contains(cidr.Spec.CIDRs, ranges) {
			log.WarnContext(ctx, "the ServiceCIDR is not that of this server", "name", serviceCIDRName, "cidrs", cidr.Spec.CIDRs, "own", ranges)
		}
		return err
	})
}

// KeepServiceCIDR recreates the ServiceCIDR whenever it has been deleted, in the background until ctx ends.
func KeepServiceCIDR(
	ctx context.Context, log *slog.Logger, informer cache.SharedInformer, client networkingclient.ServiceCIDRsGetter, addresses netip.Prefix,
) error {
	return keep(ctx, informer, serviceCIDRName, func() error { return EnsureServiceCIDR(ctx, log, client, addresses) })
}

func ensureServiceCIDR(ctx context.Context, client networkingclient.ServiceCIDRInterface, ranges string) (*networkingv1.ServiceCIDR, error) {
	cidr, err := client.Get(ctx, serviceCIDRName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cidr, err = client.Create(ctx, &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: serviceCIDRName}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{ranges}},
		}, metav1.CreateOptions{})
	}
	if err != nil || meta.FindStatusCondition(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady) != nil {
		return cidr, err
	}
	cidr.Status.Conditions = append(cidr.Status.Conditions, metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: cidr.CreationTimestamp,
		Message: "Kubernetes default Service CIDR is ready",
	})
	return client.UpdateStatus(ctx, cidr, metav1.UpdateOptions{})
}
