package builtin

import (
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// rbacGroup returns the API group rbac.authorization.k8s.io/v1: roles and their bindings. Package auth/rbac authorizes
// requests.
func rbacGroup() registry.Group {
	return registry.Group{
		GroupVersion: rbacv1.SchemeGroupVersion,
		AddToScheme:  rbacv1.AddToScheme,
		Resources: []registry.Resource{
			roles(),
			roleBindings(),
			clusterRoles(),
			clusterRoleBindings(),
		},
	}
}

// rbacRow returns the common part of the four rows. Names are path segments, because names of system roles have colons.
func rbacRow(kind, plural string) registry.Resource {
	return registry.Resource{
		GroupVersion:        rbacv1.SchemeGroupVersion,
		Kind:                kind,
		Plural:              plural,
		ValidateName:        path.ValidatePathSegmentName,
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
	}
}

// roleCreatedColumn returns the column that roles have instead of their age.
func roleCreatedColumn[P interface {
	runtime.Object
	metav1.Object
}]() table.Column {
	return table.Text("Created At", "When the object was created.", func(obj P) string {
		return obj.GetCreationTimestamp().UTC().Format(time.RFC3339)
	})
}

func roles() registry.Resource {
	row := rbacRow("Role", "roles")
	row.Namespaced = true
	return registry.Define[rbacv1.Role, rbacv1.RoleList](row, []table.Column{roleCreatedColumn[*rbacv1.Role]()}, registry.Strategy[*rbacv1.Role]{
		Validate: func(r *rbacv1.Role) field.ErrorList {
			return validate.Each(r.Rules, field.NewPath("rules"), validateNamespacedPolicyRule)
		},
	})
}

func clusterRoles() registry.Resource {
	row := rbacRow("ClusterRole", "clusterroles")
	return registry.Define[rbacv1.ClusterRole, rbacv1.ClusterRoleList](row, []table.Column{roleCreatedColumn[*rbacv1.ClusterRole]()}, registry.Strategy[*rbacv1.ClusterRole]{
		Validate: validateClusterRole,
	})
}

func validateClusterRole(r *rbacv1.ClusterRole) field.ErrorList {
	errs := validate.Each(r.Rules, field.NewPath("rules"), validatePolicyRule)
	if r.AggregationRule == nil {
		return errs
	}
	selectors := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		return append(errs, field.Required(selectors, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	return append(errs, validate.Each(r.AggregationRule.ClusterRoleSelectors, selectors, validateAggregatedRoles)...)
}

// validateAggregatedRoles checks a selector of the roles whose rules a role aggregates.
func validateAggregatedRoles(selector *metav1.LabelSelector, at *field.Path) field.ErrorList {
	errs := validate.LabelSelector(selector, at)
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		errs = append(errs, field.Invalid(at, nil, "invalid label selector."))
	}
	return errs
}

func validateNamespacedPolicyRule(rule *rbacv1.PolicyRule, at *field.Path) field.ErrorList {
	if len(rule.NonResourceURLs) > 0 {
		return append(validatePolicyRule(rule, at),
			field.Invalid(at.Child("nonResourceURLs"), rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
	}
	return validatePolicyRule(rule, at)
}

// validatePolicyRule checks that a rule has verbs, and resources or URLs.
func validatePolicyRule(rule *rbacv1.PolicyRule, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Verbs) == 0 {
		errs = append(errs, field.Required(at.Child("verbs"), ""))
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

func roleBindings() registry.Resource {
	row := rbacRow("RoleBinding", "rolebindings")
	row.Namespaced = true
	return registry.Define[rbacv1.RoleBinding, rbacv1.RoleBindingList](row,
		bindingColumns(func(b *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects }),
		registry.Strategy[*rbacv1.RoleBinding]{
			Default: func(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
			Validate: func(b *rbacv1.RoleBinding) field.ErrorList {
				return append(validateRoleRef(b.RoleRef, "Role", "ClusterRole"), validateBindingSubjects(b.Subjects, b.Namespace)...)
			},
			ValidateUpdate: func(b, old *rbacv1.RoleBinding) field.ErrorList { return keepsRoleRef(b.RoleRef, old.RoleRef) },
		})
}

func clusterRoleBindings() registry.Resource {
	row := rbacRow("ClusterRoleBinding", "clusterrolebindings")
	return registry.Define[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](row,
		bindingColumns(func(b *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects }),
		registry.Strategy[*rbacv1.ClusterRoleBinding]{
			Default: func(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
			Validate: func(b *rbacv1.ClusterRoleBinding) field.ErrorList {
				return append(validateRoleRef(b.RoleRef, "ClusterRole"), validateBindingSubjects(b.Subjects, "")...)
			},
			ValidateUpdate: func(b, old *rbacv1.ClusterRoleBinding) field.ErrorList { return keepsRoleRef(b.RoleRef, old.RoleRef) },
		})
}

func bindingColumns[P runtime.Object](of func(P) (rbacv1.RoleRef, []rbacv1.Subject)) []table.Column {
	subjects := func(kind string) func(P) string {
		return func(b P) string {
			_, all := of(b)
			chosen := slices.DeleteFunc(slices.Clone(all), func(s rbacv1.Subject) bool { return s.Kind != kind })
			return table.Join(chosen, func(s rbacv1.Subject) string {
				if s.Namespace != "" {
					return s.Namespace + "/" + s.Name
				}
				return s.Name
			})
		}
	}
	return append([]table.Column{
		table.Text("Role", "Role that is granted.", func(b P) string {
			ref, _ := of(b)
			return ref.Kind + "/" + ref.Name
		}),
		table.Age(),
	}, table.Wide(
		table.Text("Users", "Users that it is granted to.", subjects(rbacv1.UserKind)),
		table.Text("Groups", "Groups that it is granted to.", subjects(rbacv1.GroupKind)),
		table.Text("ServiceAccounts", "Service accounts that it is granted to.", subjects(rbacv1.ServiceAccountKind)),
	)...)
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	registry.SetDefault(&ref.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		if kind := subjects[i].Kind; kind == rbacv1.UserKind || kind == rbacv1.GroupKind {
			registry.SetDefault(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}

func validateRoleRef(ref rbacv1.RoleRef, kinds ...string) field.ErrorList {
	at := field.NewPath("roleRef")
	errs := append(
		supportedInBinding(ref.APIGroup, at.Child("apiGroup"), rbacv1.GroupName),
		supportedInBinding(ref.Kind, at.Child("kind"), kinds...)...)
	if ref.Name == "" {
		return append(errs, field.Required(at.Child("name"), ""))
	}
	return append(errs, validate.FromMessages(ref.Name, at.Child("name"), path.ValidatePathSegmentName(ref.Name, false))...)
}

// supportedInBinding checks an enumeration that has no empty value.
func supportedInBinding(value string, at *field.Path, allowed ...string) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, allowed)}
}

// validateBindingSubjects checks the subjects of a binding. The namespace of a RoleBinding is the default namespace of its
// service accounts.
func validateBindingSubjects(subjects []rbacv1.Subject, namespace string) field.ErrorList {
	return validate.Each(subjects, field.NewPath("subjects"), func(s *rbacv1.Subject, at *field.Path) field.ErrorList {
		errs := validate.Required(s.Name, at.Child("name"))
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			if s.Name != "" {
				errs = append(errs, validate.FromMessages(s.Name, at.Child("name"), apivalidation.ValidateServiceAccountName(s.Name, false))...)
			}
			errs = append(errs, supportedInBinding(s.APIGroup, at.Child("apiGroup"), "")...)
			if namespace == "" {
				errs = append(errs, validate.Required(s.Namespace, at.Child("namespace"))...)
			}
		case rbacv1.UserKind, rbacv1.GroupKind:
			errs = append(errs, supportedInBinding(s.APIGroup, at.Child("apiGroup"), rbacv1.GroupName)...)
		default:
			errs = append(errs, supportedInBinding(s.Kind, at.Child("kind"), rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)...)
		}
		return errs
	})
}

// keepsRoleRef ensures that the permission to change a binding's subjects is not a permission to
// grant another role.
func keepsRoleRef(ref, old rbacv1.RoleRef) field.ErrorList {
	return validate.Immutable(ref, old, field.NewPath("roleRef"))
}
