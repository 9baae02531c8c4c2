// Package bootstrappolicy defines the users of the control plane's components and the
// default roles and bindings of every cluster. Ensure creates them at the start, and
// completes existing ones.
package bootstrappolicy

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// ResourceQuotaController counts the usage of ResourceQuotas.
	ResourceQuotaController = "system:coppice:resourcequota-controller"
	// StorageVersionMigrator makes the server write objects anew, as they are.
	StorageVersionMigrator = "system:coppice:storage-version-migrator"
	// HorizontalPodAutoscaler reads metrics and scales.
	HorizontalPodAutoscaler = "system:coppice:horizontal-pod-autoscaler"
	// TokensController puts service account tokens into Secrets. Only this user and the users of the
	// collector, the namespace controller, the ResourceQuota controller and the storage version migrator may
	// read Secrets, and all but the first only their metadata; other controllers may not.
	TokensController = "system:coppice:tokens-controller"
	// ToolsUser may query the collector, but sees only objects that the user may list.
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
		TokensController, StorageVersionMigrator,
		LeaderElection, NodeAgent, Scheduler,
	}
}

// ControllersLease is the Lease in kube-system by which control planes on one etcd elect the
// one whose controllers work.
const ControllersLease = "coppice-controllers"

// NewestPath is the path at which the collector reads the newest revision of each resource.
const NewestPath = "/coppice/newest"

// monitoring is the role with which Kubernetes' monitoring group reads the metrics of Coppice.
const monitoring = "system:coppice:monitoring"

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

func rule(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources}
}

// Objects are roles and their bindings.
type Objects struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// Defaults returns the roles and bindings of every cluster, the aggregated ones with their rules.
func Defaults() Objects {
	all := kubernetesRoles()
	all.ClusterRoles = slices.Concat(all.ClusterRoles, supplements(), componentRoles())
	// The order matters: each role aggregates the previous one.
	for _, name := range []string{View, Edit, Admin} {
		i := slices.IndexFunc(all.ClusterRoles, func(r *rbacv1.ClusterRole) bool { return r.Name == name })
		all.ClusterRoles[i].Rules = rbac.Aggregate(all.ClusterRoles[i], all.ClusterRoles)
	}
	all.ClusterRoleBindings = append(all.ClusterRoleBindings,
		binding(monitoring, rbacv1.GroupKind, user.MonitoringGroup),
		binding(ToolsUser, rbacv1.GroupKind, user.AllAuthenticated),
		binding(Node, rbacv1.GroupKind, user.NodesGroup))
	for _, name := range Components() {
		all.ClusterRoleBindings = append(all.ClusterRoleBindings, binding(name, rbacv1.UserKind, name))
	}
	return all
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

// supplements returns the rules of this server that Kubernetes' roles lack.
func supplements() []*rbacv1.ClusterRole {
	get := []string{"get"}
	edit := role("system:coppice:aggregate-to-edit",
		// Setting blockOwnerDeletion on a reference to an owner needs these.
		rule("", []string{"update"}, "configmaps/finalizers", "persistentvolumeclaims/finalizers", "pods/finalizers",
			"replicationcontrollers/finalizers", "secrets/finalizers", "serviceaccounts/finalizers", "services/finalizers"),
		rule("apps", []string{"update"}, "daemonsets/finalizers", "deployments/finalizers", "replicasets/finalizers", "statefulsets/finalizers"),
		rule("batch", []string{"update"}, "cronjobs/finalizers", "jobs/finalizers"))
	edit.Labels[aggregateLabel+Edit] = "true"
	return []*rbacv1.ClusterRole{
		edit,
		role(monitoring, rbacv1.PolicyRule{Verbs: get, NonResourceURLs: []string{"/metrics/*", "/coppice/metrics"}}),
		role(ToolsUser, rbacv1.PolicyRule{Verbs: get, NonResourceURLs: []string{"/coppice/v1/*"}},
			// The handler checks which user may resume deletions of which kind.
			rbacv1.PolicyRule{Verbs: []string{"post"}, NonResourceURLs: []string{"/coppice/v1/resume"}}),
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
		role(StorageVersionMigrator,
			rule("*", []string{"list", "patch"}, "*"),
			rule("apiextensions.k8s.io", []string{"get"}, "customresourcedefinitions"),
			rule("apiextensions.k8s.io", []string{"patch"}, "customresourcedefinitions/status"),
			rule("storagemigration.k8s.io", reading(), "storageversionmigrations"),
			rule("storagemigration.k8s.io", []string{"update"}, "storageversionmigrations/status")),
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
			rule("", []string{"update"}, "pods/status"),
			rule("", []string{"create", "patch"}, "events"),
			rule("coordination.k8s.io", []string{"get", "create", "update"}, "leases")),
		role(Node,
			rule("", slices.Concat(reading(), []string{"create", "update", "patch"}), "nodes"),
			rule("", slices.Concat(reading(), []string{"delete"}), "pods"),
			rule("", []string{"get", "update", "patch"}, "nodes/status", "pods/status"),
			rule("", []string{"get"}, "configmaps", "secrets", "serviceaccounts"),
			rule("", []string{"list"}, "services"),
			rule("", []string{"create"}, "events", "serviceaccounts/token"),
			rule("", []string{"patch"}, "events"),
			rule("events.k8s.io", []string{"create"}, "events"),
			rule("coordination.k8s.io", slices.Concat(reading(), []string{"create", "update", "patch"}), "leases"),
			rule(certificatesv1.GroupName, reading(), "clustertrustbundles"),
			rule(certificatesv1.GroupName, []string{"create", "list", "watch"}, "podcertificaterequests"),
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
