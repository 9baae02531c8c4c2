package bootstrappolicy

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
)

// reconcileRole returns the existing role changed so that it grants at least what wanted
// does, or false if it already does. An administrator's additions are kept, and a role with
// the annotation autoupdate "false" is left unchanged.
func reconcileRole(existing, wanted *rbacv1.ClusterRole) (*rbacv1.ClusterRole, bool) {
	if isKept(existing) {
		return nil, false
	}
	next := existing.DeepCopy()
	changed := addMetadata(&next.ObjectMeta, wanted.ObjectMeta)
	if wanted.AggregationRule != nil {
		// Its rules are those of the roles that it aggregates.
		if !equality.Semantic.DeepEqual(existing.AggregationRule, wanted.AggregationRule) {
			next.AggregationRule, changed = wanted.AggregationRule, true
		}
		return next, changed
	}
	if covered, missing := validation.Covers(existing.Rules, wanted.Rules); !covered {
		next.Rules, changed = append(next.Rules, rbac.JoinVerbs(missing)...), true
	}
	return next, changed
}

// reconcileBinding is reconcileRole for bindings: subjects are added, none is removed. The role
// of a binding is immutable; if it differs, replace is true, and the binding has to be deleted
// and created.
func reconcileBinding(existing, wanted *rbacv1.ClusterRoleBinding) (next *rbacv1.ClusterRoleBinding, changed, replace bool) {
	if isKept(existing) {
		return nil, false, false
	}
	if existing.RoleRef != wanted.RoleRef {
		return wanted, true, true
	}
	next = existing.DeepCopy()
	changed = addMetadata(&next.ObjectMeta, wanted.ObjectMeta)
	for _, subject := range wanted.Subjects {
		if !slices.Contains(next.Subjects, subject) {
			next.Subjects, changed = append(next.Subjects, subject), true
		}
	}
	return next, changed, false
}

func isKept(existing metav1.Object) bool {
	return existing.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false"
}

// addMetadata adds missing labels and annotations.
func addMetadata(meta *metav1.ObjectMeta, wanted metav1.ObjectMeta) (changed bool) {
	add := func(to map[string]string, from map[string]string) map[string]string {
		missing := maps.Clone(from)
		maps.DeleteFunc(missing, func(key, value string) bool { return to[key] == value })
		if len(missing) == 0 {
			return to
		}
		changed = true
		merged := map[string]string{}
		maps.Copy(merged, to)
		maps.Copy(merged, missing)
		return merged
	}
	meta.Labels = add(meta.Labels, wanted.Labels)
	meta.Annotations = add(meta.Annotations, wanted.Annotations)
	return changed
}
