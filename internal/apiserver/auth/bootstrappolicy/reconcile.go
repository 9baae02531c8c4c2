package rbac

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// ReconcileRole is what an existing role has to become so that it gives at least what
// wanted does, or false where nothing is to be done. What an administrator has added
// stays, and a role whose annotation autoupdate is "false" stays as it is.
func ReconcileRole(existing, wanted *rbacv1.ClusterRole) (*rbacv1.ClusterRole, bool) {
	if kept(existing) {
		return nil, false
	}
	next := existing.DeepCopy()
	changed := complete(&next.ObjectMeta, wanted.ObjectMeta)
	if wanted.AggregationRule != nil {
		// Its rules are those of others.
		if !equality.Semantic.DeepEqual(existing.AggregationRule, wanted.AggregationRule) {
			next.AggregationRule, changed = wanted.AggregationRule, true
		}
		return next, changed
	}
	if covered, missing := validation.Covers(existing.Rules, wanted.Rules); !covered {
		next.Rules, changed = append(next.Rules, joinVerbs(missing)...), true
	}
	return next, changed
}

// ReconcileBinding is ReconcileRole for bindings: subjects are added, none is removed.
// The role of a binding cannot change; if it is another one, replace is true: the
// binding is to be made anew.
func ReconcileBinding(existing, wanted *rbacv1.ClusterRoleBinding) (next *rbacv1.ClusterRoleBinding, changed, replace bool) {
	if kept(existing) {
		return nil, false, false
	}
	if existing.RoleRef != wanted.RoleRef {
		return wanted, true, true
	}
	next = existing.DeepCopy()
	changed = complete(&next.ObjectMeta, wanted.ObjectMeta)
	for _, subject := range wanted.Subjects {
		if !slices.Contains(next.Subjects, subject) {
			next.Subjects, changed = append(next.Subjects, subject), true
		}
	}
	return next, changed, false
}

// kept: who sets the annotation to "false" wants the object to stay as it is.
func kept(existing metav1.Object) bool {
	return existing.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false"
}

// complete adds the labels and annotations that are missing.
func complete(meta *metav1.ObjectMeta, wanted metav1.ObjectMeta) (changed bool) {
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
