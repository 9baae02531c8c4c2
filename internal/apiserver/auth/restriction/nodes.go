package restriction

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
)

// Pods knows which pods are bound to which nodes.
type Pods interface {
	// NodeOf returns the node that a pod is bound to, "" if it is not bound; found is false if
	// the pod does not exist.
	NodeOf(ctx context.Context, namespace, name string) (node string, found bool, err error)
	// HasMatch reports whether matches is true for a pod of the namespace that is bound to the node.
	HasMatch(ctx context.Context, node, namespace string, matches func(*corev1.Pod) bool) (bool, error)
}

// nodeRestriction returns the restriction of a node; false for a user that is not a node. A user that has
// the name of a node, but is not in the group of nodes, or vice versa, may do nothing: such an identity was
// issued by mistake.
func nodeRestriction(u user.Info, pods Pods) (Restriction, bool) {
	name, named := strings.CutPrefix(u.GetName(), bootstrappolicy.NodeUserPrefix)
	grouped := slices.Contains(u.GetGroups(), user.NodesGroup)
	switch {
	case !named && !grouped:
		return Restriction{}, false
	case !named || !grouped || name == "":
		refuse := fmt.Errorf("a node must be named %sNAME and be in group %s", bootstrappolicy.NodeUserPrefix, user.NodesGroup)
		return Restriction{
			checkRequest: func(*http.Request, *genericrequest.RequestInfo) error { return refuse },
			checkWrite:   func(context.Context, admission.Attributes) error { return refuse },
		}, true
	}
	return Restriction{checkRequest: nodeRequests{name, pods}.check, checkWrite: nodeWrites{name, pods}.check}, true
}

// nodeRequests checks the requests of a node before they are handled: the error of a patch of another
// node's object would disclose its contents.
type nodeRequests struct {
	node string
	pods Pods
}

func (n nodeRequests) check(r *http.Request, info *genericrequest.RequestInfo) error {
	subresource := strings.TrimSuffix(info.Resource+"/"+info.Subresource, "/")
	switch what := (schema.GroupResource{Group: info.APIGroup, Resource: subresource}); what {
	case corev1.Resource("nodes"):
		return n.checkOwn(r, info, "get", "create", "update", "patch")
	case corev1.Resource("nodes/status"):
		return n.checkOwn(r, info, "get", "update", "patch")
	case coordinationv1.Resource("leases"):
		if info.Namespace != corev1.NamespaceNodeLease {
			return fmt.Errorf("it can access its own lease in namespace %s only", corev1.NamespaceNodeLease)
		}
		return n.checkOwn(r, info, "get", "create", "update", "patch")
	case corev1.Resource("pods"):
		return n.checkPod(r, info, "get", "delete")
	case corev1.Resource("pods/status"):
		return n.checkPod(r, info, "get", "update", "patch")
	case corev1.Resource("configmaps"), corev1.Resource("secrets"):
		return n.checkReferenced(r, info)
	case corev1.Resource("serviceaccounts/token"):
		return n.checkAccount(r, info)
	case corev1.Resource("services"):
		return n.checkServices(r, info)
	case corev1.Resource("events"):
		return checkEventRequest(r, info)
	case eventsv1.Resource("events"):
		return checkVerb(info, "create")
	case certificatesv1.Resource("certificatesigningrequests"):
		return checkCertificateRequest(r, info)
	case authorizationv1.Resource("selfsubjectaccessreviews"), authorizationv1.Resource("selfsubjectrulesreviews"),
		authenticationv1.Resource("selfsubjectreviews"):
		return checkVerb(info, "create")
	default:
		return fmt.Errorf("it cannot access %s", what)
	}
}

// checkEventRequest allows creating and patching Events, which admission checks. It refuses JSON patches,
// which could test the contents of other Events before admission.
func checkEventRequest(r *http.Request, info *genericrequest.RequestInfo) error {
	if form := r.Header.Get("Content-Type"); info.Verb == "patch" && form != string(types.StrategicMergePatchType) {
		return fmt.Errorf("it can patch events by %s only", types.StrategicMergePatchType)
	}
	return checkVerb(info, "create", "patch")
}

func checkVerb(info *genericrequest.RequestInfo, verbs ...string) error {
	if !slices.Contains(verbs, info.Verb) {
		return fmt.Errorf("it cannot %s %s", info.Verb, strings.TrimSuffix(info.Resource+"/"+info.Subresource, "/"))
	}
	return nil
}

// checkOwn allows verbs on the object with the node's own name, and listing and watching it. Admission
// checks the name of a created object.
func (n nodeRequests) checkOwn(r *http.Request, info *genericrequest.RequestInfo, verbs ...string) error {
	switch {
	case slices.Contains([]string{"list", "watch"}, info.Verb) && info.Subresource == "":
		return checkSelector(r, "metadata.name", n.node)
	case info.Verb == "create" && slices.Contains(verbs, info.Verb):
		return nil
	case info.Name != n.node:
		return fmt.Errorf("it can access %s %s only", info.Resource, n.node)
	}
	return checkVerb(info, verbs...)
}

// checkPod allows verbs on pods that are bound to the node, and listing and watching them.
func (n nodeRequests) checkPod(r *http.Request, info *genericrequest.RequestInfo, verbs ...string) error {
	if slices.Contains([]string{"list", "watch"}, info.Verb) && info.Subresource == "" {
		return checkSelector(r, "spec.nodeName", n.node)
	}
	if err := checkVerb(info, verbs...); err != nil {
		return err
	}
	node, found, err := n.pods.NodeOf(r.Context(), info.Namespace, info.Name)
	if err != nil {
		return err
	}
	if found && node != n.node {
		return fmt.Errorf("pod %s/%s is not bound to node %s", info.Namespace, info.Name, n.node)
	}
	return nil // the response for a pod that does not exist will be NotFound
}

// checkReferenced allows getting a ConfigMap or Secret that a pod on the node refers to.
func (n nodeRequests) checkReferenced(r *http.Request, info *genericrequest.RequestInfo) error {
	if err := checkVerb(info, "get"); err != nil {
		return err
	}
	refers := refersTo(info.Resource, info.Name)
	found, err := n.pods.HasMatch(r.Context(), n.node, info.Namespace, refers)
	if err == nil && !found {
		err = fmt.Errorf("no pod that is bound to node %s refers to %s %s", n.node, info.Resource, info.Name)
	}
	return err
}

// checkAccount allows requests for tokens of the service account of a pod on the node. Admission checks to
// which pod they are bound.
func (n nodeRequests) checkAccount(r *http.Request, info *genericrequest.RequestInfo) error {
	if err := checkVerb(info, "create"); err != nil {
		return err
	}
	found, err := n.pods.HasMatch(r.Context(), n.node, info.Namespace, func(pod *corev1.Pod) bool { return accountOf(pod) == info.Name })
	if err == nil && !found {
		err = fmt.Errorf("no pod that is bound to node %s has the service account %s", n.node, info.Name)
	}
	return err
}

// checkServices allows listing the services of a namespace in which the node has a pod: the environment of
// its containers contains their names and addresses.
func (n nodeRequests) checkServices(r *http.Request, info *genericrequest.RequestInfo) error {
	if err := checkVerb(info, "list"); err != nil {
		return err
	}
	if info.Namespace == "" {
		return errors.New("it can list the services of one namespace only")
	}
	found, err := n.pods.HasMatch(r.Context(), n.node, info.Namespace, func(*corev1.Pod) bool { return true })
	if err == nil && !found {
		err = fmt.Errorf("no pod that is bound to node %s is in namespace %s", n.node, info.Namespace)
	}
	return err
}

// checkSelector allows a list or watch whose field selector requires exactly this value.
func checkSelector(r *http.Request, name, value string) error {
	selectors := r.URL.Query()["fieldSelector"]
	if len(selectors) == 1 {
		selector, err := fields.ParseSelector(selectors[0])
		if err != nil {
			return err
		}
		if exact, ok := selector.RequiresExactMatch(name); ok && exact == value {
			return nil
		}
	}
	return fmt.Errorf("it must select by %s=%s", name, value)
}

// refersTo returns a function that reports whether a pod refers to a ConfigMap or Secret.
func refersTo(resource, name string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		r := referencesOf(pod)
		if resource == "configmaps" {
			return slices.Contains(r.configMaps, name)
		}
		return slices.Contains(r.secrets, name)
	}
}
