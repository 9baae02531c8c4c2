package bootstrappolicy

import (
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
)

// planRole returns the operation and the role to write so that an existing role, nil for none, grants at least
// the rules of wanted. Additions of an administrator are kept, and so is a whole role with the annotation
// autoupdate "false".
func planRole(existing, wanted reconciliation.RuleOwner) (reconciliation.ReconcileOperation, reconciliation.RuleOwner, error) {
	if existing != nil && wanted.GetAggregationRule() != nil {
		// The Aggregator writes the rules of this role.
		wanted = wanted.DeepCopyRuleOwner()
		wanted.SetRules(nil)
	}
	result, err := (&reconciliation.ReconcileRoleOptions{Role: wanted, Client: existingRole{existing: existing}}).Run()
	if err != nil || result.Protected {
		return reconciliation.ReconcileNone, nil, err
	}
	return result.Operation, result.Role, nil
}

// planBinding is like planRole, for bindings: subjects are added, never removed. The role of a binding is
// immutable; if it differs, the binding must be deleted and created again.
func planBinding(existing, wanted reconciliation.RoleBinding) (reconciliation.ReconcileOperation, reconciliation.RoleBinding, error) {
	result, err := (&reconciliation.ReconcileRoleBindingOptions{RoleBinding: wanted, Client: existingBinding{existing: existing}}).Run()
	if err != nil || result.Protected {
		return reconciliation.ReconcileNone, nil, err
	}
	return result.Operation, result.RoleBinding, nil
}

// existingRole returns a role that has been read. Without Confirm, nothing is written through it.
type existingRole struct {
	reconciliation.RuleOwnerModifier
	existing reconciliation.RuleOwner
}

// Get implements reconciliation.RuleOwnerModifier.
func (r existingRole) Get(_, name string) (reconciliation.RuleOwner, error) {
	if r.existing == nil {
		return nil, apierrors.NewNotFound(rbacv1.Resource("roles"), name)
	}
	return r.existing, nil
}

// existingBinding is like existingRole, for bindings.
type existingBinding struct {
	reconciliation.RoleBindingModifier
	existing reconciliation.RoleBinding
}

// Get implements reconciliation.RoleBindingModifier.
func (b existingBinding) Get(_, name string) (reconciliation.RoleBinding, error) {
	if b.existing == nil {
		return nil, apierrors.NewNotFound(rbacv1.Resource("rolebindings"), name)
	}
	return b.existing, nil
}
