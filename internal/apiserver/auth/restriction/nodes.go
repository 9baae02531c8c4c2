package restriction

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
)

// Pods tells which pods are on which nodes.
type Pods interface {
	// NodeOf is the node that a pod is bound to, "" if there is none; found is false if
	// there is no such pod.
	NodeOf(ctx context.Context, namespace, name string) (node string, found bool, err error)
	// Refers tells whether a pod of the namespace that is bound to the node fulfils matches.
	Refers(ctx context.Context, node, namespace string, matches func(*corev1.Pod) bool) (bool, error)
}

// nodeEnvelope is what a node is confined to; false for who is none. Whoever has the name
// of a node and is not in the group of nodes, or the other way round, may do nothing: an
// identity that is half a node's is a mistake.
func nodeEnvelope(u user.Info, pods Pods) (Envelope, bool) {
	name, named := strings.CutPrefix(u.GetName(), rbac.NodeUserPrefix)
	grouped := slices.Contains(u.GetGroups(), user.NodesGroup)
	switch {
	case !named && !grouped:
		return Envelope{}, false
	case !named || !grouped || name == "":
		refuse := fmt.Errorf("a node is a user %sNAME in group %s", rbac.NodeUserPrefix, user.NodesGroup)
		return Envelope{
			ask:   func(*http.Request, *genericrequest.RequestInfo) error { return refuse },
			write: func(context.Context, admission.Attributes) error { return refuse },
		}, true
	}
	return Envelope{ask: nodeRequests{name, pods}.check, write: nodeWrites{name, pods}.check}, true
}

// nodeRequests are what a node may ask for. They are looked at before the request is
// handled: a patch of an object that is not the node's tells of its contents by how it fails.
type nodeRequests struct {
	node string
	pods Pods
}

func (n nodeRequests) check(r *http.Request, info *genericrequest.RequestInfo) error {
	subresource := strings.TrimSuffix(info.Resource+"/"+info.Subresource, "/")
	switch what := (schema.GroupResource{Group: info.APIGroup, Resource: subresource}); what {
	case corev1.Resource("nodes"):
		return n.itself(r, info, "get", "create", "update", "patch")
	case corev1.Resource("nodes/status"):
		return n.itself(r, info, "get", "update", "patch")
	case coordinationv1.Resource("leases"):
		if info.Namespace != corev1.NamespaceNodeLease {
			return fmt.Errorf("of leases it has its own in %s only", corev1.NamespaceNodeLease)
		}
		return n.itself(r, info, "get", "create", "update", "patch")
	case corev1.Resource("pods"):
		return n.podsOf(r, info, "get", "delete")
	case corev1.Resource("pods/status"):
		return n.podsOf(r, info, "get", "update", "patch")
	case corev1.Resource("configmaps"), corev1.Resource("secrets"):
		return n.contents(r, info)
	case corev1.Resource("events"), eventsv1.Resource("events"):
		return only(info, "create")
	case authorizationv1.Resource("selfsubjectaccessreviews"), authorizationv1.Resource("selfsubjectrulesreviews"),
		authenticationv1.Resource("selfsubjectreviews"):
		return only(info, "create")
	default:
		return fmt.Errorf("it has no use for %s", what)
	}
}

func only(info *genericrequest.RequestInfo, verbs ...string) error {
	if !slices.Contains(verbs, info.Verb) {
		return fmt.Errorf("it does not %s %s", info.Verb, strings.TrimSuffix(info.Resource+"/"+info.Subresource, "/"))
	}
	return nil
}

// itself allows verbs on the object of the node's own name, and to list and watch it. The
// name of what is created is looked at when it is admitted.
func (n nodeRequests) itself(r *http.Request, info *genericrequest.RequestInfo, verbs ...string) error {
	switch {
	case slices.Contains([]string{"list", "watch"}, info.Verb) && info.Subresource == "":
		return selects(r, "metadata.name", n.node)
	case info.Verb == "create" && slices.Contains(verbs, info.Verb):
		return nil
	case info.Name != n.node:
		return fmt.Errorf("of %s it has %s only", info.Resource, n.node)
	}
	return only(info, verbs...)
}

// podsOf allows verbs on pods that are bound to the node, and to list and watch these.
func (n nodeRequests) podsOf(r *http.Request, info *genericrequest.RequestInfo, verbs ...string) error {
	if slices.Contains([]string{"list", "watch"}, info.Verb) && info.Subresource == "" {
		return selects(r, "spec.nodeName", n.node)
	}
	if err := only(info, verbs...); err != nil {
		return err
	}
	node, found, err := n.pods.NodeOf(r.Context(), info.Namespace, info.Name)
	if err != nil {
		return err
	}
	if found && node != n.node {
		return fmt.Errorf("pod %s/%s is not bound to node %s", info.Namespace, info.Name, n.node)
	}
	return nil // one that is gone is not found
}

// contents allows to read what a pod on the node refers to.
func (n nodeRequests) contents(r *http.Request, info *genericrequest.RequestInfo) error {
	if err := only(info, "get"); err != nil {
		return err
	}
	refers := refersTo(info.Resource, info.Name)
	found, err := n.pods.Refers(r.Context(), n.node, info.Namespace, refers)
	if err == nil && !found {
		err = fmt.Errorf("no pod that is bound to node %s refers to it", n.node)
	}
	return err
}

// selects checks that only objects with that value in a field are asked for.
func selects(r *http.Request, name, value string) error {
	asked := r.URL.Query()["fieldSelector"]
	if len(asked) == 1 {
		selector, err := fields.ParseSelector(asked[0])
		if err != nil {
			return err
		}
		if exact, ok := selector.RequiresExactMatch(name); ok && exact == value {
			return nil
		}
	}
	return fmt.Errorf("it has to select by %s=%s", name, value)
}

// refersTo tells of pods whether they refer to a config map or a secret.
func refersTo(resource, name string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		r := referencesOf(pod)
		if resource == "configmaps" {
			return slices.Contains(r.maps, name)
		}
		return slices.Contains(r.secrets, name)
	}
}
