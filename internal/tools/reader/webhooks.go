package reader

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// webhooks reads all admission webhooks, and the endpoints of their services.
func (r *Facts) webhooks(ctx context.Context) ([]inventory.Webhook, error) {
	validating, err := r.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, missingRight(err, "list")
	}
	mutating, err := r.client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, missingRight(err, "list")
	}
	found := webhooksOf(validating.Items, mutating.Items)
	for n := range found {
		if w := &found[n]; w.Service.Name != "" {
			w.Endpoints = r.endpoints(ctx, w.Service)
		}
	}
	return found, nil
}

// endpoints returns the number of ready endpoints of a service; negative if it is unknown.
func (r *Facts) endpoints(ctx context.Context, service types.NamespacedName) int {
	one, err := r.client.CoreV1().Services(service.Namespace).Get(ctx, service.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) || err == nil && one.Spec.Type == corev1.ServiceTypeExternalName {
		return -1
	}
	slices, err := r.client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{
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

// webhooksOf returns the webhooks of all configurations in one form.
func webhooksOf(validating []admissionregistrationv1.ValidatingWebhookConfiguration, mutating []admissionregistrationv1.MutatingWebhookConfiguration) []inventory.Webhook {
	var found []inventory.Webhook
	for i := range validating {
		for j := range validating[i].Webhooks {
			w := &validating[i].Webhooks[j]
			one := webhookOf(w.FailurePolicy, w.ClientConfig)
			one.Configuration, one.Name, one.Rules = "ValidatingWebhookConfiguration "+validating[i].Name, w.Name, w.Rules
			one.NamespaceSelector, one.ObjectSelector, one.Conditions = w.NamespaceSelector, w.ObjectSelector, w.MatchConditions
			found = append(found, one)
		}
	}
	for i := range mutating {
		for j := range mutating[i].Webhooks {
			w := &mutating[i].Webhooks[j]
			one := webhookOf(w.FailurePolicy, w.ClientConfig)
			one.Configuration, one.Name, one.Rules = "MutatingWebhookConfiguration "+mutating[i].Name, w.Name, w.Rules
			one.Mutates = true
			one.NamespaceSelector, one.ObjectSelector, one.Conditions = w.NamespaceSelector, w.ObjectSelector, w.MatchConditions
			found = append(found, one)
		}
	}
	return found
}

func webhookOf(policy *admissionregistrationv1.FailurePolicyType, client admissionregistrationv1.WebhookClientConfig) inventory.Webhook {
	w := inventory.Webhook{FailsClosed: policy == nil || *policy == admissionregistrationv1.Fail, Endpoints: -1}
	if client.Service != nil {
		w.Service = types.NamespacedName{Namespace: client.Service.Namespace, Name: client.Service.Name}
	}
	return w
}
