// Package details reads the facts beyond metadata that explanations and previews need: the workload of a controller,
// its Lease and its RBAC rules, the state of nodes, and webhooks that may deny a deletion. It reads few objects, and
// sends only GET requests.
package details

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/inventory/reader"
)

// Reader reads each fact on demand, and once. It is for one question, and not safe for concurrent use.
type Reader struct {
	client kubernetes.Interface
	config *rest.Config
	ctx    context.Context //nolint:containedctx // of the one explanation that needs the details

	workloads map[ownership.UID]answer[finalizerowner.Workload]
	listed    bool // workloads has been filled by lists
	nodes     map[string]answer[explain.Node]
	allNodes  bool // nodes has been filled by a list
	volumes   map[string]answer[volume]
	webhooks  *answer[[]explain.Webhook]
	rbac      *answer[*roles]
	ours      *bool // whether coppice up runs the server; nil before the lookup
	enforced  *bool // whether the server refuses to delete protected objects; nil before the lookup
	checker   *answer[*protection.Checker]
}

// answer is a cached response of the server.
type answer[T any] struct {
	value T
	err   error
}

// New returns the details of the cluster of config, as its user may read them. Requests end with ctx, and the rate
// limits of config do not apply, because a user waits.
func New(ctx context.Context, config *rest.Config) (*Reader, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(reader.Protobuf(config))
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Reader{
		client: client, config: config, ctx: ctx,
		workloads: make(map[ownership.UID]answer[finalizerowner.Workload]), nodes: make(map[string]answer[explain.Node]),
		volumes: make(map[string]answer[volume]),
	}, nil
}

// Lease implements finalizerowner.Details.
func (d *Reader) Lease(o *inventory.Object) (finalizerowner.Lease, error) {
	one, err := d.client.CoordinationV1().Leases(o.Namespace).Get(d.ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return finalizerowner.Lease{}, err
	}
	return leaseOf(one), nil
}

// volume is a PersistentVolume, and the claim with the name in its claimRef.
type volume struct {
	volume *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim
}

// Volume implements preview.Details.
func (d *Reader) Volume(name string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error) {
	known, ok := d.volumes[name]
	if !ok {
		known.value, known.err = d.readVolume(name)
		d.volumes[name] = known
	}
	return known.value.volume, known.value.claim, known.err
}

func (d *Reader) readVolume(name string) (volume, error) {
	one, err := d.client.CoreV1().PersistentVolumes().Get(d.ctx, name, metav1.GetOptions{})
	if err != nil || one.Spec.ClaimRef == nil {
		return volume{volume: one}, err
	}
	claim, err := d.client.CoreV1().PersistentVolumeClaims(one.Spec.ClaimRef.Namespace).Get(d.ctx, one.Spec.ClaimRef.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return volume{volume: one}, nil
	}
	return volume{one, claim}, err
}

// Budgets implements preview.Details. A server without the kind has none.
func (d *Reader) Budgets(namespace string) ([]policyv1.PodDisruptionBudget, error) {
	all, err := d.client.PolicyV1().PodDisruptionBudgets(namespace).List(d.ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// Webhooks implements explain.Details.
func (d *Reader) Webhooks() ([]explain.Webhook, error) {
	if d.webhooks == nil {
		found, err := d.readWebhooks()
		d.webhooks = &answer[[]explain.Webhook]{found, err}
	}
	return d.webhooks.value, d.webhooks.err
}

func (d *Reader) readWebhooks() ([]explain.Webhook, error) {
	validating, err := d.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(d.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	mutating, err := d.client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(d.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := webhooksOf(validating.Items, mutating.Items)
	for n := range found {
		if w := &found[n]; w.FailsClosed && w.Service.Name != "" {
			w.Endpoints = d.endpoints(w.Service)
		}
	}
	return found, nil
}

// endpoints returns the number of ready endpoints of a service; negative if it is unknown.
func (d *Reader) endpoints(service types.NamespacedName) int {
	one, err := d.client.CoreV1().Services(service.Namespace).Get(d.ctx, service.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) || err == nil && one.Spec.Type == corev1.ServiceTypeExternalName {
		return -1
	}
	slices, err := d.client.DiscoveryV1().EndpointSlices(service.Namespace).List(d.ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name,
	})
	if err != nil {
		return -1
	}
	ready := 0
	for i := range slices.Items {
		for _, e := range slices.Items[i].Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready++
			}
		}
	}
	return ready
}

// Rules implements finalizerowner.Details.
func (d *Reader) Rules(account types.NamespacedName, namespace string) ([]rbacv1.PolicyRule, error) {
	if d.rbac == nil {
		r, err := readRoles(d.ctx, d.client.RbacV1())
		d.rbac = &answer[*roles]{r, err}
	}
	if d.rbac.err != nil {
		return nil, d.rbac.err
	}
	return d.rbac.value.of(account, namespace), nil
}

var _ explain.Details = (*Reader)(nil)

// webhooksOf returns the webhooks of all configurations in one form.
func webhooksOf(validating []admissionregistrationv1.ValidatingWebhookConfiguration, mutating []admissionregistrationv1.MutatingWebhookConfiguration) []explain.Webhook {
	var found []explain.Webhook
	for i := range validating {
		for j := range validating[i].Webhooks {
			w := &validating[i].Webhooks[j]
			one := webhookOf(w.FailurePolicy, w.ClientConfig)
			one.Configuration, one.Name, one.Rules = "ValidatingWebhookConfiguration "+validating[i].Name, w.Name, w.Rules
			one.Selective = selects(w.NamespaceSelector) || selects(w.ObjectSelector) || len(w.MatchConditions) > 0
			found = append(found, one)
		}
	}
	for i := range mutating {
		for j := range mutating[i].Webhooks {
			w := &mutating[i].Webhooks[j]
			one := webhookOf(w.FailurePolicy, w.ClientConfig)
			one.Configuration, one.Name, one.Rules = "MutatingWebhookConfiguration "+mutating[i].Name, w.Name, w.Rules
			one.Selective = selects(w.NamespaceSelector) || selects(w.ObjectSelector) || len(w.MatchConditions) > 0
			found = append(found, one)
		}
	}
	return found
}

func webhookOf(policy *admissionregistrationv1.FailurePolicyType, client admissionregistrationv1.WebhookClientConfig) explain.Webhook {
	w := explain.Webhook{FailsClosed: policy == nil || *policy == admissionregistrationv1.Fail, Endpoints: -1}
	if client.Service != nil {
		w.Service = types.NamespacedName{Namespace: client.Service.Namespace, Name: client.Service.Name}
	}
	return w
}

func selects(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}
