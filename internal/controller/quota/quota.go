// Package quota counts the usage of ResourceQuotas by objects, with an evaluator for each resource that
// has limits beyond the number of objects. The evaluators implement k8s.io/apiserver/pkg/quota/v1.
//
//	a request ──▶ admission (package admissionchain) ──▶ Evaluators, without a List: the usage of one object
//	a quota   ──▶ controller resourcequota           ──▶ Evaluators, with a List: the usage of all objects
//
// Pods (pods.go), Services (services.go) and PersistentVolumeClaims (claims.go) have evaluators with
// rules of their own; which objects a scope selects is in scopes.go. All other resources are counted
// by number (counts.go).
//
// An object is counted until it is gone, not until it is marked as deleted: it uses its resources as long
// as it exists. Only a pod that has finished counts for nothing but the number of objects.
package quota

import (
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// List returns the objects of a resource in a namespace.
type List func(resource schema.GroupResource, namespace string) ([]runtime.Object, error)

// Evaluators returns the evaluators of the resources that have rules of their own.
func Evaluators(list List) []quotav1.Evaluator {
	return []quotav1.Evaluator{pods(list), services(list), claims(list)}
}

// ForAdmission returns the evaluators for admission. Resources without an evaluator are counted.
func ForAdmission() quotav1.Configuration {
	all := Evaluators(nil)
	for _, name := range aliased() {
		all = append(all, Count(corev1.Resource(name), nil))
	}
	return generic.NewConfiguration(all, ignored())
}

// ignored returns the resources that no quota limits: resources that are not stored, and events.
func ignored() map[schema.GroupResource]struct{} {
	all := map[schema.GroupResource]struct{}{{Group: eventsv1.GroupName, Resource: "events"}: {}}
	for group, resources := range map[string][]string{
		corev1.GroupName:           {"bindings", "componentstatuses", "events"},
		authenticationv1.GroupName: {"tokenreviews", "selfsubjectreviews"},
		authorizationv1.GroupName:  {"subjectaccessreviews", "selfsubjectaccessreviews", "localsubjectaccessreviews", "selfsubjectrulesreviews"},
	} {
		for _, name := range resources {
			all[schema.GroupResource{Group: group, Resource: name}] = struct{}{}
		}
	}
	return all
}

// of returns the function that lists one resource.
func (l List) of(resource schema.GroupResource) generic.ListFuncByNamespace {
	return func(namespace string) ([]runtime.Object, error) { return l(resource, namespace) }
}

// rules are the differences between the evaluators of package quota. Every field but constraints is
// required.
type rules[P runtime.Object] struct {
	resource schema.GroupResource
	// limits reports whether a resource name in a quota limits this resource.
	limits func(corev1.ResourceName) bool
	// usage returns the usage of an object.
	usage func(P) corev1.ResourceList
	// handles reports whether a request may change the usage. old is the zero P for a creation.
	handles func(operation admission.Operation, subresource string, obj, old P) bool
	// matches reports whether a scope selects an object.
	matches func(corev1.ScopedResourceSelectorRequirement, P) (bool, error)
	// constraints returns an error if an object lacks fields that are required to count it.
	constraints func(required []corev1.ResourceName, obj P) error
}

// evaluator implements quotav1.Evaluator by rules.
type evaluator[P runtime.Object] struct {
	rules[P]
	list generic.ListFuncByNamespace
}

func newEvaluator[P runtime.Object](list List, r rules[P]) quotav1.Evaluator {
	return evaluator[P]{r, list.of(r.resource)}
}

// typed returns an object as the type of the evaluator.
func (e evaluator[P]) typed(obj runtime.Object) (P, error) {
	if p, ok := obj.(P); ok {
		return p, nil
	}
	var none P
	return none, fmt.Errorf("the quota of %s cannot count a %T", e.resource, obj)
}

// Constraints implements quotav1.Evaluator.
func (e evaluator[P]) Constraints(required []corev1.ResourceName, item runtime.Object) error {
	if e.constraints == nil {
		return nil
	}
	obj, err := e.typed(item)
	if err != nil {
		return err
	}
	return e.constraints(required, obj)
}

// GroupResource implements quotav1.Evaluator.
func (e evaluator[P]) GroupResource() schema.GroupResource { return e.resource }

// Handles implements quotav1.Evaluator.
func (e evaluator[P]) Handles(a admission.Attributes) bool {
	obj, ok := a.GetObject().(P)
	if !ok {
		return false // such as a Binding
	}
	old, isUpdate := a.GetOldObject().(P)
	switch a.GetOperation() {
	case admission.Create:
		return e.handles(admission.Create, a.GetSubresource(), obj, old)
	case admission.Update:
		return isUpdate && e.handles(admission.Update, a.GetSubresource(), obj, old)
	case admission.Delete, admission.Connect:
	}
	return false
}

// Matches implements quotav1.Evaluator.
func (e evaluator[P]) Matches(quota *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(quota, item, e.MatchingResources, e.inScope)
}

func (e evaluator[P]) inScope(scope corev1.ScopedResourceSelectorRequirement, item runtime.Object) (bool, error) {
	obj, err := e.typed(item)
	if err != nil {
		return false, err
	}
	return e.matches(scope, obj)
}

// MatchingScopes implements quotav1.Evaluator.
func (e evaluator[P]) MatchingScopes(item runtime.Object, scopes []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	var matching []corev1.ScopedResourceSelectorRequirement
	for _, scope := range scopes {
		match, err := e.inScope(scope, item)
		if err != nil {
			return nil, fmt.Errorf("match scope %s: %w", scope.ScopeName, err)
		}
		if match {
			matching = append(matching, scope)
		}
	}
	return matching, nil
}

// UncoveredQuotaScopes implements quotav1.Evaluator.
func (evaluator[P]) UncoveredQuotaScopes(limited, covered []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	names := map[corev1.ResourceQuotaScope]bool{}
	for _, scope := range covered {
		names[scope.ScopeName] = true
	}
	var uncovered []corev1.ScopedResourceSelectorRequirement
	for _, scope := range limited {
		if !names[scope.ScopeName] {
			uncovered = append(uncovered, scope)
		}
	}
	return uncovered, nil
}

// MatchingResources implements quotav1.Evaluator.
func (e evaluator[P]) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	var matching []corev1.ResourceName
	for _, name := range names {
		if e.limits(name) {
			matching = append(matching, name)
		}
	}
	return matching
}

// Usage implements quotav1.Evaluator.
func (e evaluator[P]) Usage(item runtime.Object) (corev1.ResourceList, error) {
	obj, err := e.typed(item)
	if err != nil {
		return nil, err
	}
	return e.usage(obj), nil
}

// UsageStats implements quotav1.Evaluator.
func (e evaluator[P]) UsageStats(options quotav1.UsageStatsOptions) (quotav1.UsageStats, error) {
	return generic.CalculateUsageStats(options, e.list, e.inScope, e.Usage)
}

// number returns a number of objects as a quantity.
func number(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// requests returns the name in quotas of the requests of a resource.
func requests(name corev1.ResourceName) corev1.ResourceName {
	return corev1.DefaultResourceRequestsPrefix + name
}

// isExtended reports whether a resource is not one of Kubernetes' own, such as a device.
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}
