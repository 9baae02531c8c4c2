package reader

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Facts reads facts beyond metadata, as a user may read them. Create it with NewFacts. It is not safe for concurrent
// use.
type Facts struct {
	client kubernetes.Interface
	config *rest.Config

	whole         dynamic.Interface // nil before the first whole object is read
	bytesOfBodies atomic.Int64      // of the whole objects, as JSON
	resources     meta.RESTMapper   // nil before the first use

	// These are about the server; nil before they are looked up.
	ours     *bool // whether coppice up runs it
	enforced *enforced
	checker  *checked
	defaults *defaults

	isListed bool // whether all workloads were listed
}

// checked is the configuration of the webhook that checks what objects outlive, or the error of its read.
type checked struct {
	by  *protection.Checker
	err error
}

// NewFacts returns a reader of facts for the cluster of config. The rate limits of config do not apply, because a user
// waits.
func NewFacts(config *rest.Config) (*Facts, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(Protobuf(config))
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Facts{client: client, config: config}, nil
}

// Read adds the needed facts. A fact that cannot be read is added with the reason. Requests end
// with ctx.
func (r *Facts) Read(ctx context.Context, needs inventory.Needs, facts *inventory.Facts) {
	r.readWorkloads(ctx, needs.Workloads, facts.Workloads)
	for _, o := range sorted(needs.Leases) {
		facts.Leases[o.UID] = inventory.FactOf(r.lease(ctx, o))
	}
	for _, o := range sorted(needs.Protections) {
		facts.Protections[o.UID] = inventory.FactOf(r.Protection(ctx, o))
	}
	r.readNodes(ctx, needs.Nodes, facts.Nodes)
	for _, name := range slices.Sorted(maps.Keys(needs.Volumes)) {
		facts.Volumes[name] = inventory.FactOf(r.volume(ctx, name))
	}
	for _, name := range slices.Sorted(maps.Keys(needs.Classes)) {
		facts.Classes[name] = inventory.FactOf(classUsers(ctx, r.client, name))
	}
	for _, namespace := range slices.Sorted(maps.Keys(needs.Budgets)) {
		facts.Budgets[namespace] = inventory.FactOf(r.budgets(ctx, namespace))
	}
	for _, namespace := range slices.Sorted(maps.Keys(needs.Tokens)) {
		facts.Tokens[namespace] = inventory.FactOf(r.tokens(ctx, namespace))
	}
	r.readOutages(ctx, needs.Outages, facts.Outages)
	if needs.Roles {
		facts.Roles = new(inventory.FactOf(r.roles(ctx)))
	}
	if needs.Webhooks {
		facts.Webhooks = new(inventory.FactOf(r.webhooks(ctx)))
	}
	r.readDefinitions(ctx, needs, facts)
	r.readBodies(ctx, needs.Bodies, facts.Bodies)
	r.readEvents(ctx, needs.Events, facts.Events)
	if needs.Policies {
		facts.Policies = new(inventory.FactOf(r.policies(ctx)))
	}
	if needs.Deleters {
		facts.Deleters = new(inventory.FactOf(r.deleters(ctx)))
	}
	if needs.RepeatedReplaces {
		facts.RepeatedReplaces = &inventory.Fact[bool]{Value: !r.isOurs()}
	}
	if needs.Controllers {
		facts.Controllers = new(inventory.FactOf(r.runControllers(ctx)))
	}
}

// runControllers reports whether the controllers of workloads run in the process of the API server: one of coppice up
// lists them as a component.
func (r *Facts) runControllers(ctx context.Context) (bool, error) {
	if !r.isOurs() {
		return false, nil
	}
	_, err := r.client.CoreV1().ComponentStatuses().Get(ctx, "controller-manager", metav1.GetOptions{})
	return err == nil, ignoreNotFound(err)
}

// objects returns the client for whole objects.
func (r *Facts) objects() (dynamic.Interface, error) {
	if r.whole != nil {
		return r.whole, nil
	}
	var err error
	r.whole, err = dynamic.NewForConfig(r.config)
	return r.whole, err
}

// mapper returns the mapper of kinds to resources. It reads discovery once.
func (r *Facts) mapper() meta.RESTMapper {
	if r.resources == nil {
		r.resources = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(r.client.Discovery()))
	}
	return r.resources
}

// sorted returns objects in the order of their names, so that the same needs cause the same requests.
func sorted(objects map[ownership.UID]*inventory.Object) []*inventory.Object {
	return slices.SortedFunc(maps.Values(objects), func(a, b *inventory.Object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

// volume reads a PersistentVolume, and its claim.
func (r *Facts) volume(ctx context.Context, name string) (inventory.Volume, error) {
	one, err := r.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if err != nil || one.Spec.ClaimRef == nil {
		return inventory.Volume{Volume: one}, err
	}
	var claim *corev1.PersistentVolumeClaim
	claim, err = r.client.CoreV1().PersistentVolumeClaims(one.Spec.ClaimRef.Namespace).Get(ctx, one.Spec.ClaimRef.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return inventory.Volume{Volume: one}, nil
	}
	return inventory.Volume{Volume: one, Claim: claim}, err
}

// budgets reads the PodDisruptionBudgets of a namespace, or of all if it is empty. A server without the kind has none.
func (r *Facts) budgets(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	all, err := r.client.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}
