package rbac

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Missing returns the part of the rules that a user does not have in the namespace ("" for the whole
// cluster), one rule for each resource or path. To grant them would be an escalation.
func Missing(p Policy, u user.Info, namespace string, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var own []rbacv1.PolicyRule
	for grant := range Grants(p, u, namespace) {
		own = append(own, grant.Rule)
	}
	_, missing := validation.Covers(own, rules)
	return JoinVerbs(missing)
}

// Everything returns rules that allow everything.
func Everything() []rbacv1.PolicyRule {
	all := []string{"*"}
	return []rbacv1.PolicyRule{
		{Verbs: all, APIGroups: all, Resources: all},
		{Verbs: all, NonResourceURLs: all},
	}
}

// JoinVerbs joins rules that differ in their verbs only.
func JoinVerbs(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var joined []rbacv1.PolicyRule
	for _, rule := range rules {
		i := slices.IndexFunc(joined, func(other rbacv1.PolicyRule) bool {
			other.Verbs = rule.Verbs
			return equality.Semantic.DeepEqual(other, rule)
		})
		if i < 0 {
			joined = append(joined, rule)
			continue
		}
		joined[i].Verbs = append(slices.Clone(joined[i].Verbs), rule.Verbs...)
	}
	return joined
}

// Compact formats a rule like the error messages of Kubernetes.
func Compact(rule rbacv1.PolicyRule) string {
	var parts []string
	add := func(name string, values []string) {
		if len(values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", name, values))
		}
	}
	add("NonResourceURLs", rule.NonResourceURLs)
	add("APIGroups", rule.APIGroups)
	add("Resources", rule.Resources)
	add("ResourceNames", rule.ResourceNames)
	add("Verbs", rule.Verbs)
	return "{" + strings.Join(parts, ", ") + "}"
}

// Aggregate returns the desired rules of a role with an aggregationRule: the rules of all other roles that
// it selects, in the order of their names, without duplicates.
func Aggregate(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) []rbacv1.PolicyRule {
	if role.AggregationRule == nil {
		return role.Rules
	}
	var rules []rbacv1.PolicyRule
	sorted := slices.SortedFunc(slices.Values(all), func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	for _, other := range sorted {
		if other.Name == role.Name || !selected(role.AggregationRule, other) {
			continue
		}
		for _, rule := range other.Rules {
			if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}

func selected(rule *rbacv1.AggregationRule, role *rbacv1.ClusterRole) bool {
	return slices.ContainsFunc(rule.ClusterRoleSelectors, func(s metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		// Admission refuses an invalid selector; if one exists nevertheless, it selects nothing.
		return err == nil && selector.Matches(labels.Set(role.Labels))
	})
}
