// Package bootstrappolicy defines the users of the control plane's components and the
// default roles and bindings of every cluster. Ensure creates them at the start, and
// completes existing ones.
package bootstrappolicy

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
)

// The users of the control plane's components, each with a ClusterRole of the same name.
// Package restriction bounds them further.
const (
	// Collector is the garbage collector.
	Collector = "system:coppice:collector"
	// NamespaceController deletes the contents of terminating namespaces.
	NamespaceController = "system:coppice:namespace-controller"
	// WorkloadControllers are the controllers of internal/controller.
	WorkloadControllers = "system:coppice:workload-controllers"
	// ProtectionController removes its finalizers from PersistentVolumeClaims,
	// PersistentVolumes and VolumeAttributesClasses that are not in use.
	ProtectionController = "system:coppice:protection-controller"
	// ResourceQuotaController counts what is used of ResourceQuotas.
	ResourceQuotaController = "system:coppice:resourcequota-controller"
	// HorizontalPodAutoscaler reads metrics and scales.
	HorizontalPodAutoscaler = "system:coppice:horizontal-pod-autoscaler"
	// TokensController fills Secrets with tokens of service accounts. Apart from the collector, the namespace
	// controller and the resource quotas', no other controller's user may read Secrets.
	TokensController = "system:coppice:tokens-controller"
	// ToolsUser may ask what the collector knows, and is told as much as the user may list.
	ToolsUser = "system:coppice:tools-user"
	// LeaderElection acquires and renews ControllersLease for a control plane.
	LeaderElection = "system:coppice:leader-election"
	// NodeAgent is the agent of the nodes in the control plane's process.
	NodeAgent = "system:coppice:node-agent"
	// Scheduler binds pods to nodes.
	Scheduler = "system:coppice:scheduler"
)

// A node in a process of its own is user NodeUserPrefix + NAME in group system:nodes, and has
// the ClusterRole Node.
const (
	NodeUserPrefix = "system:node:"
	Node           = "system:node"
)

// Components returns the users of all components.
func Components() []string {
	return []string{
		Collector, NamespaceController, ProtectionController, ResourceQuotaController, WorkloadControllers, HorizontalPodAutoscaler,
		TokensController,
		LeaderElection, NodeAgent, Scheduler,
	}
}

// ControllersLease is the Lease in kube-system by which control planes on one etcd elect the
// one whose controllers work.
const ControllersLease = "coppice-controllers"

// NewestPath is the path at which the collector asks to which revisions resources were written.
const NewestPath = "/coppice/newest"

// issuerDiscovery lets service accounts read who issues their tokens.
const issuerDiscovery = "system:service-account-issuer-discovery"

// The user-facing roles of Kubernetes.
const (
	ClusterAdmin = "cluster-admin"
	Admin        = "admin"
	Edit         = "edit"
	View         = "view"
)

const (
	bootstrapLabel = "kubernetes.io/bootstrapping"
	aggregateLabel = "rbac.authorization.k8s.io/aggregate-to-"
)

func reading() []string { return []string{"get", "list", "watch"} }

func writing() []string {
	return []string{"create", "delete", "deletecollection", "patch", "update"}
}

func rule(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources}
}

// DefaultRoles returns the ClusterRoles of every cluster, the aggregated ones with their rules.
func DefaultRoles() []*rbacv1.ClusterRole {
	roles := slices.Concat(generalRoles(), userRoles(), certificateRoles(), componentRoles())
	for _, role := range roles {
		role.Rules = rbac.Aggregate(role, roles)
	}
	return roles
}

// DefaultBindings returns the ClusterRoleBindings of every cluster.
func DefaultBindings() []*rbacv1.ClusterRoleBinding {
	bindings := []*rbacv1.ClusterRoleBinding{
		binding(ClusterAdmin, rbacv1.GroupKind, user.SystemPrivilegedGroup),
		binding("system:basic-user", rbacv1.GroupKind, user.AllAuthenticated),
		binding("system:discovery", rbacv1.GroupKind, user.AllAuthenticated),
		binding("system:public-info-viewer", rbacv1.GroupKind, user.AllAuthenticated),
		binding("system:monitoring", rbacv1.GroupKind, "system:monitoring"),
		binding(issuerDiscovery, rbacv1.GroupKind, serviceaccount.AllServiceAccountsGroup),
		binding(ToolsUser, rbacv1.GroupKind, user.AllAuthenticated),
		binding(Node, rbacv1.GroupKind, user.NodesGroup),
	}
	for _, name := range Components() {
		bindings = append(bindings, binding(name, rbacv1.UserKind, name))
	}
	return bindings
}

func role(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: bootstrapMeta(name), Rules: rules}
}

func bootstrapMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{bootstrapLabel: "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
}

func binding(role, kind, subject string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: bootstrapMeta(role),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: kind, APIGroup: rbacv1.GroupName, Name: subject}},
	}
}

// generalRoles are about the server itself.
func generalRoles() []*rbacv1.ClusterRole {
	get := []string{"get"}
	version := []string{"/healthz", "/livez", "/readyz", "/version", "/version/"}
	return []*rbacv1.ClusterRole{
		role(ClusterAdmin, rbac.Everything()...),
		role("system:discovery", rbacv1.PolicyRule{Verbs: get, NonResourceURLs: append(version, "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")}),
		role("system:public-info-viewer", rbacv1.PolicyRule{Verbs: get, NonResourceURLs: version}),
		role("system:basic-user",
			rule("authorization.k8s.io", []string{"create"}, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
			rule("authentication.k8s.io", []string{"create"}, "selfsubjectreviews")),
		role("system:auth-delegator",
			rule("authentication.k8s.io", []string{"create"}, "tokenreviews"),
			rule("authorization.k8s.io", []string{"create"}, "subjectaccessreviews")),
		role(issuerDiscovery, rbacv1.PolicyRule{Verbs: get, NonResourceURLs: []string{
			"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/",
		}}),
		role("system:monitoring", rbacv1.PolicyRule{Verbs: get, NonResourceURLs: []string{
			"/metrics", "/metrics/*", "/coppice/metrics", "/healthz/*", "/livez/*", "/readyz/*",
		}}),
		role(ToolsUser, rbacv1.PolicyRule{Verbs: get, NonResourceURLs: []string{"/coppice/v1/*"}},
			// Who may resume what, is for its handler to find out.
			rbacv1.PolicyRule{Verbs: []string{"post"}, NonResourceURLs: []string{"/coppice/v1/resume"}}),
	}
}

// userRoles are for users in a namespace. They are aggregated, so that authors of custom
// resources can extend them.
func userRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		// In this order: each aggregates the previous one.
		aggregated(View, Edit), aggregated(Edit, Admin), aggregated(Admin, ""),
		aggregatedTo(Admin, adminRules()...),
		aggregatedTo(Edit, editRules()...),
		aggregatedTo(View, viewRules()...),
	}
}

// aggregated returns a role that aggregates others, and is itself aggregated to the next larger.
func aggregated(name, larger string) *rbacv1.ClusterRole {
	r := role(name)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
		{MatchLabels: map[string]string{aggregateLabel + name: "true"}},
	}}
	if larger != "" {
		r.Labels[aggregateLabel+larger] = "true"
	}
	return r
}

func aggregatedTo(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	r := role("system:aggregate-to-"+name, rules...)
	r.Labels[aggregateLabel+name] = "true"
	return r
}

// viewRules allow to read the objects of a namespace except secrets and roles.
func viewRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("", reading(), "bindings", "configmaps", "endpoints", "events", "limitranges", "namespaces", "namespaces/status",
			"persistentvolumeclaims", "persistentvolumeclaims/status", "pods", "pods/log", "pods/status", "podtemplates",
			"replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status",
			"resourcequotas", "resourcequotas/status", "serviceaccounts", "services", "services/status"),
		rule("apps", reading(), "controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
			"replicasets", "replicasets/scale", "replicasets/status", "statefulsets", "statefulsets/scale", "statefulsets/status"),
		rule("autoscaling", reading(), "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
		rule("batch", reading(), "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
		rule("coordination.k8s.io", reading(), "leases"),
		rule("discovery.k8s.io", reading(), "endpointslices"),
		rule("events.k8s.io", reading(), "events"),
		rule("networking.k8s.io", reading(), "ingresses", "ingresses/status", "networkpolicies"),
		rule("policy", reading(), "poddisruptionbudgets", "poddisruptionbudgets/status"),
		rule("resource.k8s.io", reading(), "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
	}
}

// editRules allow to write them, secrets included, and to act as the namespace's service
// accounts. Endpoints are left out: they could be used to bypass network policies.
func editRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("", writing(), "configmaps", "events", "persistentvolumeclaims", "pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy",
			"podtemplates", "replicationcontrollers", "replicationcontrollers/scale", "secrets", "serviceaccounts", "services", "services/proxy"),
		rule("", reading(), "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"),
		rule("", []string{"create"}, "pods/eviction", "serviceaccounts/token"),
		rule("", []string{"impersonate"}, "serviceaccounts"),
		rule("apps", writing(), "daemonsets", "deployments", "deployments/rollback", "deployments/scale",
			"replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale"),
		rule("autoscaling", writing(), "horizontalpodautoscalers"),
		rule("batch", writing(), "cronjobs", "jobs"),
		rule("coordination.k8s.io", writing(), "leases"),
		rule("events.k8s.io", writing(), "events"),
		rule("networking.k8s.io", writing(), "ingresses", "networkpolicies"),
		rule("policy", writing(), "poddisruptionbudgets"),
		rule("resource.k8s.io", writing(), "resourceclaims", "resourceclaimtemplates"),
		// Setting blockOwnerDeletion on a reference to an owner needs these.
		rule("", []string{"update"}, "configmaps/finalizers", "persistentvolumeclaims/finalizers", "pods/finalizers",
			"replicationcontrollers/finalizers", "secrets/finalizers", "serviceaccounts/finalizers", "services/finalizers"),
		rule("apps", []string{"update"}, "daemonsets/finalizers", "deployments/finalizers", "replicasets/finalizers", "statefulsets/finalizers"),
		rule("batch", []string{"update"}, "cronjobs/finalizers", "jobs/finalizers"),
	}
}

// adminRules allow to grant one's own permissions to others in the namespace.
func adminRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("authorization.k8s.io", []string{"create"}, "localsubjectaccessreviews"),
		rule(rbacv1.GroupName, slices.Concat(reading(), writing()), "rolebindings", "roles"),
	}
}

// componentRoles are for the control plane's components and for nodes.
func componentRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		role(Collector,
			rule("*", slices.Concat(reading(), []string{"delete", "patch"}), "*"),
			rule("", []string{"create"}, "events"),
			rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{NewestPath}}),
		role(NamespaceController,
			rule("*", []string{"get", "list", "watch", "delete", "deletecollection"}, "*"),
			rule("", []string{"update"}, "namespaces/finalize", "namespaces/status")),
		role(WorkloadControllers, workloadRules()...),
		role(ProtectionController,
			rule("", reading(), "pods", "persistentvolumeclaims", "persistentvolumes"),
			rule("", []string{"patch"}, "persistentvolumeclaims", "persistentvolumes"),
			rule("storage.k8s.io", slices.Concat(reading(), []string{"patch"}), "volumeattributesclasses")),
		role(ResourceQuotaController,
			rule("*", []string{"list", "watch"}, "*"),
			rule("", []string{"update"}, "resourcequotas/status")),
		role(HorizontalPodAutoscaler, podAutoscalerRules()...),
		role(TokensController,
			rule("", slices.Concat(reading(), []string{"delete", "patch"}), "secrets"),
			rule("", slices.Concat(reading(), []string{"patch"}), "serviceaccounts")),
		role(LeaderElection,
			named(rule("", []string{"get"}, "namespaces"), metav1.NamespaceSystem),
			named(rule("coordination.k8s.io", []string{"get", "update"}, "leases"), ControllersLease),
			rule("coordination.k8s.io", []string{"create"}, "leases")),
		role(NodeAgent,
			rule("", slices.Concat(reading(), []string{"create"}), "nodes"),
			rule("", []string{"list", "watch", "delete"}, "pods"),
			rule("", []string{"patch"}, "nodes/status", "pods/status"),
			rule("", []string{"create", "patch"}, "events"),
			rule("coordination.k8s.io", []string{"get", "create", "patch"}, "leases")),
		role(Node,
			rule("", slices.Concat(reading(), []string{"create", "update", "patch"}), "nodes"),
			rule("", slices.Concat(reading(), []string{"delete"}), "pods"),
			rule("", []string{"get", "update", "patch"}, "nodes/status", "pods/status"),
			rule("", []string{"get"}, "configmaps", "secrets"),
			rule("", []string{"list"}, "services"),
			rule("", []string{"create"}, "events", "serviceaccounts/token"),
			rule("", []string{"patch"}, "events"),
			rule("events.k8s.io", []string{"create"}, "events"),
			rule("coordination.k8s.io", slices.Concat(reading(), []string{"create", "update", "patch"}), "leases"),
			requestRule()),
		role(Scheduler,
			rule("", []string{"list", "watch"}, "namespaces", "nodes", "pods"),
			rule("", []string{"create"}, "pods/binding", "events"),
			rule("", []string{"patch"}, "pods/status", "events")),
	}
}

func named(r rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	r.ResourceNames = names
	return r
}
