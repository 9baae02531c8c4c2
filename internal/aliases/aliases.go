// Package aliases knows resources that are other names of the same objects.
//
// An API server may serve objects that have moved from one group to another in both:
// Deployments were in the group extensions before they were in apps. Who looks at all
// objects of a server is to look at each once; discovery does not tell which resources
// are the same.
package aliases

import "k8s.io/apimachinery/pkg/runtime/schema"

// Of returns the resource under whose name the objects of r are known, and whether
// that is another one than r. It holds on every server that serves both.
func Of(r schema.GroupResource) (schema.GroupResource, bool) {
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
