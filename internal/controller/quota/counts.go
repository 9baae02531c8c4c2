package quota

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// countPrefix is the prefix of the names in quotas of numbers of objects, as in count/deployments.apps.
const countPrefix = "count/"

// aliased returns the resources of the core group that are counted under their own name, too.
func aliased() []string {
	return []string{"configmaps", "replicationcontrollers", "resourcequotas", "secrets"}
}

// counted is the evaluator of a resource whose quotas limit only the number of objects.
type counted struct {
	quotav1.Evaluator
	number func(namespace string) (int, error)
}

// Count returns the evaluator of a resource whose quotas limit only the number of objects. number
// returns the number of objects in a namespace; it may be nil if UsageStats is not called.
func Count(resource schema.GroupResource, number func(namespace string) (int, error)) quotav1.Evaluator {
	var alias corev1.ResourceName
	if resource.Group == corev1.GroupName && slices.Contains(aliased(), resource.Resource) {
		alias = corev1.ResourceName(resource.Resource)
	}
	return counted{generic.NewObjectCountEvaluator(resource, nil, alias), number}
}

// UsageStats implements quotav1.Evaluator, without a list of the objects. No scope selects any of them.
func (c counted) UsageStats(options quotav1.UsageStatsOptions) (quotav1.UsageStats, error) {
	stats := quotav1.UsageStats{Used: corev1.ResourceList{}}
	n, err := c.number(options.Namespace)
	if err != nil {
		return stats, err
	}
	if len(options.Scopes) > 0 || options.ScopeSelector != nil && len(options.ScopeSelector.MatchExpressions) > 0 {
		n = 0
	}
	for _, name := range options.Resources {
		stats.Used[name] = number(n)
	}
	return stats, nil
}

// Resources returns the resources whose objects must be known to compute the usage of a quota.
func Resources(hard corev1.ResourceList) []schema.GroupResource {
	found := map[schema.GroupResource]bool{}
	for name := range hard {
		if resource, ok := resourceOf(name); ok {
			found[resource] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
}

// resourceOf returns the resource that a name in a quota limits.
func resourceOf(name corev1.ResourceName) (schema.GroupResource, bool) {
	for _, e := range Evaluators(nil) {
		if len(e.MatchingResources([]corev1.ResourceName{name})) > 0 {
			return e.GroupResource(), true
		}
	}
	if slices.Contains(aliased(), string(name)) {
		return corev1.Resource(string(name)), true
	}
	text, ok := strings.CutPrefix(string(name), countPrefix)
	if !ok {
		return schema.GroupResource{}, false
	}
	resource := schema.ParseGroupResource(text)
	_, isIgnored := ignored()[resource]
	return resource, !isIgnored
}
