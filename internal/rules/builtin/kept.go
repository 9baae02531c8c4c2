package builtin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// KeptNamespaces are the namespaces that the admission plug-in NamespaceLifecycle keeps (NS-25).
func KeptNamespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}
}

// KeptPriorityClasses are the names of the priority classes that no API server deletes.
func KeptPriorityClasses() []string {
	return []string{"system-node-critical", "system-cluster-critical"}
}

// Kept returns why API servers do not delete the object of a resource with that name, in the words of kube-apiserver; it
// is empty for all other objects. A server whose admission plug-in NamespaceLifecycle is disabled deletes namespaces.
func Kept(r schema.GroupResource, name string) string {
	if r == corev1.Resource("namespaces") && slices.Contains(KeptNamespaces(), name) {
		return "this namespace may not be deleted"
	}
	return KeptAlways(r, name)
}

// KeptAlways is Kept for objects that do not depend on an admission plug-in.
func KeptAlways(r schema.GroupResource, name string) string {
	if r == (schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}) && slices.Contains(KeptPriorityClasses(), name) {
		return "this is a system priority class and cannot be deleted"
	}
	return ""
}
