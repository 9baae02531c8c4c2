package rbac

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// EscalationCheck keeps users from granting permissions that they do not have, by writing or binding a
// role. A user with the verb escalate on the role, or bind on the bound role, may do so nevertheless.
//
// It checks the whole object with each write, whatever the write changes: a label alone makes another role
// aggregate the rules of a role, and an update of a binding repeats the grant. Only a write of nothing but
// owner references and finalizers is not checked, because garbage collection must be able to release every
// object.
type EscalationCheck struct {
	policy    Policy
	authorize authorizer.UnconditionalAuthorizer
	roles     map[string]rest.Getter // "roles" and "clusterroles", live
}

// NewEscalationCheck returns a check against the rules that policy grants; authorize decides about the
// verbs escalate and bind.
func NewEscalationCheck(policy Policy, authorize authorizer.UnconditionalAuthorizer) *EscalationCheck {
	return &EscalationCheck{policy: policy, authorize: authorize, roles: map[string]rest.Getter{}}
}

// Guard puts the check in front of the registries of roles and bindings, by resource.
func (e *EscalationCheck) Guard(storages map[string]rest.Storage) error {
	for _, resource := range []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"} {
		inner, ok := storages[resource].(*registry.REST)
		if !ok {
			return fmt.Errorf("guard %s against privilege escalation: its registry is a %T", resource, storages[resource])
		}
		if resource == "roles" || resource == "clusterroles" {
			e.roles[resource] = inner
		}
		storages[resource] = guarded{inner, e}
	}
	return nil
}

// guarded is a registry with checked writes. As in kube-apiserver, the check comes after mutating admission
// and before validation.
type guarded struct {
	*registry.REST
	check *EscalationCheck
}

// Create implements rest.Creater.
func (g guarded) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := g.check.write(ctx, obj, nil); err != nil {
		return nil, err
	}
	return g.REST.Create(ctx, obj, validate, options)
}

// Update implements rest.Updater.
func (g guarded) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	checked := rest.WrapUpdatedObjectInfo(info, func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
		return obj, g.check.write(ctx, obj, old)
	})
	return g.REST.Update(ctx, name, checked, create, update, forceAllowCreate, options)
}

// write returns an error if a write is refused. old is nil, or an empty object, for a new one.
func (e *EscalationCheck) write(ctx context.Context, obj, old runtime.Object) error {
	u, ok := genericrequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(errors.New("check for privilege escalation: no user"))
	}
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) || old != nil && changesOnlyReferences(obj, old) {
		return nil
	}
	switch obj := obj.(type) {
	case *rbacv1.Role:
		return e.writeRole(ctx, u, rbacv1.Resource("roles"), obj.Name, obj.Rules)
	case *rbacv1.ClusterRole:
		grants := [][]rbacv1.PolicyRule{obj.Rules}
		if before, _ := old.(*rbacv1.ClusterRole); aggregates(obj) || aggregates(before) {
			grants = append(grants, Everything()) // the rule may select any role, also in the future
		}
		return e.writeRole(ctx, u, rbacv1.Resource("clusterroles"), obj.Name, grants...)
	case *rbacv1.RoleBinding:
		return e.writeBinding(ctx, u, rbacv1.Resource("rolebindings"), obj.Name, obj.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return e.writeBinding(ctx, u, rbacv1.Resource("clusterrolebindings"), obj.Name, obj.RoleRef)
	default:
		return apierrors.NewInternalError(fmt.Errorf("check for privilege escalation: unexpected type %T", obj))
	}
}

// changesOnlyReferences reports whether an update changes owner references and finalizers only. All other
// fields count, including the resourceVersion: an object without its metadata is written anew.
func changesOnlyReferences(obj, old runtime.Object) bool {
	obj, old = obj.DeepCopyObject(), old.DeepCopyObject()
	now, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	before, err := meta.Accessor(old)
	if err != nil {
		return false
	}
	now.SetOwnerReferences(before.GetOwnerReferences())
	now.SetFinalizers(before.GetFinalizers())
	now.SetManagedFields(before.GetManagedFields())
	// A decoded object has its kind set; one from the storage may not.
	for _, o := range []runtime.Object{obj, old} {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return equality.Semantic.DeepEqual(obj, old)
}

func aggregates(role *rbacv1.ClusterRole) bool {
	return role != nil && role.AggregationRule != nil && len(role.AggregationRule.ClusterRoleSelectors) > 0
}

// writeRole checks a role, which grants rules, and the rules that its aggregation rule may add.
func (e *EscalationCheck) writeRole(ctx context.Context, u user.Info, resource schema.GroupResource, name string, grants ...[]rbacv1.PolicyRule) error {
	request, ok := genericrequest.RequestInfoFrom(ctx)
	if ok && e.allows(ctx, authorizer.AttributesRecord{
		User: u, Verb: "escalate", APIGroup: resource.Group, Resource: resource.Resource, Namespace: request.Namespace, Name: request.Name,
	}) {
		return nil
	}
	for i, rules := range grants {
		err := e.confirm(ctx, u, rules)
		if err != nil && i > 0 {
			err = errors.New("must have cluster-admin privileges to use the aggregationRule")
		}
		if err != nil {
			return apierrors.NewForbidden(resource, name, err)
		}
	}
	return nil
}

// writeBinding checks a binding. A user without the verb bind needs the rules of the role, so the role must
// exist.
func (e *EscalationCheck) writeBinding(ctx context.Context, u user.Info, resource schema.GroupResource, name string, ref rbacv1.RoleRef) error {
	referenced := map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}[ref.Kind]
	if referenced == "" {
		// Validation, which would respond with 422, comes later. The code is upstream's.
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: fmt.Sprintf("unsupported role reference kind: %q", ref.Kind),
		}}
	}
	namespace := genericrequest.NamespaceValue(ctx)
	if e.allows(ctx, authorizer.AttributesRecord{User: u, Verb: "bind", APIGroup: ref.APIGroup, Resource: referenced, Namespace: namespace, Name: ref.Name}) {
		return nil
	}
	rules, err := e.rulesOf(ctx, referenced, ref.Name)
	if err != nil {
		return err
	}
	if err := e.confirm(ctx, u, rules); err != nil {
		return apierrors.NewForbidden(resource, name, err)
	}
	return nil
}

// rulesOf reads the rules of a role live, so that it finds a role that has just been created.
func (e *EscalationCheck) rulesOf(ctx context.Context, resource, name string) ([]rbacv1.PolicyRule, error) {
	if resource == "clusterroles" {
		ctx = genericrequest.WithNamespace(ctx, metav1.NamespaceNone)
	}
	obj, err := e.roles[resource].Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	switch role := obj.(type) {
	case *rbacv1.Role:
		return role.Rules, nil
	case *rbacv1.ClusterRole:
		return role.Rules, nil
	default:
		return nil, apierrors.NewInternalError(fmt.Errorf("read the rules of %s %q: unexpected type %T", resource, name, obj))
	}
}

// confirm returns an error that lists the rules that the user lacks.
func (e *EscalationCheck) confirm(ctx context.Context, u user.Info, rules []rbacv1.PolicyRule) error {
	missing := Missing(e.policy, u, genericrequest.NamespaceValue(ctx), rules)
	if len(missing) == 0 {
		return nil
	}
	lines := make([]string, 0, len(missing))
	for _, rule := range missing {
		lines = append(lines, Compact(rule))
	}
	slices.Sort(lines)
	return fmt.Errorf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.GetName(), u.GetGroups(), strings.Join(slices.Compact(lines), "\n"))
}

func (e *EscalationCheck) allows(ctx context.Context, verb authorizer.AttributesRecord) bool {
	verb.APIVersion, verb.ResourceRequest = "*", true
	decision, _, err := e.authorize.Authorize(ctx, verb)
	return err == nil && decision == authorizer.DecisionAllow
}
