// Package admission decides about a DELETE, or an UPDATE, as the admission of an API server would: which policy or webhook
// denies it, and which webhook has to be asked. It evaluates ValidatingAdmissionPolicies, selectors and match conditions with the
// packages of k8s.io/apiserver that the server has, too, and sends no request:
//
//	Judge.Decide:  the rules, selectors, conditions, bindings and parameters of each policy ──▶ its validations
//	               the rules, selectors and conditions of each webhook ──▶ dead: it denies; alive: it decides
//
// It stands apart from package preview, which plays a deletion without these packages: the collector's Go module
// previews, and does not require k8s.io/apiserver.
package admission

import (
	"context"
	"fmt"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/object"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// Judge implements preview.Judge. It compiles each policy once. It is safe for concurrent use.
type Judge struct {
	// environments makes the environments of expressions, once.
	environments func() *environment.EnvSet

	mu       sync.Mutex
	compiled map[string]validating.Validator // guarded by mu; by UID and resourceVersion
}

var _ preview.Judge = (*Judge)(nil)

// New returns a judge that has compiled nothing.
func New() *Judge {
	return &Judge{
		environments: sync.OnceValue(func() *environment.EnvSet {
			return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
		}),
		compiled: map[string]validating.Validator{},
	}
}

// Decide implements preview.Judge.
func (j *Judge) Decide(d preview.Review) preview.Judgement {
	ctx := context.Background() //nolint:forbidigo // nothing here waits; expressions have a budget
	request, err := requestOf(d)
	if err != nil {
		return preview.Judgement{Deciders: []string{"admission, which cannot be foreseen: " + err.Error()}}
	}
	var judgement preview.Judgement
	for i := range d.Webhooks {
		if w := &d.Webhooks[i]; w.Mutates {
			judgement = merged(judgement, j.webhook(ctx, request, w))
		}
	}
	for i := range d.Policies {
		judgement = merged(judgement, j.policy(ctx, request, &d.Policies[i]))
	}
	for i := range d.Webhooks {
		if w := &d.Webhooks[i]; !w.Mutates {
			judgement = merged(judgement, j.webhook(ctx, request, w))
		}
	}
	return judgement
}

// merged returns what two parts of admission decide together: the first refusal counts.
func merged(a, b preview.Judgement) preview.Judgement {
	if a.Refusal == nil {
		a.Refusal = b.Refusal
	}
	a.Deciders = append(a.Deciders, b.Deciders...)
	return a
}

// request is a DELETE or an UPDATE in the terms of k8s.io/apiserver.
type request struct {
	admission.Attributes

	interfaces admission.ObjectInterfaces
	namespaces corelisters.NamespaceLister // has the namespace of the object
}

func requestOf(d preview.Review) (request, error) {
	kind := d.Object.GroupVersionKind()
	extra := make(map[string][]string, len(d.User.Extra))
	for key, values := range d.User.Extra {
		extra[key] = values
	}
	by := &user.DefaultInfo{Name: d.User.Username, UID: d.User.UID, Groups: d.User.Groups, Extra: extra}
	inNamespace := d.Object.GetNamespace()
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	switch {
	case d.Namespace == nil && inNamespace != "":
		return request{}, fmt.Errorf("namespace %s could not be read", inNamespace) // selectors and expressions need it
	case d.Namespace != nil:
		ns := &corev1.Namespace{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Namespace.Object, ns); err != nil {
			return request{}, fmt.Errorf("decode namespace %s: %w", d.Namespace.GetName(), err)
		}
		if err := known.Add(ns); err != nil {
			return request{}, fmt.Errorf("keep namespace %s: %w", ns.Name, err)
		}
		inNamespace = ns.Name // a Namespace is in itself, as in a request
	}
	operation, after, options := operationOf(d)
	return request{
		Attributes: admission.NewAttributesRecord(after, d.Object, kind, inNamespace, d.Object.GetName(), d.Resource.GroupVersionResource, "",
			operation, options, false, by),
		interfaces: admission.NewObjectInterfacesFromScheme(runtime.NewScheme()),
		namespaces: corelisters.NewNamespaceLister(known),
	}, nil
}

// operationOf returns the operation, the object after it, and its options.
func operationOf(d preview.Review) (admission.Operation, runtime.Object, runtime.Object) {
	if d.After != nil {
		return admission.Update, d.After, &metav1.UpdateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "UpdateOptions"}}
	}
	options := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
	if d.Propagation != "" {
		options.PropagationPolicy = &d.Propagation
	}
	return admission.Delete, nil, options
}

// policy evaluates a policy and its bindings.
func (j *Judge) policy(ctx context.Context, r request, p *inventory.Policy) preview.Judgement {
	undecided := func(why string) preview.Judgement {
		return preview.Judgement{Deciders: []string{fmt.Sprintf("ValidatingAdmissionPolicy %s: %s", p.Name, why)}}
	}
	if !namesVersion(p, r.GetResource().Version) {
		// The server converts the object to a version that the rules name, unless they must match exactly.
		if c := p.Spec.MatchConstraints.MatchPolicy; c != nil && *c == admissionregistrationv1.Exact {
			return preview.Judgement{}
		}
		return undecided("it names another version of " + r.GetResource().GroupResource().String())
	}
	hook := validating.PolicyHook{Policy: &p.ValidatingAdmissionPolicy, Evaluator: j.validator(&p.ValidatingAdmissionPolicy)}
	for i := range p.Bindings {
		hook.Bindings = append(hook.Bindings, &p.Bindings[i])
	}
	if p.Spec.ParamKind != nil {
		if p.Params.Unread != "" {
			return undecided("its parameters are unknown: " + p.Params.Unread)
		}
		hook.ParamInformer, hook.ParamScope = paramsOf(p)
	}
	rights := &unknownRights{}
	dispatcher := validating.NewDispatcher(rights, generic.NewPolicyMatcher(matching.NewMatcher(r.namespaces, nil)))
	err := dispatcher.Dispatch(ctx, r.Attributes, r.interfaces, []validating.PolicyHook{hook})
	if rights.asked {
		return undecided("it asks for rights of the user")
	}
	if err == nil {
		return preview.Judgement{}
	}
	if denied, ok := refusal.Of(err); ok {
		return preview.Judgement{Refusal: &denied}
	}
	return undecided(err.Error())
}

// validator returns the compiled policy.
func (j *Judge) validator(p *admissionregistrationv1.ValidatingAdmissionPolicy) validating.Validator {
	j.mu.Lock()
	defer j.mu.Unlock()
	key := string(p.UID) + " " + p.ResourceVersion
	if known := j.compiled[key]; known != nil {
		return known
	}
	if len(j.compiled) >= mostCompiled {
		clear(j.compiled)
	}
	v := compile(p, j.environments())
	j.compiled[key] = v
	return v
}

// webhook decides whether a webhook is called, and whether it answers.
func (j *Judge) webhook(ctx context.Context, r request, w *inventory.Webhook) preview.Judgement {
	accessor := accessorOf(w)
	called, err := j.calls(ctx, r, accessor)
	switch {
	case err != nil && w.FailsClosed:
		return preview.Judgement{Refusal: &refusal.Refusal{By: refusal.ByUnreachableWebhook, Name: w.Name, Message: err.Error()}}
	case err != nil, !called:
		return preview.Judgement{}
	case w.IsDead():
		return preview.Judgement{Refusal: w.Dead()}
	case w.IsIgnored():
		return preview.Judgement{}
	}
	return preview.Judgement{Deciders: []string{w.String()}}
}

// calls reports whether the API server calls a webhook. Rules that name another version of the resource count, as with
// the default matchPolicy.
func (j *Judge) calls(ctx context.Context, r request, w webhook.WebhookAccessor) (bool, error) {
	namespaces := namespace.Matcher{NamespaceLister: r.namespaces}
	if matches, err := namespaces.MatchNamespaceSelector(w, r.Attributes); err != nil || !matches {
		return false, asError(err)
	}
	if matches, err := (&object.Matcher{}).MatchObjectSelector(w, r.Attributes); err != nil || !matches {
		return false, asError(err)
	}
	if !slices.ContainsFunc(w.GetRules(), func(rule admissionregistrationv1.RuleWithOperations) bool {
		rule.APIVersions = []string{"*"}
		return (&rules.Matcher{Rule: rule, Attr: r.Attributes}).Matches()
	}) {
		return false, nil
	}
	if len(w.GetMatchConditions()) == 0 {
		return true, nil
	}
	versioned, err := admission.NewVersionedAttributes(r.Attributes, r.GetKind(), r.interfaces)
	if err != nil {
		return false, err
	}
	rights := &unknownRights{}
	result := w.GetCompiledMatcher(cel.NewConditionCompiler(j.environments())).Match(ctx, versioned, nil, rights)
	if rights.asked {
		return true, nil // it decides, as far as is known
	}
	return result.Matches, result.Error
}

// asError returns a typed error as an error: nil for a nil pointer.
func asError[E interface {
	comparable
	error
}](err E) error {
	var none E
	if err == none {
		return nil
	}
	return err
}

func accessorOf(w *inventory.Webhook) webhook.WebhookAccessor {
	policy := admissionregistrationv1.Ignore
	if w.FailsClosed {
		policy = admissionregistrationv1.Fail
	}
	whole := func(s *metav1.LabelSelector) *metav1.LabelSelector {
		if s == nil {
			return &metav1.LabelSelector{} // as the server defaults it: everything
		}
		return s
	}
	return webhook.NewValidatingWebhookAccessor(w.Name, w.Configuration, &admissionregistrationv1.ValidatingWebhook{
		Name: w.Name, Rules: w.Rules, FailurePolicy: &policy, MatchConditions: w.Conditions,
		NamespaceSelector: whole(w.NamespaceSelector), ObjectSelector: whole(w.ObjectSelector),
	})
}

// unknownRights notes that an expression asks for rights, which are not known here.
type unknownRights struct{ asked bool }

// Authorize implements authorizer.Authorizer.
func (u *unknownRights) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	u.asked = true
	return authorizer.DecisionNoOpinion, "", nil
}
