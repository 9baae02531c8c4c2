package builtin

import "k8s.io/apimachinery/pkg/runtime/schema"

// CanonicalOf returns the resource through which the objects of r are read, and whether it differs from r.
//
// An API server may serve objects that have moved from one group to another in both: Deployments were in the group
// extensions before they were in apps, and Events are in the core group and in events.k8s.io. A client that reads all
// objects of a server should read each of them once, and discovery does not say which resources are the same. The
// answer holds on every server that serves both.
func CanonicalOf(r schema.GroupResource) (schema.GroupResource, bool) {
	if r.Group == "events.k8s.io" && r.Resource == "events" {
		return schema.GroupResource{Resource: "events"}, true
	}
	if r.Group != "extensions" {
		return r, false
	}
	switch r.Resource {
	case "deployments", "replicasets", "daemonsets":
		return schema.GroupResource{Group: "apps", Resource: r.Resource}, true
	case "networkpolicies", "ingresses":
		return schema.GroupResource{Group: "networking.k8s.io", Resource: r.Resource}, true
	}
	return r, false
}
