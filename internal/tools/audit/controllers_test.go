package audit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/audit"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// controllers are the Deployments of a test, by name, and the rules of their service accounts.
type controllers struct {
	workloads map[string]inventory.Workload
	rules     map[string][]rbacv1.PolicyRule
}

// about returns all facts about the objects of an inventory.
func (c controllers) about(inv *inventory.Inventory) *inventory.Facts {
	facts, roles := inventory.NewFacts(), &inventory.Roles{ClusterRoles: c.rules}
	for _, o := range inv.Objects {
		facts.Workloads[o.UID] = inventory.Fact[inventory.Workload]{Value: c.workloads[o.Name]}
		facts.Leases[o.UID] = inventory.Fact[inventory.Lease]{}
	}
	for account := range c.rules {
		roles.ClusterBindings = append(roles.ClusterBindings, rbacv1.ClusterRoleBinding{
			RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: account}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "other", Name: account}},
		})
	}
	facts.Roles = &inventory.Fact[*inventory.Roles]{Value: roles}
	return facts
}

// judged checks a cluster with its controllers and their rights.
func judged(inv *inventory.Inventory, c controllers) []string {
	x := finalizerowner.New(inv, c.about(inv), read())
	return brief(audit.Check(inv, audit.Options{ServedBy: x, Permits: finalizerowner.NewPermissions(x)}))
}

// heldBy returns a cluster with a ConfigMap, on which a field manager has set a finalizer, and a Deployment called
// operator.
func heldBy(t *testing.T, finalizer, manager string) *inventory.Inventory {
	t.Helper()
	inv := cluster(t, "x configmaps default/x finalizer="+finalizer, "d deployments other/acme-operator")
	inv.Object("x").SetBy = &inventory.SetBy{Finalizers: []inventory.Manager{{Name: manager, Time: read().Add(-time.Hour), Finalizers: []string{finalizer}}}}
	return inv
}

// A finding about a finalizer names it, for programs.
func TestFindingNamesItsFinalizer(t *testing.T) {
	t.Parallel()
	inv := heldBy(t, "acme.io/cleanup", "acme-operator")
	x := finalizerowner.New(inv, controllers{}.about(inv), read())
	report := audit.Check(inv, audit.Options{ServedBy: x, Permits: finalizerowner.NewPermissions(x)})
	if len(report.Findings) != 1 || report.Findings[0].Finalizer != "acme.io/cleanup" {
		t.Errorf("findings: %+v", report.Findings)
	}
}

func TestFinalizersThatNobodyServes(t *testing.T) {
	t.Parallel()
	const finalizer = "acme.io/cleanup"
	running := controllers{
		workloads: map[string]inventory.Workload{"acme-operator": {Replicas: 1, Ready: 1, ServiceAccount: "sa"}},
		rules:     map[string][]rbacv1.PolicyRule{"sa": {{Verbs: []string{"update"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}},
	}
	const set = "the finalizer was set by field manager acme-operator on this object; "
	for _, test := range []struct {
		name, finalizer, manager string
		controllers              controllers
		want                     []string
	}{
		{"served", finalizer, "acme-operator", running, nil},
		{
			"its controller is gone", finalizer, "shop-controller", running,
			[]string{"finalizer-not-served configmaps/x: Nobody serves the finalizer acme.io/cleanup: " +
				"the finalizer was set by field manager shop-controller on this object; no Deployment, StatefulSet, DaemonSet or pod in the cluster matches."},
		},
		{
			"its controller is scaled to 0", finalizer, "acme-operator",
			controllers{},
			[]string{"finalizer-not-served configmaps/x: Deployment.apps other/acme-operator, which is scaled to 0, serves the finalizer acme.io/cleanup: " +
				set + "Deployment.apps other/acme-operator has that name; it is scaled to 0."},
		},
		{
			"its controller may not", finalizer, "acme-operator",
			controllers{workloads: running.workloads},
			[]string{"finalizer-not-served configmaps/x: Deployment.apps other/acme-operator, which may not update the object, serves the finalizer acme.io/cleanup: " +
				set + "Deployment.apps other/acme-operator has that name; ready replicas: 1 of 1; no role lets its service account other/sa update configmaps."},
		},
		{"of Kubernetes, which does not say", ownership.FinalizerForeground, "acme-operator", controllers{}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inv := heldBy(t, test.finalizer, test.manager)
			if test.name == "its controller is gone" {
				inv.Objects = inv.Objects[:len(inv.Objects)-1]
				inv.Index()
			}
			if diff := cmp.Diff(test.want, judged(inv, test.controllers)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
	if got := brief(audit.Check(heldBy(t, finalizer, "nobody"), audit.Options{})); got != nil {
		t.Errorf("without knowledge of controllers: %q", got)
	}
}

func TestControllersThatMayNotBlock(t *testing.T) {
	t.Parallel()
	rule := func(verb, group, resource string, names ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}}
	}
	const refused = "block-owner-not-permitted configmaps/x: acme-operator sets blockOwnerDeletion, and no role lets other/sa update widgets.example.com/finalizers of Widget.example.com w."
	for _, test := range []struct {
		name     string
		managers []string
		rules    []rbacv1.PolicyRule
		want     []string
	}{
		{"permitted", []string{"acme-operator"}, rule("update", "example.com", "widgets/finalizers"), nil},
		{"permitted for all", []string{"acme-operator"}, rule("*", "*", "*"), nil},
		{"permitted for the owner", []string{"acme-operator"}, rule("update", "example.com", "widgets/finalizers", "w"), nil},
		{"the object, but not its finalizers", []string{"acme-operator"}, rule("update", "example.com", "widgets"), []string{refused}},
		{"the finalizers of another", []string{"acme-operator"}, rule("update", "example.com", "widgets/finalizers", "v"), []string{refused}},
		{"no role about the group", []string{"acme-operator"}, rule("update", "acme.io", "gadgets"), nil},
		{"by hand", []string{"kubectl-edit"}, rule("update", "example.com", "widgets"), nil},
		{"one of two", []string{"acme-operator", "kubectl-edit"}, rule("update", "example.com", "widgets"), nil},
		{"nobody of that name", []string{"shop-controller"}, rule("update", "example.com", "widgets"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inv := cluster(t, "w widgets default/w", "x configmaps default/x owner=example.com/v2:Widget:w:w:c", "d deployments other/acme-operator")
			inv.Object("x").SetBy = &inventory.SetBy{Owners: test.managers}
			got := judged(inv, controllers{
				workloads: map[string]inventory.Workload{"acme-operator": {Replicas: 1, Ready: 1, ServiceAccount: "sa"}},
				rules:     map[string][]rbacv1.PolicyRule{"sa": test.rules},
			})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
