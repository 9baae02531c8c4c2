package registry

import (
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func rbacKinds() []Kind {
	return []Kind{roles(), roleBindings(), clusterRoles(), clusterRoleBindings()}
}

// rbacRow is what the four kinds have in common. Their names are path segments:
// system roles have colons in them.
func rbacRow(kind, resource, why string) Kind {
	return Kind{
		GroupVersion:        rbacv1.SchemeGroupVersion,
		Kind:                kind,
		Resource:            resource,
		Why:                 why,
		Name:                path.ValidatePathSegmentName,
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
	}
}

// createdColumn is what these kinds show in place of their age.
func createdColumn() column {
	return textAt("Created At", "When the object was created.", func(obj runtime.Object, _ time.Time) string {
		return metaOf(obj).GetCreationTimestamp().UTC().Format(time.RFC3339)
	})
}

func roles() Kind {
	row := rbacRow("Role", "roles", "What may be done in a namespace; removed last when the namespace is deleted, so that those who clean up still may.")
	row.Namespaced = true
	return define[rbacv1.Role, rbacv1.RoleList](row, []column{createdColumn()}, behaviour[*rbacv1.Role]{
		validate: func(r *rbacv1.Role) field.ErrorList {
			return each(r.Rules, field.NewPath("rules"), validateNamespacedRule)
		},
	})
}

func clusterRoles() Kind {
	row := rbacRow("ClusterRole", "clusterroles", "What may be done everywhere; what the collector itself may do.")
	return define[rbacv1.ClusterRole, rbacv1.ClusterRoleList](row, []column{createdColumn()}, behaviour[*rbacv1.ClusterRole]{
		validate: validateClusterRole,
	})
}

func validateClusterRole(r *rbacv1.ClusterRole) field.ErrorList {
	errs := each(r.Rules, field.NewPath("rules"), validateRule)
	if r.AggregationRule == nil {
		return errs
	}
	selectors := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		return append(errs, field.Required(selectors, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	return append(errs, each(r.AggregationRule.ClusterRoleSelectors, selectors, validLabelSelector)...)
}

func validateNamespacedRule(rule *rbacv1.PolicyRule, at *field.Path) field.ErrorList {
	if len(rule.NonResourceURLs) > 0 {
		return append(validateRule(rule, at),
			field.Invalid(at.Child("nonResourceURLs"), rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
	}
	return validateRule(rule, at)
}

// validateRule checks that a rule says what may be done to what.
func validateRule(rule *rbacv1.PolicyRule, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Verbs) == 0 {
		errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
	}
	if len(rule.NonResourceURLs) > 0 {
		if len(rule.APIGroups)+len(rule.Resources)+len(rule.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), rule.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(rule.APIGroups) == 0 {
		errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(rule.Resources) == 0 {
		errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}

func roleBindings() Kind {
	row := rbacRow("RoleBinding", "rolebindings", "Who may do it in a namespace; removed last, as roles are.")
	row.Namespaced = true
	return define[rbacv1.RoleBinding, rbacv1.RoleBindingList](row,
		bindingColumns(func(b *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects }),
		behaviour[*rbacv1.RoleBinding]{
			defaults: func(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
			validate: func(b *rbacv1.RoleBinding) field.ErrorList {
				return append(validateRoleRef(b.RoleRef, "Role", "ClusterRole"), validateSubjects(b.Subjects)...)
			},
			validateUpdate: func(b, old *rbacv1.RoleBinding) field.ErrorList { return sameRole(b.RoleRef, old.RoleRef) },
		})
}

func clusterRoleBindings() Kind {
	row := rbacRow("ClusterRoleBinding", "clusterrolebindings", "Who may do it everywhere.")
	return define[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](row,
		bindingColumns(func(b *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects }),
		behaviour[*rbacv1.ClusterRoleBinding]{
			defaults: func(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
			validate: func(b *rbacv1.ClusterRoleBinding) field.ErrorList {
				return append(validateRoleRef(b.RoleRef, "ClusterRole"), validateSubjects(b.Subjects)...)
			},
			validateUpdate: func(b, old *rbacv1.ClusterRoleBinding) field.ErrorList { return sameRole(b.RoleRef, old.RoleRef) },
		})
}

func bindingColumns[P runtime.Object](of func(P) (rbacv1.RoleRef, []rbacv1.Subject)) []column {
	subjects := func(kind string) func(P) string {
		return func(b P) string {
			_, all := of(b)
			chosen := slices.DeleteFunc(slices.Clone(all), func(s rbacv1.Subject) bool { return s.Kind != kind })
			return joined(chosen, func(s rbacv1.Subject) string {
				if s.Namespace != "" {
					return s.Namespace + "/" + s.Name
				}
				return s.Name
			})
		}
	}
	return append([]column{
		text("Role", "Role that is granted.", func(b P) string {
			ref, _ := of(b)
			return ref.Kind + "/" + ref.Name
		}),
		ageColumn(),
	}, wide(
		text("Users", "Users that it is granted to.", subjects(rbacv1.UserKind)),
		text("Groups", "Groups that it is granted to.", subjects(rbacv1.GroupKind)),
		text("ServiceAccounts", "Service accounts that it is granted to.", subjects(rbacv1.ServiceAccountKind)),
	)...)
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	setDefault(&ref.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		if kind := subjects[i].Kind; kind == rbacv1.UserKind || kind == rbacv1.GroupKind {
			setDefault(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}

func validateRoleRef(ref rbacv1.RoleRef, kinds ...string) field.ErrorList {
	at := field.NewPath("roleRef")
	errs := append(
		supported(ref.APIGroup, at.Child("apiGroup"), rbacv1.GroupName),
		supported(ref.Kind, at.Child("kind"), kinds...)...)
	if ref.Name == "" {
		return append(errs, field.Required(at.Child("name"), ""))
	}
	return append(errs, wellFormed(ref.Name, at.Child("name"), path.ValidatePathSegmentName(ref.Name, false))...)
}

// supported checks a field for which nothing is not a value either.
func supported(value string, at *field.Path, allowed ...string) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, allowed)}
}

func validateSubjects(subjects []rbacv1.Subject) field.ErrorList {
	return each(subjects, field.NewPath("subjects"), func(s *rbacv1.Subject, at *field.Path) field.ErrorList {
		errs := required(s.Name, at.Child("name"))
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			if s.Name != "" {
				errs = append(errs, wellFormed(s.Name, at.Child("name"), apivalidation.ValidateServiceAccountName(s.Name, false))...)
			}
			errs = append(errs, supported(s.APIGroup, at.Child("apiGroup"), "")...)
			errs = append(errs, required(s.Namespace, at.Child("namespace"))...)
		case rbacv1.UserKind, rbacv1.GroupKind:
			errs = append(errs, supported(s.APIGroup, at.Child("apiGroup"), rbacv1.GroupName)...)
		default:
			errs = append(errs, supported(s.Kind, at.Child("kind"), rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)...)
		}
		return errs
	})
}

// sameRole: whoever may change a binding's subjects must not thereby hand out another role.
func sameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), ref, "cannot change roleRef")}
}
