package bootstrappolicy

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// workloadRules are for controllers that create dependents, wait for them and write the status of owners.
// To set blockOwnerDeletion, they need update on the finalizers of the owners.
func workloadRules() []rbacv1.PolicyRule {
	return append(certificateControllerRules(),
		rule("", slices.Concat(reading(), []string{"create", "delete", "patch", "update"}), "pods", "persistentvolumeclaims"),
		rule("", []string{"patch", "update"}, "pods/status", "replicationcontrollers/status", "nodes/status"),
		rule("", slices.Concat(reading(), []string{"patch", "update"}), "replicationcontrollers", "nodes"),
		rule("", reading(), "namespaces", "services"),
		rule("", slices.Concat(reading(), []string{"create", "delete", "update"}), "endpoints"),
		rule("", slices.Concat(reading(), []string{"create"}), "serviceaccounts"),
		rule("", slices.Concat(reading(), []string{"create", "update"}), "configmaps"),
		rule("", []string{"create", "patch", "update"}, "events"),
		rule("", []string{"update"}, "pods/finalizers", "replicationcontrollers/finalizers", "services/finalizers", "endpoints/finalizers"),
		rule("apps", slices.Concat(reading(), []string{"create", "delete", "patch", "update"}), "replicasets", "controllerrevisions"),
		rule("apps", slices.Concat(reading(), []string{"patch", "update"}), "deployments", "daemonsets", "statefulsets"),
		rule("apps", []string{"patch", "update"}, "daemonsets/status", "deployments/status", "replicasets/status", "statefulsets/status"),
		rule("apps", []string{"update"}, "daemonsets/finalizers", "deployments/finalizers", "replicasets/finalizers", "statefulsets/finalizers"),
		rule("batch", slices.Concat(reading(), []string{"create", "delete", "patch", "update"}), "jobs"),
		rule("batch", slices.Concat(reading(), []string{"patch", "update"}), "cronjobs"),
		rule("batch", []string{"patch", "update"}, "cronjobs/status", "jobs/status"),
		rule("batch", []string{"update"}, "cronjobs/finalizers", "jobs/finalizers"),
		rule("coordination.k8s.io", reading(), "leases"),
		rule("networking.k8s.io", slices.Concat(reading(), []string{"create", "delete"}), "ipaddresses"),
		rule("networking.k8s.io", slices.Concat(reading(), []string{"patch"}), "servicecidrs"),
		rule("networking.k8s.io", []string{"update"}, "servicecidrs/status"),
		rule("policy", reading(), "poddisruptionbudgets"),
		rule("policy", []string{"update"}, "poddisruptionbudgets/status"),
		// A disruption budget may select pods of any controller.
		rule("*", []string{"get"}, "*/scale"),
		rule("resource.k8s.io", slices.Concat(reading(), []string{"create", "delete", "update"}), "resourceclaims"),
		rule("resource.k8s.io", []string{"update"}, "resourceclaims/status", "resourceclaims/binding"),
		rule("resource.k8s.io", reading(), "resourceclaimtemplates", "resourceslices", "devicetaintrules"),
		rule("resource.k8s.io", []string{"update"}, "devicetaintrules/status"),
		rule("discovery.k8s.io", slices.Concat(reading(), []string{"create", "delete", "patch", "update"}), "endpointslices"),
	)
}

// podAutoscalerRules are for the HorizontalPodAutoscaler controller, which may scale anything.
func podAutoscalerRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("autoscaling", reading(), "horizontalpodautoscalers"),
		rule("autoscaling", []string{"update"}, "horizontalpodautoscalers/status"),
		rule("*", []string{"get", "update"}, "*/scale"),
		rule("metrics.k8s.io", []string{"list"}, "pods"),
		rule("custom.metrics.k8s.io", []string{"get", "list"}, "*"),
		rule("external.metrics.k8s.io", []string{"get", "list"}, "*"),
	}
}
