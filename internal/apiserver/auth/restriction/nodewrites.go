package restriction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

// errOwnOnly refuses a write that no node may make.
var errOwnOnly = errors.New("it can write its node, the lease of the node, and the status of pods that are bound to it, and delete such pods only")

// nodeWrites checks the writes of a node agent: of the named node or, without a name, of the agent in the
// control plane's process, which acts for all nodes there.
//
// An agent creates nodes and their leases, writes the status of nodes and pods, deletes pods, with their UID as
// precondition, and requests tokens for their volumes. It may not cause a node or a pod to be deleted, kept or moved:
// it sets no owner references, finalizers or taints, except that a node owns its lease.
type nodeWrites struct {
	node string
	pods Pods // required if there is a name
}

func (n nodeWrites) check(ctx context.Context, a admission.Attributes) error {
	resource := a.GetResource().GroupResource()
	resource.Resource = strings.TrimSuffix(resource.Resource+"/"+a.GetSubresource(), "/")
	operation := a.GetOperation()
	switch {
	case resource == corev1.Resource("nodes") && operation == admission.Create:
		return n.checkCreate(a)
	case resource == corev1.Resource("nodes") && operation == admission.Update:
		return n.checkUpdate(a)
	case resource == corev1.Resource("nodes/status") && operation == admission.Update:
		return n.checkStatus(a)
	case resource == corev1.Resource("pods/status") && operation == admission.Update:
		return n.checkPodStatus(a)
	case resource == corev1.Resource("pods") && operation == admission.Delete:
		return n.checkPodDelete(a)
	case resource == coordinationv1.Resource("leases") && (operation == admission.Create || operation == admission.Update):
		return n.checkLease(a)
	case (resource == corev1.Resource("events") || resource == eventsv1.Resource("events")) && operation == admission.Create:
		return n.checkEvent(ctx, a)
	case resource == corev1.Resource("events") && operation == admission.Update:
		return n.checkRepeated(ctx, a)
	case resource == corev1.Resource("serviceaccounts/token") && operation == admission.Create:
		return n.checkToken(ctx, a)
	case resource == certificatesv1.Resource("certificatesigningrequests") && operation == admission.Create:
		return n.checkCertificateRequest(a)
	case resource == certificatesv1.Resource("podcertificaterequests") && operation == admission.Create:
		return n.checkPodCertificate(ctx, a)
	}
	return errOwnOnly
}

func (n nodeWrites) checkName(name string) error {
	if n.node != "" && name != n.node {
		return fmt.Errorf("node %s cannot write objects of node %s", n.node, name)
	}
	return nil
}

// checkCreate allows registering a node without fields that determine when it is deleted and which pods run
// there.
func (n nodeWrites) checkCreate(a admission.Attributes) error {
	node, ok := a.GetObject().(*corev1.Node)
	if !ok {
		return errOwnOnly
	}
	if err := n.checkName(node.Name); err != nil {
		return err
	}
	// The admission plug-in nodeTaint has added the taint of new nodes.
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t != corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	}) {
		return errors.New("it cannot set taints")
	}
	if err := checkNoOwnersOrFinalizers(node); err != nil {
		return err
	}
	return checkLabels(nil, node.Labels)
}

func checkNoOwnersOrFinalizers(m metav1.Object) error {
	switch {
	case len(m.GetOwnerReferences()) > 0:
		return errors.New("it cannot set owner references")
	case len(m.GetFinalizers()) > 0:
		return errors.New("it cannot set finalizers")
	}
	return nil
}

// checkUpdate allows changes of a node's annotations, and of labels that describe it.
func (n nodeWrites) checkUpdate(a admission.Attributes) error {
	old, was := a.GetOldObject().(*corev1.Node)
	node, is := a.GetObject().(*corev1.Node)
	if !was || !is {
		return errOwnOnly
	}
	if err := n.checkName(node.Name); err != nil {
		return err
	}
	if err := checkSameOwnersAndFinalizers(old, node); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) {
		return errors.New("it cannot change taints")
	}
	if !equality.Semantic.DeepEqual(old.Spec, node.Spec) {
		return errors.New("it cannot change the spec of its node")
	}
	return checkLabels(old.Labels, node.Labels)
}

func checkSameOwnersAndFinalizers(old, now metav1.Object) error {
	switch {
	case !equality.Semantic.DeepEqual(old.GetOwnerReferences(), now.GetOwnerReferences()):
		return errors.New("it cannot change owner references")
	case !equality.Semantic.DeepEqual(old.GetFinalizers(), now.GetFinalizers()):
		return errors.New("it cannot change finalizers")
	}
	return nil
}

func (n nodeWrites) checkStatus(a admission.Attributes) error {
	if err := n.checkName(a.GetName()); err != nil {
		return err
	}
	return checkStatusOnly(a)
}

// checkStatusOnly refuses status updates that also change metadata.
func checkStatusOnly(a admission.Attributes) error {
	old, was := a.GetOldObject().(metav1.Object)
	now, is := a.GetObject().(metav1.Object)
	if !was || !is {
		return errOwnOnly
	}
	if err := checkSameOwnersAndFinalizers(old, now); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(old.GetLabels(), now.GetLabels()) || !equality.Semantic.DeepEqual(old.GetAnnotations(), now.GetAnnotations()) {
		return errors.New("it cannot change labels or annotations with a status")
	}
	return nil
}

// checkBound allows a write of a pod that is bound to the node in the store now.
func (n nodeWrites) checkBound(a admission.Attributes) error {
	pod, ok := a.GetOldObject().(*corev1.Pod)
	switch {
	case !ok:
		return errOwnOnly
	case pod.Spec.NodeName == "" || n.node != "" && pod.Spec.NodeName != n.node:
		return fmt.Errorf("pod %s/%s is not bound to its node", pod.Namespace, pod.Name)
	}
	return nil
}

func (n nodeWrites) checkPodStatus(a admission.Attributes) error {
	if err := n.checkBound(a); err != nil {
		return err
	}
	old, was := a.GetOldObject().(*corev1.Pod)
	now, is := a.GetObject().(*corev1.Pod)
	if !was || !is {
		return errOwnOnly
	}
	if err := checkSameClaims(&old.Status, &now.Status); err != nil {
		return err
	}
	return checkStatusOnly(a)
}

// checkSameClaims checks that the status of a pod names the same claims on devices, which are reserved for the pod. A status
// without them does not change them.
func checkSameClaims(old, now *corev1.PodStatus) error {
	claims, extended := now.ResourceClaimStatuses, now.ExtendedResourceClaimStatus
	switch {
	case claims != nil && !equality.Semantic.DeepEqual(old.ResourceClaimStatuses, claims),
		extended != nil && !equality.Semantic.DeepEqual(old.ExtendedResourceClaimStatus, extended):
		return errors.New("it cannot change the claims on devices in the status of a pod")
	}
	return nil
}

func (n nodeWrites) checkPodDelete(a admission.Attributes) error {
	if err := n.checkBound(a); err != nil {
		return err
	}
	return checkPreconditions(a, "uid")
}

// checkLease allows a lease that is deleted with its node and blocks no deletion.
func (n nodeWrites) checkLease(a admission.Attributes) error {
	lease, ok := a.GetObject().(*coordinationv1.Lease)
	if !ok || a.GetNamespace() != corev1.NamespaceNodeLease {
		return errOwnOnly
	}
	if err := n.checkName(lease.Name); err != nil {
		return err
	}
	if len(lease.Finalizers) > 0 {
		return errors.New("it cannot set finalizers")
	}
	for _, owner := range lease.OwnerReferences {
		itself := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: lease.Name, UID: owner.UID}
		if !equality.Semantic.DeepEqual(owner, itself) {
			return errors.New("the only owner of its lease must be its node, without blockOwnerDeletion")
		}
	}
	return nil
}

// checkEvent allows Events about the node and its pods, including pods that no longer exist.
func (n nodeWrites) checkEvent(ctx context.Context, a admission.Attributes) error {
	m, ok := a.GetObject().(metav1.Object)
	if !ok {
		return errOwnOnly
	}
	if err := checkNoOwnersOrFinalizers(m); err != nil {
		return err
	}
	var about corev1.ObjectReference
	switch event := a.GetObject().(type) {
	case *corev1.Event:
		about = event.InvolvedObject
	case *eventsv1.Event:
		about = event.Regarding
	}
	switch {
	case n.node == "":
		return nil
	case about.Kind == "Node" && about.Name == n.node:
		return nil
	case about.Kind != "Pod":
		return errors.New("it can create Events about its node and its pods only")
	}
	return n.checkPodEvent(ctx, about)
}

// checkPodEvent allows an Event about a pod that is bound to the node, or was: the server does not know where pods were
// that are gone. An Event about a pod of another node is refused only if it has the pod's UID, so that the answer does
// not tell whether there is a pod of that name.
func (n nodeWrites) checkPodEvent(ctx context.Context, about corev1.ObjectReference) error {
	isOwn := boundTo(n.node)
	pod, err := n.pods.Get(ctx, about.Namespace, about.Name, isOwn)
	switch {
	case err != nil:
		return err
	case pod != nil && isOwn(pod):
		return nil
	case about.UID == "", pod != nil && pod.UID == about.UID:
		return fmt.Errorf("pod %s/%s is not bound to its node", about.Namespace, about.Name)
	}
	return nil
}

// checkRepeated allows counting repetitions of an Event that the node itself has created.
func (n nodeWrites) checkRepeated(ctx context.Context, a admission.Attributes) error {
	if err := checkCounted(a); err != nil {
		return err
	}
	old, ok := a.GetOldObject().(*corev1.Event)
	if !ok || n.node != "" && old.Source.Host != n.node {
		return errors.New("it can change its own Events only")
	}
	return n.checkEvent(ctx, a)
}

// checkCounted allows changes of an Event that count repetitions: of its message, count and times.
func checkCounted(a admission.Attributes) error {
	old, was := a.GetOldObject().(*corev1.Event)
	changed, is := a.GetObject().(*corev1.Event)
	if !was || !is {
		return errOwnOnly
	}
	if err := checkNoOwnersOrFinalizers(changed); err != nil {
		return err
	}
	counted := old.DeepCopy()
	counted.Message, counted.Count, counted.FirstTimestamp, counted.LastTimestamp = changed.Message, changed.Count, changed.FirstTimestamp, changed.LastTimestamp
	if !equalExceptReferences(counted, changed) {
		return errors.New("it can count repetitions of an Event only")
	}
	return nil
}

// checkLabels refuses changes of labels that isolate workloads, and of Kubernetes' own labels except those
// that describe the node.
func checkLabels(old, now map[string]string) error {
	for key, value := range now {
		if was, ok := old[key]; (!ok || was != value) && !isOwnLabel(key) {
			return fmt.Errorf("it cannot set label %s", key)
		}
	}
	for key := range old {
		if _, ok := now[key]; !ok && !isOwnLabel(key) {
			return fmt.Errorf("it cannot remove label %s", key)
		}
	}
	return nil
}

func isOwnLabel(key string) bool {
	prefix, _, prefixed := strings.Cut(key, "/")
	if !prefixed || !isIn(prefix, "kubernetes.io") && !isIn(prefix, "k8s.io") {
		return true
	}
	if isIn(prefix, "node-restriction.kubernetes.io") {
		return false
	}
	return isIn(prefix, "node.kubernetes.io") || isIn(prefix, "kubelet.kubernetes.io") || slices.Contains([]string{
		corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable, corev1.LabelInstanceType,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}, key)
}

// isIn reports whether a domain equals another one, or is a subdomain of it.
func isIn(domain, of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }
