package rbacauthorizer

import (
	"context"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
)

// EscalationCheck is the admission that keeps users from granting permissions that they do not
// have: by writing the rules of a role, or by binding a role. A user with the verb escalate on
// the role, or bind on the role that is bound, may do so nevertheless.
type EscalationCheck struct {
	*admission.Handler
	policy    rbac.Policy
	authorize authorizer.UnconditionalAuthorizer
}

var _ admission.ValidationInterface = (*EscalationCheck)(nil)

// NewEscalationCheck returns a check against the rules that policy grants; authorize decides
// about the verbs escalate and bind.
func NewEscalationCheck(policy rbac.Policy, authorize authorizer.UnconditionalAuthorizer) *EscalationCheck {
	return &EscalationCheck{admission.NewHandler(admission.Create, admission.Update), policy, authorize}
}

// Validate implements admission.ValidationInterface.
func (e *EscalationCheck) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().Group != rbacv1.GroupName || a.GetSubresource() != "" {
		return nil
	}
	switch obj := a.GetObject().(type) {
	case *rbacv1.Role:
		old, updates := a.GetOldObject().(*rbacv1.Role)
		if updates && equality.Semantic.DeepEqual(obj.Rules, old.Rules) {
			return nil
		}
		return e.checkRules(ctx, a, obj.Rules)
	case *rbacv1.ClusterRole:
		old, updates := a.GetOldObject().(*rbacv1.ClusterRole)
		if updates && equality.Semantic.DeepEqual(obj.Rules, old.Rules) && equality.Semantic.DeepEqual(obj.AggregationRule, old.AggregationRule) {
			return nil
		}
		rules := obj.Rules
		if obj.AggregationRule != nil {
			// It may select any role, also in the future.
			rules = rbac.Everything()
		}
		return e.checkRules(ctx, a, rules)
	case *rbacv1.RoleBinding:
		old, updates := a.GetOldObject().(*rbacv1.RoleBinding)
		if updates && equality.Semantic.DeepEqual(obj.Subjects, old.Subjects) && obj.RoleRef == old.RoleRef {
			return nil
		}
		return e.checkBinding(ctx, a, obj.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		old, updates := a.GetOldObject().(*rbacv1.ClusterRoleBinding)
		if updates && equality.Semantic.DeepEqual(obj.Subjects, old.Subjects) && obj.RoleRef == old.RoleRef {
			return nil
		}
		return e.checkBinding(ctx, a, obj.RoleRef)
	default:
		return nil
	}
}

func (e *EscalationCheck) checkRules(ctx context.Context, a admission.Attributes, rules []rbacv1.PolicyRule) error {
	return e.check(ctx, a, authorizer.AttributesRecord{
		Verb: "escalate", Resource: a.GetResource().Resource, Namespace: a.GetNamespace(), Name: a.GetName(),
	}, rules)
}

func (e *EscalationCheck) checkBinding(ctx context.Context, a admission.Attributes, ref rbacv1.RoleRef) error {
	wanted := authorizer.AttributesRecord{Verb: "bind", Resource: "roles", Namespace: a.GetNamespace(), Name: ref.Name}
	if ref.Kind == "ClusterRole" {
		wanted.Resource = "clusterroles"
	}
	rules := rbac.RulesOf(e.policy, ref, a.GetNamespace())
	if rules == nil && !e.exists(ref, a.GetNamespace()) {
		// It may be created with any rules.
		if e.allowed(ctx, a, wanted) {
			return nil
		}
		return admission.NewForbidden(a, fmt.Errorf("%s %q not found: binding it before it exists needs the verb bind on it", ref.Kind, ref.Name))
	}
	return e.check(ctx, a, wanted, rules)
}

func (e *EscalationCheck) exists(ref rbacv1.RoleRef, namespace string) bool {
	if ref.Kind == "ClusterRole" {
		_, ok := e.policy.ClusterRole(ref.Name)
		return ok
	}
	_, ok := e.policy.Role(namespace, ref.Name)
	return ok
}

// check allows a user who has the rules already, or the verb.
func (e *EscalationCheck) check(ctx context.Context, a admission.Attributes, verb authorizer.AttributesRecord, rules []rbacv1.PolicyRule) error {
	if e.allowed(ctx, a, verb) {
		return nil
	}
	u := a.GetUserInfo()
	missing := rbac.Missing(e.policy, u, a.GetNamespace(), rules)
	if len(missing) == 0 {
		return nil
	}
	var words strings.Builder
	for _, rule := range missing {
		words.WriteString("\n" + rbac.Compact(rule))
	}
	err := apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf(
		"user %q (groups=%q) is attempting to grant RBAC permissions not currently held:%s", u.GetName(), u.GetGroups(), words.String()))
	return err
}

func (e *EscalationCheck) allowed(ctx context.Context, a admission.Attributes, verb authorizer.AttributesRecord) bool {
	verb.User, verb.APIGroup, verb.APIVersion, verb.ResourceRequest = a.GetUserInfo(), rbacv1.GroupName, "*", true
	decision, _, err := e.authorize.Authorize(ctx, verb)
	return err == nil && decision == authorizer.DecisionAllow
}
