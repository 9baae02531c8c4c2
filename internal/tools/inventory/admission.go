package inventory

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// Webhook is an admission webhook, validating or mutating.
type Webhook struct {
	Configuration, Name string
	// Mutates is true for a mutating webhook: the API server calls those before it evaluates policies, and the others
	// afterwards.
	Mutates bool
	Rules   []admissionregistrationv1.RuleWithOperations
	// FailsClosed webhooks have the failurePolicy Fail: the API server denies requests while they do not answer.
	FailsClosed bool
	// Service is the service of the webhook; empty for a webhook with a URL.
	Service types.NamespacedName
	// Endpoints is the number of ready endpoints of the service; negative if they could not be read.
	Endpoints int
	// The webhook is called for the objects that the selectors select and for which the conditions are true.
	NamespaceSelector, ObjectSelector *metav1.LabelSelector
	Conditions                        []admissionregistrationv1.MatchCondition
}

// IsSelective reports whether the webhook has selectors or conditions, and so may not be called for an object.
func (w *Webhook) IsSelective() bool {
	return selects(w.NamespaceSelector) || selects(w.ObjectSelector) || len(w.Conditions) > 0
}

func selects(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

// IsDead reports whether the webhook denies each request that it is called for, because nothing answers: it fails
// closed, and its service has no endpoints.
func (w *Webhook) IsDead() bool { return w.FailsClosed && w.Service.Name != "" && w.Endpoints == 0 }

// IsIgnored reports whether the webhook decides about no request, because nothing answers: it fails open, and its service
// has no endpoints.
func (w *Webhook) IsIgnored() bool { return !w.FailsClosed && w.Service.Name != "" && w.Endpoints == 0 }

// Dead returns the refusal of a webhook that is dead.
func (w *Webhook) Dead() *refusal.Refusal {
	return &refusal.Refusal{
		By: refusal.ByUnreachableWebhook, Name: w.Name, Message: fmt.Sprintf("it fails closed, and its service %s has no endpoints", w.Service),
	}
}

// String returns, for example, "webhook a.example.com of ValidatingWebhookConfiguration a".
func (w *Webhook) String() string { return fmt.Sprintf("webhook %s of %s", w.Name, w.Configuration) }

// Concerns reports whether the rules of the webhook match an operation on a resource.
func (w *Webhook) Concerns(operation admissionregistrationv1.OperationType, r *Resource) bool {
	return slices.ContainsFunc(w.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool { return matches(rule, operation, r) })
}

// Policy is a ValidatingAdmissionPolicy with its bindings. Params are the objects of its paramKind.
type Policy struct {
	admissionregistrationv1.ValidatingAdmissionPolicy

	Bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	Params   Fact[[]*unstructured.Unstructured]
	// ParamsAreNamespaced is true if its paramKind is in namespaces.
	ParamsAreNamespaced bool
}

// Concerns reports whether the rules of the policy match an operation on a resource. The exceptions, the selectors, the
// conditions and the bindings may still exclude an object.
func (p *Policy) Concerns(operation admissionregistrationv1.OperationType, r *Resource) bool {
	c := p.Spec.MatchConstraints
	return c != nil && slices.ContainsFunc(c.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		return matches(rule.RuleWithOperations, operation, r)
	})
}

// matches reports whether a rule matches an operation on a resource, of any version.
func matches(rule admissionregistrationv1.RuleWithOperations, operation admissionregistrationv1.OperationType, r *Resource) bool {
	scope := admissionregistrationv1.AllScopes
	if rule.Scope != nil {
		scope = *rule.Scope
	}
	inScope := scope == admissionregistrationv1.AllScopes || (scope == admissionregistrationv1.NamespacedScope) == r.Namespaced
	return inScope && has(rule.Operations, operation, admissionregistrationv1.OperationAll) && has(rule.APIGroups, r.Group, "*") &&
		(has(rule.Resources, r.Resource, "*") || slices.Contains(rule.Resources, "*/*"))
}

func has[T ~string](list []T, one, all T) bool {
	return slices.ContainsFunc(list, func(s T) bool { return strings.EqualFold(string(s), string(one)) || s == all })
}

// Deleters are the users whose requests a preview plays: policies may permit to one what they deny to another.
type Deleters struct {
	Requester, Collector, NamespaceController, PodCollector, TokensController, EndpointsController authenticationv1.UserInfo
	// These remove finalizers: of pods, volume claims, volumes and VolumeAttributesClasses.
	JobController, ClaimProtector, VolumeProtector, ClassProtector authenticationv1.UserInfo
}

// OurControllers returns the users of the controllers on our server.
func OurControllers() Deleters {
	workloads, protector := userNamed("system:coppice:workload-controllers"), userNamed("system:coppice:protection-controller")
	return Deleters{
		Collector: userNamed("system:coppice:collector"), NamespaceController: userNamed("system:coppice:namespace-controller"),
		TokensController: userNamed("system:coppice:tokens-controller"), EndpointsController: workloads,
		PodCollector: workloads, JobController: workloads, ClaimProtector: protector, VolumeProtector: protector, ClassProtector: protector,
	}
}

// KubernetesControllers returns the users of the controllers on clusters whose kube-controller-manager uses a service
// account for each controller. The tokens controller has none.
func KubernetesControllers() Deleters {
	return Deleters{
		Collector: accountOf("generic-garbage-collector"), NamespaceController: accountOf("namespace-controller"),
		TokensController: userNamed("system:kube-controller-manager"), EndpointsController: accountOf("endpoint-controller"),
		PodCollector: accountOf("pod-garbage-collector"), JobController: accountOf("job-controller"),
		ClaimProtector: accountOf("pvc-protection-controller"), VolumeProtector: accountOf("pv-protection-controller"),
		ClassProtector: accountOf("volumeattributesclass-protection-controller"),
	}
}

func accountOf(controller string) authenticationv1.UserInfo {
	const namespace = metav1.NamespaceSystem
	user := userNamed("system:serviceaccount:" + namespace + ":" + controller)
	user.Groups = append([]string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}, user.Groups...)
	return user
}

func userNamed(name string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: name, Groups: []string{"system:authenticated"}}
}
