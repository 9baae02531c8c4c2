package crowd

import "k8s.io/apimachinery/pkg/runtime/schema"

// Kind is a kind of objects, and how it is served.
type Kind struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool

	index   int
	cohorts []*cohort
}

// APIVersion returns the group and the version, as in an owner reference.
func (k *Kind) APIVersion() string { return k.GroupVersion().String() }

// suffix is how the name of a dependent continues the name of its owner.
type suffix int

const (
	sameName  suffix = iota // as CiliumEndpoints of pods
	hash                    // a pod template hash, as ReplicaSets
	generated               // a generated name, as pods
	ordinal                 // as pods of a StatefulSet
	minutes                 // as Jobs of a CronJob
)

// row describes a cohort: objects of one kind with owners of one cohort, or without owners.
type row struct {
	resource string
	share    int    // of shares in all
	word     string // begins the names of objects without owners, and names the cohort
	owner    string // the word of the owners' cohort
	suffix   suffix
}

// served returns the kinds, as "group/version resource Kind"; a cluster-scoped resource begins with an asterisk. They are
// in the order in which clients find them.
func served() []string {
	return []string{
		"/v1 pods Pod", "/v1 configmaps ConfigMap", "/v1 secrets Secret", "/v1 services Service", "/v1 endpoints Endpoints",
		"/v1 serviceaccounts ServiceAccount", "/v1 persistentvolumeclaims PersistentVolumeClaim",
		"/v1 *persistentvolumes PersistentVolume", "/v1 *nodes Node", "/v1 *namespaces Namespace",
		"/v1 replicationcontrollers ReplicationController", "/v1 resourcequotas ResourceQuota", "/v1 limitranges LimitRange",
		"/v1 podtemplates PodTemplate",
		"apps/v1 deployments Deployment", "apps/v1 replicasets ReplicaSet", "apps/v1 statefulsets StatefulSet",
		"apps/v1 daemonsets DaemonSet", "apps/v1 controllerrevisions ControllerRevision",
		"batch/v1 jobs Job", "batch/v1 cronjobs CronJob",
		"autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler",
		"policy/v1 poddisruptionbudgets PodDisruptionBudget",
		"networking.k8s.io/v1 ingresses Ingress", "networking.k8s.io/v1 networkpolicies NetworkPolicy",
		"networking.k8s.io/v1 *ingressclasses IngressClass",
		"discovery.k8s.io/v1 endpointslices EndpointSlice", "coordination.k8s.io/v1 leases Lease",
		"rbac.authorization.k8s.io/v1 roles Role", "rbac.authorization.k8s.io/v1 rolebindings RoleBinding",
		"rbac.authorization.k8s.io/v1 *clusterroles ClusterRole", "rbac.authorization.k8s.io/v1 *clusterrolebindings ClusterRoleBinding",
		"storage.k8s.io/v1 *storageclasses StorageClass", "storage.k8s.io/v1 *volumeattachments VolumeAttachment",
		"storage.k8s.io/v1 *csinodes CSINode", "storage.k8s.io/v1 *csidrivers CSIDriver",
		"storage.k8s.io/v1 csistoragecapacities CSIStorageCapacity",
		"scheduling.k8s.io/v1 *priorityclasses PriorityClass",
		"certificates.k8s.io/v1 *certificatesigningrequests CertificateSigningRequest",
		"admissionregistration.k8s.io/v1 *mutatingwebhookconfigurations MutatingWebhookConfiguration",
		"admissionregistration.k8s.io/v1 *validatingwebhookconfigurations ValidatingWebhookConfiguration",
		"apiextensions.k8s.io/v1 *customresourcedefinitions CustomResourceDefinition",
		"apiregistration.k8s.io/v1 *apiservices APIService",
		"resource.k8s.io/v1 resourceclaims ResourceClaim", "resource.k8s.io/v1 *resourceslices ResourceSlice",
		"cert-manager.io/v1 certificates Certificate", "cert-manager.io/v1 certificaterequests CertificateRequest",
		"acme.cert-manager.io/v1 orders Order",
		"argoproj.io/v1alpha1 applications Application", "argoproj.io/v1alpha1 workflows Workflow",
		"tekton.dev/v1 pipelineruns PipelineRun", "tekton.dev/v1 taskruns TaskRun",
		"monitoring.coreos.com/v1 servicemonitors ServiceMonitor", "monitoring.coreos.com/v1 prometheusrules PrometheusRule",
		"cilium.io/v2 ciliumendpoints CiliumEndpoint", "cilium.io/v2 *ciliumidentities CiliumIdentity",
		"wgpolicyk8s.io/v1alpha2 policyreports PolicyReport",
		"external-secrets.io/v1 externalsecrets ExternalSecret",
		"keda.sh/v1alpha1 scaledobjects ScaledObject", "velero.io/v1 backups Backup",
	}
}

// rows returns the cohorts, owners before their dependents. Together they have about 10 000 shares.
func rows() []row { return append(families(), loners()...) }

// families are the owners with their dependents.
func families() []row {
	return []row{
		{resource: "deployments", share: 500, word: "web"},
		{resource: "replicasets", share: 1600, word: "web-revision", owner: "web", suffix: hash},
		{resource: "pods", share: 1500, word: "web-pod", owner: "web-revision", suffix: generated},
		{resource: "ciliumendpoints", share: 900, word: "web-endpoint", owner: "web-pod", suffix: sameName},
		{resource: "policyreports", share: 300, word: "web-report", owner: "web-pod", suffix: sameName},
		{resource: "cronjobs", share: 100, word: "nightly"},
		{resource: "jobs", share: 700, word: "nightly-run", owner: "nightly", suffix: minutes},
		{resource: "pods", share: 700, word: "nightly-pod", owner: "nightly-run", suffix: generated},
		{resource: "statefulsets", share: 50, word: "db"},
		{resource: "pods", share: 150, word: "db-pod", owner: "db", suffix: ordinal},
		{resource: "controllerrevisions", share: 100, word: "db-revision", owner: "db", suffix: hash},
		{resource: "configmaps", share: 100, word: "db-settings", owner: "db", suffix: generated},
		{resource: "daemonsets", share: 15, word: "agent"},
		{resource: "pods", share: 150, word: "agent-pod", owner: "agent", suffix: generated},
		{resource: "controllerrevisions", share: 20, word: "agent-revision", owner: "agent", suffix: hash},
		{resource: "services", share: 350, word: "svc"},
		{resource: "endpointslices", share: 400, word: "svc-slice", owner: "svc", suffix: generated},
		{resource: "certificates", share: 50, word: "tls"},
		{resource: "certificaterequests", share: 100, word: "tls-request", owner: "tls", suffix: ordinal},
		{resource: "orders", share: 50, word: "tls-order", owner: "tls-request", suffix: ordinal},
		{resource: "secrets", share: 50, word: "tls-key", owner: "tls", suffix: sameName},
		{resource: "externalsecrets", share: 100, word: "vault"},
		{resource: "secrets", share: 100, word: "vault-secret", owner: "vault", suffix: sameName},
		{resource: "workflows", share: 30, word: "etl"},
		{resource: "pods", share: 100, word: "etl-pod", owner: "etl", suffix: generated},
		{resource: "pipelineruns", share: 50, word: "build"},
		{resource: "taskruns", share: 200, word: "build-task", owner: "build", suffix: generated},
		{resource: "pods", share: 100, word: "build-pod", owner: "build-task", suffix: generated},
		{resource: "scaledobjects", share: 20, word: "scaled"},
		{resource: "horizontalpodautoscalers", share: 20, word: "scaled-hpa", owner: "scaled", suffix: sameName},
	}
}

// loners are the objects that own nothing and that nothing owns.
func loners() []row {
	return []row{
		{resource: "horizontalpodautoscalers", share: 30, word: "hpa"},
		{resource: "endpoints", share: 200, word: "addresses"},
		{resource: "persistentvolumeclaims", share: 100, word: "data"},
		{resource: "namespaces", word: "team"}, // as many as namespacesOf returns
		{resource: "configmaps", share: 450, word: "settings"},
		{resource: "secrets", share: 250, word: "credentials"},
		{resource: "serviceaccounts", share: 120, word: "account"},
		{resource: "leases", share: 60, word: "lease"},
		{resource: "persistentvolumes", share: 100, word: "pv"},
		{resource: "ciliumidentities", share: 30, word: "identity"},
		{resource: "roles", share: 20, word: "role"},
		{resource: "rolebindings", share: 30, word: "binding"},
		{resource: "ingresses", share: 40, word: "ingress"},
		{resource: "networkpolicies", share: 30, word: "policy"},
		{resource: "poddisruptionbudgets", share: 30, word: "budget"},
		{resource: "servicemonitors", share: 15, word: "monitor"},
		{resource: "prometheusrules", share: 10, word: "rules"},
		{resource: "applications", share: 10, word: "app"},
		{resource: "backups", share: 5, word: "backup"},
		{resource: "resourcequotas", share: 3, word: "quota"},
		{resource: "limitranges", share: 3, word: "limits"},
		{resource: "resourceclaims", share: 3, word: "claim"},
		{resource: "resourceslices", share: 2, word: "slice"},
		{resource: "nodes", share: 2, word: "node"},
		{resource: "csinodes", share: 2, word: "csinode"},
		{resource: "volumeattachments", share: 5, word: "attachment"},
		{resource: "csistoragecapacities", share: 1, word: "capacity"},
		{resource: "replicationcontrollers", share: 1, word: "rc"},
		{resource: "podtemplates", share: 1, word: "template"},
		{resource: "clusterroles", share: 1, word: "clusterrole"},
		{resource: "clusterrolebindings", share: 1, word: "clusterbinding"},
		{resource: "apiservices", share: 1, word: "apiservice"},
		{resource: "customresourcedefinitions", share: 1, word: "definition"},
		{resource: "certificatesigningrequests", share: 1, word: "csr"},
		{resource: "priorityclasses", share: 1, word: "priority"},
		{resource: "storageclasses", share: 1, word: "storage"},
		{resource: "csidrivers", share: 1, word: "driver"},
		{resource: "ingressclasses", share: 1, word: "ingressclass"},
		{resource: "mutatingwebhookconfigurations", share: 1, word: "mutating"},
		{resource: "validatingwebhookconfigurations", share: 1, word: "validating"},
	}
}
