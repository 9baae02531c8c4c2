package bootstrappolicy

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/auth/rbac/reconciliation"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
	"github.com/coppice-dev/coppice/internal/testing/accesspolicy"
)

func defaults() accesspolicy.Policy {
	all := Defaults()
	return accesspolicy.Policy{Roles: all.Roles, Bindings: all.RoleBindings, ClusterRoles: all.ClusterRoles, ClusterBindings: all.ClusterRoleBindings}
}

func TestDefaultRoles(t *testing.T) {
	p := defaults()
	for _, role := range []string{Admin, Edit, View} {
		p.Bindings = append(p.Bindings, accesspolicy.Bind("a", "ClusterRole", role, rbacv1.Subject{Kind: "User", Name: role}))
	}
	everybody := []string{user.AllAuthenticated}
	for _, test := range []struct {
		user    string
		request authorizer.AttributesRecord
		want    bool
	}{
		{View, accesspolicy.Request("list", "", "pods", "a", ""), true},
		{View, accesspolicy.Request("get", "", "secrets", "a", "x"), false},
		{View, accesspolicy.Request("get", rbacv1.GroupName, "roles", "a", "x"), false},
		{View, accesspolicy.Request("delete", "", "pods", "a", "x"), false},
		{View, accesspolicy.Request("list", "events.k8s.io", "events", "a", ""), true},
		{View, accesspolicy.Request("list", "extensions", "deployments", "a", ""), true},
		{View, accesspolicy.Request("create", "events.k8s.io", "events", "a", ""), false},
		{Edit, accesspolicy.Request("create", "events.k8s.io", "events", "a", ""), true},
		{Edit, accesspolicy.Request("update", "apps", "deployments/finalizers", "a", "x"), true}, // not upstream's
		{Edit, accesspolicy.Request("create", "", "bindings", "a", ""), false},
		{Edit, accesspolicy.Request("delete", "apps", "deployments", "a", "x"), true},
		{Edit, accesspolicy.Request("get", "apps", "deployments", "a", "x"), true}, // through view
		{Edit, accesspolicy.Request("get", "", "secrets", "a", "x"), true},
		{Edit, accesspolicy.Request("create", "", "serviceaccounts/token", "a", "x"), true},
		{Edit, accesspolicy.Request("create", "", "pods/eviction", "a", "x"), true},
		{Admin, accesspolicy.Request("create", "", "pods/eviction", "a", "x"), true}, // through edit
		{View, accesspolicy.Request("create", "", "pods/eviction", "a", "x"), false},
		{Edit, accesspolicy.Request("update", "policy", "poddisruptionbudgets/status", "a", "x"), false},
		{Edit, accesspolicy.Request("update", "", "endpoints", "a", "x"), false},
		{Edit, accesspolicy.Request("create", rbacv1.GroupName, "rolebindings", "a", ""), false},
		{Edit, accesspolicy.Request("delete", "", "pods", "b", "x"), false},
		{Admin, accesspolicy.Request("create", rbacv1.GroupName, "rolebindings", "a", ""), true},
		{Admin, accesspolicy.Request("delete", "apps", "deployments", "a", "x"), true}, // through edit
		{Admin, accesspolicy.Request("list", "", "pods", "a", ""), true},               // through view
		{Admin, accesspolicy.Request("update", "", "namespaces", "a", "a"), false},
		{Admin, accesspolicy.Request("create", "", "resourcequotas", "a", ""), false},
		{"anybody", accesspolicy.Path("get", "/apis/apps/v1"), true},
		{"anybody", accesspolicy.Path("get", "/metrics"), false},
		{"anybody", accesspolicy.Request("create", "authorization.k8s.io", "selfsubjectaccessreviews", "", ""), true},
		{"anybody", accesspolicy.Request("create", "authorization.k8s.io", "subjectaccessreviews", "", ""), false},
		{Collector, accesspolicy.Request("patch", "example.com", "widgets", "a", "x"), true},
		{Collector, accesspolicy.Request("delete", "", "secrets", "a", "x"), true},
		{Collector, accesspolicy.Request("create", "", "events", "a", ""), true},
		{Collector, accesspolicy.Request("create", "", "pods", "a", ""), false},
		{Collector, accesspolicy.Request("update", "", "pods", "a", "x"), false},
		{Collector, accesspolicy.Request("deletecollection", "", "pods", "a", ""), false},
		{Collector, accesspolicy.Request("escalate", rbacv1.GroupName, "clusterroles", "", "x"), false},
		{Collector, accesspolicy.Request("impersonate", "", "users", "", "root"), false},
		{NamespaceController, accesspolicy.Request("update", "", "namespaces/finalize", "", "a"), true},
		{NamespaceController, accesspolicy.Request("update", "", "namespaces", "", "a"), false},
		{NamespaceController, accesspolicy.Request("deletecollection", "", "pods", "a", ""), true},
		{NamespaceController, accesspolicy.Request("patch", "", "pods", "a", "x"), false},
		{ProtectionController, accesspolicy.Request("patch", "", "persistentvolumeclaims", "a", "x"), true},
		{ProtectionController, accesspolicy.Request("patch", "", "persistentvolumeclaims/status", "a", "x"), false},
		{ProtectionController, accesspolicy.Request("update", "", "persistentvolumeclaims", "a", "x"), false},
		{ProtectionController, accesspolicy.Request("delete", "", "persistentvolumes", "", "x"), false},
		{ProtectionController, accesspolicy.Request("list", "", "pods", "", ""), true},
		{ProtectionController, accesspolicy.Request("patch", "", "pods", "a", "x"), false},
		{ProtectionController, accesspolicy.Request("get", "", "secrets", "a", "x"), false},
		{WorkloadControllers, accesspolicy.Request("update", "policy", "poddisruptionbudgets/status", "a", "x"), true},
		{WorkloadControllers, accesspolicy.Request("update", "policy", "poddisruptionbudgets", "a", "x"), false},
		{WorkloadControllers, accesspolicy.Request("get", "example.com", "widgets/scale", "a", "x"), true},
		{WorkloadControllers, accesspolicy.Request("update", "example.com", "widgets/scale", "a", "x"), false},
		{ResourceQuotaController, accesspolicy.Request("list", "example.com", "widgets", "", ""), true},
		{ResourceQuotaController, accesspolicy.Request("update", "", "resourcequotas/status", "a", "x"), true},
		{ResourceQuotaController, accesspolicy.Request("update", "", "resourcequotas", "a", "x"), false},
		{ResourceQuotaController, accesspolicy.Request("get", "", "secrets", "a", "x"), false},
		{ResourceQuotaController, accesspolicy.Request("delete", "", "pods", "a", "x"), false},
		{StorageVersionMigrator, accesspolicy.Request("patch", "example.com", "widgets", "a", "x"), true},
		{StorageVersionMigrator, accesspolicy.Request("update", "storagemigration.k8s.io", "storageversionmigrations/status", "", "x"), true},
		{StorageVersionMigrator, accesspolicy.Request("update", "example.com", "widgets", "a", "x"), false},
		{StorageVersionMigrator, accesspolicy.Request("get", "", "secrets", "a", "x"), false},
		{StorageVersionMigrator, accesspolicy.Request("delete", "", "pods", "a", "x"), false},
		{HorizontalPodAutoscaler, accesspolicy.Request("update", "example.com", "widgets/scale", "a", "x"), true},
		{HorizontalPodAutoscaler, accesspolicy.Request("update", "example.com", "widgets", "a", "x"), false},
		{HorizontalPodAutoscaler, accesspolicy.Request("update", "autoscaling", "horizontalpodautoscalers/status", "a", "x"), true},
		{HorizontalPodAutoscaler, accesspolicy.Request("update", "autoscaling", "horizontalpodautoscalers", "a", "x"), false},
		{HorizontalPodAutoscaler, accesspolicy.Request("list", "metrics.k8s.io", "pods", "a", ""), true},
		{HorizontalPodAutoscaler, accesspolicy.Request("get", "custom.metrics.k8s.io", "pods/requests", "a", "*"), true},
		{HorizontalPodAutoscaler, accesspolicy.Request("list", "", "pods", "a", ""), false},
		{WorkloadControllers, accesspolicy.Request("sign", "certificates.k8s.io", "signers", "", "kubernetes.io/kubelet-serving"), true},
		{WorkloadControllers, accesspolicy.Request("sign", "certificates.k8s.io", "signers", "", "example.com/a"), false},
		{WorkloadControllers, accesspolicy.Request("approve", "certificates.k8s.io", "signers", "", "kubernetes.io/kube-apiserver-client-kubelet"), true},
		{WorkloadControllers, accesspolicy.Request("approve", "certificates.k8s.io", "signers", "", "kubernetes.io/kube-apiserver-client"), false},
		{WorkloadControllers, accesspolicy.Request("create", "certificates.k8s.io", "certificatesigningrequests", "", ""), false},
		{LeaderElection, accesspolicy.Request("update", "coordination.k8s.io", "leases", "kube-system", ControllersLease), true},
		{LeaderElection, accesspolicy.Request("update", "coordination.k8s.io", "leases", "kube-node-lease", "node-1"), false},
		{LeaderElection, accesspolicy.Request("get", "", "namespaces", "kube-system", "kube-system"), true},
		{LeaderElection, accesspolicy.Request("get", "", "pods", "a", "x"), false},
	} {
		test.request.User = &user.DefaultInfo{Name: test.user, Groups: everybody}
		if got, _ := rbac.Decide(p, test.request); got != test.want {
			t.Errorf("%s, %+v: %t", test.user, test.request, got)
		}
	}
}

// The default roles are aggregated: aggregating them again changes nothing.
func TestDefaultRolesAreAggregated(t *testing.T) {
	roles := Defaults().ClusterRoles
	for _, r := range roles {
		if again := rbac.Aggregate(r, roles); len(r.Rules) == 0 || len(again) != len(r.Rules) {
			t.Errorf("%s: %d rules, again %d", r.Name, len(r.Rules), len(again))
		}
	}
	widgets := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets", Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules:      []rbacv1.PolicyRule{rule("example.com", reading(), "widgets")},
	}
	view := roles[slices.IndexFunc(roles, func(r *rbacv1.ClusterRole) bool { return r.Name == View })]
	got := rbac.Aggregate(view, append(slices.Clone(roles), widgets, widgets))
	if len(got) != len(view.Rules)+1 || !slices.ContainsFunc(got, func(r rbacv1.PolicyRule) bool { return r.APIGroups[0] == "example.com" }) {
		t.Errorf("%d rules of %d", len(got), len(view.Rules))
	}
}

func TestPlanRole(t *testing.T) {
	wanted := role("x", rule("", []string{"get", "list"}, "pods"))
	with := func(change func(*rbacv1.ClusterRole)) *rbacv1.ClusterRole {
		r := role("x", rule("", []string{"get", "list"}, "pods"))
		change(r)
		return r
	}
	for name, test := range map[string]struct {
		existing *rbacv1.ClusterRole
		want     string // the rules, or "" for nothing to do
	}{
		"equal":  {role("x", rule("", []string{"get", "list"}, "pods")), ""},
		"larger": {role("x", rule("", []string{"*"}, "*")), ""},
		"smaller": {
			role("x", rule("", []string{"get"}, "pods")),
			`{APIGroups:[""], Resources:["pods"], Verbs:["get"]}{APIGroups:[""], Resources:["pods"], Verbs:["list"]}`,
		},
		"other": {
			role("x", rule("", []string{"get", "list"}, "nodes")),
			`{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list"]}{APIGroups:[""], Resources:["pods"], Verbs:["get"]}{APIGroups:[""], Resources:["pods"], Verbs:["list"]}`,
		},
		"protected":        {with(func(r *rbacv1.ClusterRole) { r.Rules, r.Annotations[rbacv1.AutoUpdateAnnotationKey] = nil, "false" }), ""},
		"labelled further": {with(func(r *rbacv1.ClusterRole) { r.Labels["a"], r.Labels[bootstrapLabel] = "b", "changed" }), ""},
		"without its label": {
			&rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{rule("", []string{"get", "list", "watch"}, "pods")}},
			`{APIGroups:[""], Resources:["pods"], Verbs:["get" "list" "watch"]}`,
		},
	} {
		operation, next, err := planRole(reconciliation.ClusterRoleRuleOwner{ClusterRole: test.existing}, reconciliation.ClusterRoleRuleOwner{ClusterRole: wanted})
		if err != nil {
			t.Fatal(err)
		}
		var words strings.Builder
		if operation != reconciliation.ReconcileNone {
			for _, r := range next.GetRules() {
				words.WriteString(rbac.Compact(r))
			}
			if next.GetLabels()[bootstrapLabel] == "" {
				t.Errorf("%s: no label", name)
			}
		}
		if words.String() != test.want {
			t.Errorf("%s: %s", name, words.String())
		}
	}
}

// An aggregated role gets its selector back, and keeps additional ones. Only the Aggregator writes its
// rules.
func TestPlanAggregatedRole(t *testing.T) {
	all := Defaults().ClusterRoles
	view := all[slices.IndexFunc(all, func(r *rbacv1.ClusterRole) bool { return r.Name == View })]
	other := metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	for name, test := range map[string]struct {
		rule *rbacv1.AggregationRule
		want int // selectors; 0 for nothing to do
	}{
		"equal":   {view.AggregationRule, 0},
		"without": {nil, 1},
		"other":   {&rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{other}}, 2},
		"further": {&rbacv1.AggregationRule{ClusterRoleSelectors: append([]metav1.LabelSelector{other}, view.AggregationRule.ClusterRoleSelectors...)}, 0},
	} {
		existing := view.DeepCopy()
		existing.AggregationRule, existing.Rules = test.rule, nil
		operation, next, err := planRole(reconciliation.ClusterRoleRuleOwner{ClusterRole: existing}, reconciliation.ClusterRoleRuleOwner{ClusterRole: view})
		got := 0
		if err == nil && operation != reconciliation.ReconcileNone {
			got = len(next.GetAggregationRule().ClusterRoleSelectors)
			if len(next.GetRules()) > 0 {
				t.Errorf("%s: the rules are written, too", name)
			}
		}
		if got != test.want || err != nil {
			t.Errorf("%s: %d selectors, %v", name, got, err)
		}
	}
}

func TestPlanBinding(t *testing.T) {
	wanted := binding(View, rbacv1.GroupKind, "readers")
	kept := binding(Edit, rbacv1.GroupKind, "x")
	kept.Annotations[rbacv1.AutoUpdateAnnotationKey] = "false"
	for name, test := range map[string]struct {
		existing *rbacv1.ClusterRoleBinding
		want     reconciliation.ReconcileOperation
		subjects int
	}{
		"equal":         {binding(View, rbacv1.GroupKind, "readers"), reconciliation.ReconcileNone, 0},
		"other subject": {binding(View, rbacv1.UserKind, "ann"), reconciliation.ReconcileUpdate, 2},
		"other role":    {binding(Edit, rbacv1.GroupKind, "readers"), reconciliation.ReconcileRecreate, 1},
		"protected":     {kept, reconciliation.ReconcileNone, 0},
	} {
		operation, next, err := planBinding(reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: test.existing}, reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: wanted})
		if err != nil || operation != test.want || operation != reconciliation.ReconcileNone && len(next.GetSubjects()) != test.subjects {
			t.Errorf("%s: %s %v %v", name, operation, next, err)
		}
	}
}
