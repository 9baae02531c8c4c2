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
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
)

// Pods knows which pods are bound to which nodes, and which objects they belong to.
type Pods interface {
	// UID returns the UID of an object, empty if it does not exist.
	UID(ctx context.Context, resource, namespace, name string) (types.UID, error)
	// Get returns a pod, nil if it does not exist. A pod for which enough is false comes from the store, and not from a
	// cache.
	Get(ctx context.Context, namespace, name string, enough func(*corev1.Pod) bool) (*corev1.Pod, error)
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
			authorize:  func(context.Context, authorizer.Attributes) error { return refuse },
			checkWrite: func(context.Context, admission.Attributes) error { return refuse },
		}, true
	}
	return Restriction{authorize: nodeRequests{name, pods}.authorize, checkWrite: nodeWrites{name, pods}.check}, true
}

var errOneObject = errors.New("it must name the object and its namespace")

// nodeRequests checks the requests of a node before they are handled: the error of a patch of another
// node's object would disclose its contents. A refusal does not depend on whether the object exists.
type nodeRequests struct {
	node string
	pods Pods
}

// authorize returns an error if the node may not send a request with these attributes.
func (n nodeRequests) authorize(ctx context.Context, a authorizer.Attributes) error {
	switch what := (schema.GroupResource{Group: a.GetAPIGroup(), Resource: pathOf(a)}); what {
	case corev1.Resource("nodes"):
		return n.checkOwn(a, "get", "create", "update", "patch")
	case corev1.Resource("nodes/status"):
		return n.checkOwn(a, "get", "update", "patch")
	case coordinationv1.Resource("leases"):
		if a.GetNamespace() != corev1.NamespaceNodeLease {
			return fmt.Errorf("it can access its own lease in namespace %s only", corev1.NamespaceNodeLease)
		}
		return n.checkOwn(a, "get", "create", "update", "patch")
	case corev1.Resource("pods"):
		return n.checkPod(ctx, a, "get", "delete")
	case corev1.Resource("pods/status"):
		return n.checkPod(ctx, a, "get", "update", "patch")
	case corev1.Resource("configmaps"), corev1.Resource("secrets"):
		return n.checkReferenced(ctx, a)
	case corev1.Resource("serviceaccounts"):
		return n.checkAccount(ctx, a, "get")
	case corev1.Resource("serviceaccounts/token"):
		return n.checkAccount(ctx, a, "create")
	case corev1.Resource("services"):
		return n.checkServices(ctx, a)
	case corev1.Resource("events"):
		return checkVerb(a, "create", "patch")
	case eventsv1.Resource("events"):
		return checkVerb(a, "create")
	case certificatesv1.Resource("certificatesigningrequests"):
		return checkCertificateRequest(a)
	case certificatesv1.Resource("clustertrustbundles"):
		return checkVerb(a, "get", "list", "watch")
	case certificatesv1.Resource("podcertificaterequests"):
		return n.checkPodCertificates(a)
	case certificatesv1.Resource("certificatesigningrequests/nodeclient"), certificatesv1.Resource("certificatesigningrequests/selfnodeclient"),
		certificatesv1.Resource("certificatesigningrequests/selfnodeserver"):
		// No request is for them: controllers that approve certificates ask whether the node has a role with them.
		return checkVerb(a, "create")
	case authorizationv1.Resource("selfsubjectaccessreviews"), authorizationv1.Resource("selfsubjectrulesreviews"),
		authenticationv1.Resource("selfsubjectreviews"):
		return checkVerb(a, "create")
	default:
		return fmt.Errorf("it cannot access %s", what)
	}
}

// checkForm refuses JSON patches of Events, which could test the contents of other Events before admission.
func checkForm(r *http.Request, info *genericrequest.RequestInfo) error {
	isEvent := info.APIGroup == corev1.GroupName && info.Resource == "events"
	if form := r.Header.Get("Content-Type"); isEvent && info.Verb == "patch" && form != string(types.StrategicMergePatchType) {
		return fmt.Errorf("it can patch events by %s only", types.StrategicMergePatchType)
	}
	return nil
}

func checkVerb(a authorizer.Attributes, verbs ...string) error {
	if !slices.Contains(verbs, a.GetVerb()) {
		return fmt.Errorf("it cannot %s %s", a.GetVerb(), pathOf(a))
	}
	return nil
}

// checkOwn allows verbs on the object with the node's own name, and listing and watching it. Admission
// checks the name of a created object.
func (n nodeRequests) checkOwn(a authorizer.Attributes, verbs ...string) error {
	switch {
	case slices.Contains([]string{"list", "watch"}, a.GetVerb()) && a.GetSubresource() == "":
		return checkSelector(a, "metadata.name", n.node)
	case a.GetVerb() == "create" && slices.Contains(verbs, a.GetVerb()):
		return nil
	case a.GetName() != n.node:
		return fmt.Errorf("it can access %s %s only", a.GetResource(), n.node)
	}
	return checkVerb(a, verbs...)
}

// checkPod allows verbs on pods that are bound to the node, and listing and watching them.
func (n nodeRequests) checkPod(ctx context.Context, a authorizer.Attributes, verbs ...string) error {
	if slices.Contains([]string{"list", "watch"}, a.GetVerb()) && a.GetSubresource() == "" {
		return checkSelector(a, "spec.nodeName", n.node)
	}
	if err := checkVerb(a, verbs...); err != nil {
		return err
	}
	if a.GetNamespace() == "" || a.GetName() == "" {
		return errOneObject
	}
	isOwn := boundTo(n.node)
	pod, err := n.pods.Get(ctx, a.GetNamespace(), a.GetName(), isOwn)
	if err == nil && (pod == nil || !isOwn(pod)) {
		err = fmt.Errorf("pod %s/%s is not bound to node %s", a.GetNamespace(), a.GetName(), n.node)
	}
	return err
}

// boundTo returns a function that reports whether a pod is bound to a node.
func boundTo(node string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node }
}

// checkReferenced allows getting a ConfigMap or Secret that a pod on the node refers to.
func (n nodeRequests) checkReferenced(ctx context.Context, a authorizer.Attributes) error {
	if err := checkVerb(a, "get"); err != nil {
		return err
	}
	if a.GetNamespace() == "" || a.GetName() == "" {
		return errOneObject
	}
	refers := refersTo(a.GetResource(), a.GetName())
	found, err := n.pods.HasMatch(ctx, n.node, a.GetNamespace(), refers)
	if err == nil && !found {
		err = fmt.Errorf("no pod that is bound to node %s refers to %s %s", n.node, a.GetResource(), a.GetName())
	}
	return err
}

// checkAccount allows a verb on the service account of a pod on the node, or on its tokens. Admission checks to which
// pod tokens are bound.
func (n nodeRequests) checkAccount(ctx context.Context, a authorizer.Attributes, verb string) error {
	if err := checkVerb(a, verb); err != nil {
		return err
	}
	if a.GetNamespace() == "" || a.GetName() == "" {
		return errOneObject
	}
	found, err := n.pods.HasMatch(ctx, n.node, a.GetNamespace(), func(pod *corev1.Pod) bool { return accountOf(pod) == a.GetName() })
	if err == nil && !found {
		err = fmt.Errorf("no pod that is bound to node %s has the service account %s", n.node, a.GetName())
	}
	return err
}

// checkServices allows listing the services of a namespace in which the node has a pod: the environment of
// its containers contains their names and addresses.
func (n nodeRequests) checkServices(ctx context.Context, a authorizer.Attributes) error {
	if err := checkVerb(a, "list"); err != nil {
		return err
	}
	if a.GetNamespace() == "" {
		return errors.New("it can list the services of one namespace only")
	}
	found, err := n.pods.HasMatch(ctx, n.node, a.GetNamespace(), func(*corev1.Pod) bool { return true })
	if err == nil && !found {
		err = fmt.Errorf("no pod that is bound to node %s is in namespace %s", n.node, a.GetNamespace())
	}
	return err
}

// checkSelector allows a list or watch whose field selector requires exactly this value.
func checkSelector(a authorizer.Attributes, name, value string) error {
	requirements, err := a.GetFieldSelector()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(requirements, func(r fields.Requirement) bool {
		return r.Field == name && r.Value == value && isEquality(r)
	}) {
		return nil
	}
	return fmt.Errorf("it must select by %s=%s", name, value)
}

func isEquality(r fields.Requirement) bool {
	return r.Operator == selection.Equals || r.Operator == selection.DoubleEquals
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
