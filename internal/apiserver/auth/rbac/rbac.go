// Package rbac evaluates Roles, ClusterRoles and their bindings, and applies them to a server.
//
// The functions of rbac.go and missing.go have no state and do no I/O: a Policy provides the current roles and
// bindings. Decide authorizes one request; Grants yields the rules of a user; Missing returns the rules that a
// user would grant without having them (escalation); Aggregate returns the rules of an aggregated ClusterRole.
// The other files use them: InformerPolicy reads roles and bindings from informers, Authorizer authorizes
// requests, EscalationCheck guards the registries against privilege escalation, and Aggregator is the controller
// that aggregates ClusterRoles.
//
// The rules of Kubernetes apply: a request that no rule allows is refused, no rule denies, and a
// ClusterRole that a RoleBinding names applies in the namespace of the binding.
package rbac

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Policy provides the roles and bindings of a server. Callers must not modify the returned objects.
type Policy interface {
	Role(namespace, name string) (*rbacv1.Role, bool)
	ClusterRole(name string) (*rbacv1.ClusterRole, bool)
	RoleBindings(namespace string) []*rbacv1.RoleBinding
	ClusterRoleBindings() []*rbacv1.ClusterRoleBinding
}

// Grant is a rule that a user has.
type Grant struct {
	Rule rbacv1.PolicyRule

	binding string // its kind
	name    string // of the binding, with its namespace if it has one
	role    rbacv1.RoleRef
	user    string
}

// By describes the binding and the role that grant the rule.
func (g Grant) By() string {
	return fmt.Sprintf("%s %q of %s %q to %s", g.binding, g.name, g.role.Kind, g.role.Name, g.user)
}

// Decide reports whether a request is allowed, and by which binding. It does not deny other requests:
// another authorizer may allow them.
func Decide(p Policy, a authorizer.Attributes) (allowed bool, reason string) {
	for grant := range Grants(p, a.GetUser(), a.GetNamespace()) {
		if Allows(&grant.Rule, a) {
			return true, "RBAC: allowed by " + grant.By()
		}
	}
	return false, ""
}

// Grants yields the rules that a user has in the whole cluster, and in the namespace unless it is "".
func Grants(p Policy, u user.Info, namespace string) iter.Seq[Grant] {
	return func(yield func(Grant) bool) {
		for _, binding := range p.ClusterRoleBindings() {
			if !applies(binding.Subjects, u, "") {
				continue
			}
			by := Grant{binding: "ClusterRoleBinding", name: binding.Name, role: binding.RoleRef, user: u.GetName()}
			if !each(RulesOf(p, binding.RoleRef, ""), by, yield) {
				return
			}
		}
		if namespace == "" {
			return
		}
		for _, binding := range p.RoleBindings(namespace) {
			if !applies(binding.Subjects, u, binding.Namespace) {
				continue
			}
			by := Grant{binding: "RoleBinding", name: binding.Namespace + "/" + binding.Name, role: binding.RoleRef, user: u.GetName()}
			if !each(RulesOf(p, binding.RoleRef, binding.Namespace), by, yield) {
				return
			}
		}
	}
}

func each(rules []rbacv1.PolicyRule, grant Grant, yield func(Grant) bool) bool {
	for _, rule := range rules {
		grant.Rule = rule
		if !yield(grant) {
			return false
		}
	}
	return true
}

// RulesOf returns the rules of the role that a binding in the namespace refers to; none if the role does
// not exist, or if such a binding cannot refer to it.
func RulesOf(p Policy, ref rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	if ref.APIGroup != rbacv1.GroupName {
		return nil
	}
	switch ref.Kind {
	case "ClusterRole":
		if role, ok := p.ClusterRole(ref.Name); ok {
			return role.Rules
		}
	case "Role":
		if role, ok := p.Role(namespace, ref.Name); ok && namespace != "" {
			return role.Rules
		}
	default:
	}
	return nil
}

// applies reports whether this user is a subject of a binding. A service account without a namespace is in
// the namespace of the binding.
func applies(subjects []rbacv1.Subject, u user.Info, namespace string) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.UserKind:
			return u.GetName() == s.Name
		case rbacv1.GroupKind:
			return slices.Contains(u.GetGroups(), s.Name)
		case rbacv1.ServiceAccountKind:
			of := cmp.Or(s.Namespace, namespace)
			return of != "" && serviceaccount.MatchesUsername(of, s.Name, u.GetName())
		default:
			return false
		}
	})
}

// Allows reports whether a rule allows a request.
func Allows(rule *rbacv1.PolicyRule, a authorizer.Attributes) bool {
	if !hasOrAll(rule.Verbs, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(rule.NonResourceURLs, func(pattern string) bool { return pathMatches(pattern, a.GetPath()) })
	}
	return hasOrAll(rule.APIGroups, a.GetAPIGroup()) &&
		allowsResource(rule.Resources, a.GetResource(), a.GetSubresource()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName()))
}

func hasOrAll(values []string, value string) bool {
	return slices.Contains(values, rbacv1.ResourceAll) || slices.Contains(values, value)
}

// allowsResource reports whether rules for these resources cover a resource: "*" covers every resource and
// subresource, "*/status" covers that subresource of every resource, and a resource does not cover its
// subresources.
func allowsResource(resources []string, resource, subresource string) bool {
	if subresource == "" {
		return hasOrAll(resources, resource)
	}
	return hasOrAll(resources, resource+"/"+subresource) || slices.Contains(resources, rbacv1.ResourceAll+"/"+subresource)
}

// pathMatches reports whether a path matches a pattern: a pattern that ends in * matches by prefix.
func pathMatches(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, rbacv1.NonResourceAll); ok {
		return strings.HasPrefix(path, prefix)
	}
	return pattern == path
}
