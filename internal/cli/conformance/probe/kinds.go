package probe

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of objects, with the body of a new one.
type Kind struct {
	schema.GroupVersionResource
	Name    string
	Cluster bool // in no namespace
	body    map[string]any
}

// APIVersion returns the group and version in the format of an object's apiVersion.
func (k Kind) APIVersion() string { return k.GroupVersion().String() }

// At returns the same kind in another version.
func (k Kind) At(version string) Kind {
	k.Version = version
	return k
}

// The kinds of the objects that checks create. Controllers have nothing to do for objects with a pod
// template.
var (
	ConfigMaps = core("configmaps", "ConfigMap", nil)
	Secrets    = core("secrets", "Secret", nil)
	// Pods name a missing scheduler: no node runs them.
	Pods = core("pods", "Pod", map[string]any{"spec": map[string]any{
		"schedulerName": "conformance.example.com/nobody",
		"containers":    []any{map[string]any{"name": "main", "image": "none"}},
	}})
	Services = core("services", "Service", map[string]any{"spec": map[string]any{
		"ports": []any{map[string]any{"port": int64(80)}},
	}})
	ReplicationControllers = core("replicationcontrollers", "ReplicationController",
		map[string]any{"spec": workload(map[string]any{"app": "conformance"})})
	// ReplicaSets match the selector of Deployments, which would otherwise release them.
	ReplicaSets = of("apps", "replicasets", "ReplicaSet", labelled(replicated()))
	Deployments = of("apps", "deployments", "Deployment", replicated())
	Jobs        = of("batch", "jobs", "Job", map[string]any{"spec": suspendedJob()})
	CronJobs    = of("batch", "cronjobs", "CronJob", map[string]any{"spec": map[string]any{
		"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": map[string]any{"spec": suspendedJob()},
	}})
	Roles        = of(rbac, "roles", "Role", nil)
	RoleBindings = of(rbac, "rolebindings", "RoleBinding", map[string]any{
		"roleRef": map[string]any{"apiGroup": rbac, "kind": "Role", "name": "nobody"},
	})
	NetworkPolicies = of(networkingv1.GroupName, "networkpolicies", "NetworkPolicy",
		map[string]any{"spec": map[string]any{"podSelector": map[string]any{}}})
	ClusterRoles = Kind{schema.GroupVersionResource{Group: rbac, Version: "v1", Resource: "clusterroles"}, "ClusterRole", true, nil}
	Namespaces   = Kind{corev1.SchemeGroupVersion.WithResource("namespaces"), "Namespace", true, nil}
	// UnknownKind is a kind that is never served.
	UnknownKind = of("unknown.example.com", "nothings", "Nothing", nil)
)

const rbac = "rbac.authorization.k8s.io"

func core(resource, name string, body map[string]any) Kind {
	return Kind{corev1.SchemeGroupVersion.WithResource(resource), name, false, body}
}

func of(group, resource, name string, body map[string]any) Kind {
	return Kind{schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, name, false, body}
}

// workload returns the spec of an object with a pod template and no replicas.
func workload(selector map[string]any) map[string]any {
	return map[string]any{"replicas": int64(0), "selector": selector, "template": template()}
}

func replicated() map[string]any {
	return map[string]any{"spec": workload(map[string]any{"matchLabels": map[string]any{"app": "conformance"}})}
}

func labelled(body map[string]any) map[string]any {
	body["metadata"] = map[string]any{"labels": map[string]any{"app": "conformance"}}
	return body
}

func template() map[string]any {
	return map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "conformance"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "none"}}},
	}
}

func suspendedJob() map[string]any {
	return map[string]any{"suspend": true, "template": map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "conformance"}},
		"spec": map[string]any{
			"restartPolicy": "Never",
			"containers":    []any{map[string]any{"name": "main", "image": "none"}},
		},
	}}
}
