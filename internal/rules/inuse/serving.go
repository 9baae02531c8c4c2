package inuse

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// No API says which workload is the controller of a finalizer or of a kind. Field managers are traces of it: the one that
// set a finalizer on an object, or wrote the status of a custom resource, has the name of a program, and the workload that
// runs the program often has the same name.

// IsTool reports whether a field manager is a tool with which users and pipelines apply objects.
func IsTool(manager string) bool {
	return strings.HasPrefix(manager, "kubectl") || slices.Contains([]string{
		"helm", "Helm", "kustomize-controller", "helm-controller", "Terraform", "HashiCorp", "pulumi-kubernetes", "curl",
		"Mozilla", "python-requests", "OpenAPI-Generator", "k9s", "node-fetch", "okhttp",
	}, manager)
}

// IsAnonymous reports whether a field manager is a default name that libraries give to programs.
func IsAnonymous(manager string) bool {
	return slices.Contains([]string{
		"manager", "main", "controller", "operator", "controller-manager", "unknown", "before-first-apply", "Go-http-client",
		"app", "server", "fabric8-kubernetes-client", "kubernetes-client", "__debug_bin", "java-operator-sdk",
	}, manager)
}

// HasName reports whether a workload has a name, or one of the usual labels with that name. label returns the value of a
// label of the workload.
func HasName(workload, name string, label func(key string) string) bool {
	if workload == name {
		return true
	}
	for _, key := range []string{"app.kubernetes.io/name", "app.kubernetes.io/component", "app", "k8s-app", "control-plane", "name"} {
		if label(key) == name {
			return true
		}
	}
	return false
}

// Served reports whether a workload serves an object, by the fields that it has written: a finalizer that the object still
// has, or the status of a custom resource. isWorkload reports whether a field manager has the name of the workload. The
// evidence is "finalizer NAME" or "status".
func Served(kind schema.GroupKind, m metav1.Object, isWorkload func(manager string) bool) (evidence string, served bool) {
	has := m.GetFinalizers()
	for _, e := range m.GetManagedFields() {
		if e.Manager == "" || IsTool(e.Manager) || IsAnonymous(e.Manager) || !isWorkload(e.Manager) {
			continue
		}
		if e.FieldsV1 != nil && len(has) > 0 {
			for _, f := range FinalizersIn(e.FieldsV1.GetRawBytes()) {
				if slices.Contains(has, f) {
					return "finalizer " + f, true
				}
			}
		}
		if e.Subresource == "status" && isCustom(kind) {
			return "status", true
		}
	}
	return "", false
}

// isCustom reports whether a kind is not one of Kubernetes': their groups have no dot, or end with k8s.io.
func isCustom(kind schema.GroupKind) bool {
	return strings.Contains(kind.Group, ".") && !strings.HasSuffix(kind.Group, ".k8s.io")
}

// FinalizersIn returns the finalizers in a set of managed fields: the keys v:"NAME" below metadata.finalizers.
func FinalizersIn(fields []byte) []string {
	var set struct {
		Metadata struct {
			Finalizers map[string]json.RawMessage `json:"f:finalizers"`
		} `json:"f:metadata"`
	}
	if json.Unmarshal(fields, &set) != nil {
		return nil // another sort of server; managed fields are only a hint
	}
	var names []string
	for key := range set.Metadata.Finalizers {
		var name string
		if quoted, ok := strings.CutPrefix(key, "v:"); ok && json.Unmarshal([]byte(quoted), &name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
