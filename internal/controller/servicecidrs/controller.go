package servicecidrs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	rangesName    = "service-cidr-controller"
	addressesName = "ipaddress-controller"
	workers       = 2
	// byAddress is the name of the index of services by cluster IP.
	byAddress = "servicecidrs.address"
)

type reconciler struct {
	client    kubernetes.Interface
	services  cache.Indexer
	ranges    networkinglisters.ServiceCIDRLister
	addresses networkinglisters.IPAddressLister
	now       func() time.Time
}

// Controllers returns the controller of ServiceCIDRs and the controller of the IPAddresses of
// services.
func Controllers(shared *controller.Context) ([]*controller.Controller, error) {
	c, err := newReconciler(shared)
	if err != nil {
		return nil, err
	}
	ranges := shared.Informers.ServiceCIDRs
	c.ranges = ranges.Lister()
	return []*controller.Controller{c.rangeController(ranges, shared.Informers.Services.Informer()), c.addressController(shared)}, nil
}

// Addresses returns the controller of the IPAddresses of services alone.
func Addresses(shared *controller.Context) (*controller.Controller, error) {
	c, err := newReconciler(shared)
	if err != nil {
		return nil, err
	}
	return c.addressController(shared), nil
}

// newReconciler returns the reconciler, without its ranges.
func newReconciler(shared *controller.Context) (*reconciler, error) {
	services := shared.Informers.Services.Informer()
	if err := services.AddIndexers(cache.Indexers{byAddress: indexAddresses}); err != nil {
		return nil, fmt.Errorf("index services by address: %w", err)
	}
	addresses := shared.Informers.IPAddresses.Lister()
	return &reconciler{client: shared.Client, services: services.GetIndexer(), addresses: addresses, now: shared.Clock.Now}, nil
}

func (c *reconciler) rangeController(ranges controller.SharedInformer[networkinglisters.ServiceCIDRLister], services cache.SharedIndexInformer) *controller.Controller {
	return &controller.Controller{
		Name: rangesName, Reconcile: c.reconcileRange, Workers: 1,
		Sources: []controller.Source{
			controller.For(ranges.Informer()),
			// A new range, or a free address, may end the protection of another range.
			{Informer: ranges.Informer(), Keys: c.terminating},
			{Informer: services, Keys: c.terminating},
		},
	}
}

func (c *reconciler) addressController(shared *controller.Context) *controller.Controller {
	return &controller.Controller{
		Name: addressesName, Reconcile: c.reconcileAddress, Workers: workers,
		Sources: []controller.Source{
			controller.For(shared.Informers.IPAddresses.Informer()),
			{Informer: shared.Informers.Services.Informer(), Keys: addressKeys},
		},
	}
}

// terminating returns the ServiceCIDRs that are being deleted.
func (c *reconciler) terminating(any) []cache.ObjectName {
	all, err := c.ranges.List(labels.Everything())
	if err != nil {
		return nil // a lister reads from memory
	}
	var keys []cache.ObjectName
	for _, cidr := range all {
		if cidr.DeletionTimestamp != nil {
			keys = append(keys, cache.MetaObjectToName(cidr))
		}
	}
	return keys
}

// addressKeys returns the names of the IPAddresses of a service.
func addressKeys(obj any) []cache.ObjectName {
	names, _ := indexAddresses(obj) // it never fails
	var keys []cache.ObjectName
	for _, name := range names {
		keys = append(keys, cache.ObjectName{Name: name})
	}
	return keys
}

func indexAddresses(obj any) ([]string, error) {
	service, ok := obj.(*corev1.Service)
	if !ok {
		return nil, nil
	}
	var names []string
	for _, address := range addressesOf(service) {
		names = append(names, address.String())
	}
	return names, nil
}

func (c *reconciler) reconcileAddress(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	address, err := netip.ParseAddr(key.Name)
	if err != nil {
		return 0, nil //nolint:nilerr // not an address of a service
	}
	known, err := c.addresses.Get(key.Name)
	if apierrors.IsNotFound(err) {
		known, err = nil, nil
	}
	if err != nil {
		return 0, err
	}
	service, err := c.holder(address)
	if err != nil {
		return 0, err
	}
	client := c.client.NetworkingV1().IPAddresses()
	switch step := DecideAddress(address, service, known).(type) {
	case Create:
		if _, err := client.Create(ctx, step.Address, metav1.CreateOptions{}); err != nil && !controller.IsAlreadyExists(err) {
			return 0, fmt.Errorf("create ipaddress %s: %w", address, err)
		}
	case Delete:
		err := client.Delete(ctx, key.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &step.Address.UID, ResourceVersion: &step.Address.ResourceVersion},
		})
		if err != nil && !controller.IsNotFound(err) {
			return 0, fmt.Errorf("delete ipaddress %s: %w", address, err)
		}
	case Keep:
	}
	return 0, nil
}

// holder returns the service that has an address; nil if no service has it. The API server keeps
// addresses unique, but the cache may lag.
func (c *reconciler) holder(address netip.Addr) (*corev1.Service, error) {
	found, err := c.services.ByIndex(byAddress, address.String())
	if err != nil || len(found) == 0 {
		return nil, err
	}
	service, ok := found[0].(*corev1.Service)
	if !ok {
		return nil, fmt.Errorf("a service is a %T", found[0])
	}
	return service, nil
}

func (c *reconciler) reconcileRange(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	cidr, err := c.ranges.Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	all, err := c.ranges.List(labels.Everything())
	if err != nil {
		return 0, err
	}
	plan := DecideRange(cidr, all, c.knownAddresses(), c.now())
	if plan.SetFinalizers && cidr.DeletionTimestamp != nil {
		// Only a live read proves that no address is in use.
		if plan, err = c.decideLive(ctx, cidr); err != nil {
			return 0, err
		}
	}
	switch {
	case plan.SetFinalizers:
		err = c.setFinalizers(ctx, cidr, plan.Finalizers)
	case plan.Condition != nil:
		now := cidr.DeepCopy()
		meta.SetStatusCondition(&now.Status.Conditions, *plan.Condition)
		_, err = c.client.NetworkingV1().ServiceCIDRs().UpdateStatus(ctx, now, metav1.UpdateOptions{})
	}
	if err != nil {
		return 0, controller.IgnoreNotFound(err)
	}
	return plan.RequeueAfter, nil
}

// knownAddresses returns the addresses that are in use according to the caches.
func (c *reconciler) knownAddresses() []netip.Addr {
	var used []netip.Addr
	for _, obj := range c.services.List() {
		if service, ok := obj.(*corev1.Service); ok {
			used = append(used, addressesOf(service)...)
		}
	}
	return used
}

// decideLive decides on live reads.
func (c *reconciler) decideLive(ctx context.Context, cidr *networkingv1.ServiceCIDR) (RangePlan, error) {
	ranges, err := c.client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if err != nil {
		return RangePlan{}, fmt.Errorf("list service CIDRs: %w", err)
	}
	var all []*networkingv1.ServiceCIDR
	for i := range ranges.Items {
		all = append(all, &ranges.Items[i])
	}
	services, err := c.client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return RangePlan{}, fmt.Errorf("list services: %w", err)
	}
	var used []netip.Addr
	for i := range services.Items {
		used = append(used, addressesOf(&services.Items[i])...)
	}
	return DecideRange(cidr, all, used, c.now()), nil
}

func (c *reconciler) setFinalizers(ctx context.Context, cidr *networkingv1.ServiceCIDR, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": cidr.UID, "resourceVersion": cidr.ResourceVersion, "finalizers": finalizers,
	}})
	if err == nil {
		_, err = c.client.NetworkingV1().ServiceCIDRs().Patch(ctx, cidr.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("set the finalizers of service CIDR %s: %w", cidr.Name, err)
	}
	return nil
}
