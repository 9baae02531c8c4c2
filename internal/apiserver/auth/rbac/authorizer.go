package rbac

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
)

// InformerPolicy provides roles and bindings from informers. It is safe for concurrent use.
type InformerPolicy struct {
	roles               rbaclisters.RoleLister
	clusterRoles        rbaclisters.ClusterRoleLister
	roleBindings        rbaclisters.RoleBindingLister
	clusterRoleBindings rbaclisters.ClusterRoleBindingLister
}

var _ Policy = (*InformerPolicy)(nil)

// NewInformerPolicy returns an InformerPolicy that reads from shared. Until shared has synced, no user has a role.
func NewInformerPolicy(shared informers.SharedInformerFactory) *InformerPolicy {
	v1 := shared.Rbac().V1()
	return &InformerPolicy{v1.Roles().Lister(), v1.ClusterRoles().Lister(), v1.RoleBindings().Lister(), v1.ClusterRoleBindings().Lister()}
}

// Role implements Policy.
func (p *InformerPolicy) Role(namespace, name string) (*rbacv1.Role, bool) {
	role, err := p.roles.Roles(namespace).Get(name)
	return role, err == nil
}

// ClusterRole implements Policy.
func (p *InformerPolicy) ClusterRole(name string) (*rbacv1.ClusterRole, bool) {
	role, err := p.clusterRoles.Get(name)
	return role, err == nil
}

// RoleBindings implements Policy.
func (p *InformerPolicy) RoleBindings(namespace string) []*rbacv1.RoleBinding {
	bindings, err := p.roleBindings.RoleBindings(namespace).List(labels.Everything())
	utilruntime.Must(err) // listing everything in a cache cannot fail
	return bindings
}

// ClusterRoleBindings implements Policy.
func (p *InformerPolicy) ClusterRoleBindings() []*rbacv1.ClusterRoleBinding {
	bindings, err := p.clusterRoleBindings.List(labels.Everything())
	utilruntime.Must(err)
	return bindings
}

// Authorizer allows requests that a role allows, and has no opinion about others.
type Authorizer struct {
	policy Policy
}

var (
	_ authorizer.Authorizer   = Authorizer{}
	_ authorizer.RuleResolver = Authorizer{}
)

// NewAuthorizer returns an authorizer that decides by policy.
func NewAuthorizer(policy Policy) Authorizer { return Authorizer{policy} }

// Authorize implements authorizer.Authorizer.
func (a Authorizer) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if attributes.GetUser() == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if allowed, reason := Decide(a.policy, attributes); allowed {
		return authorizer.DecisionAllow, reason, nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer. No rule has conditions.
func (a Authorizer) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attributes))
}

// EvaluateConditions implements authorizer.Authorizer. There are none.
func (a Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements authorizer.RuleResolver.
func (a Authorizer) RulesFor(_ context.Context, u user.Info, namespace string) (
	resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo, incomplete bool, err error,
) {
	if u == nil {
		return nil, nil, false, fmt.Errorf("the rules of no user cannot be resolved")
	}
	for grant := range Grants(a.policy, u, namespace) {
		r := grant.Rule
		if len(r.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
			})
		}
		if len(r.NonResourceURLs) > 0 {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
		}
	}
	return resources, paths, false, nil
}
