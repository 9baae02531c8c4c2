package restriction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

// errOwnOnly is what a node is told that writes something else.
var errOwnOnly = errors.New("it writes its node, the lease of that, and the status of the pods that are bound to it, and removes these")

// nodeWrites are the writes of a node agent: of the one node of that name, or, without a
// name, of the agent in the control plane's own process, which stands for all its nodes.
//
// It makes nodes and their leases, reports about nodes and pods, and removes pods, on
// condition of their uid. Nobody can have a node or a pod deleted, kept or moved by what it
// writes: of owner references, finalizers and taints it sets none, but that the lease of a
// node is owned by the node.
type nodeWrites struct {
	node string
	pods Pods // needed with a name only
}

func (n nodeWrites) check(ctx context.Context, a admission.Attributes) error {
	resource := a.GetResource().GroupResource()
	resource.Resource = strings.TrimSuffix(resource.Resource+"/"+a.GetSubresource(), "/")
	operation := a.GetOperation()
	switch {
	case resource == corev1.Resource("nodes") && operation == admission.Create:
		return n.registers(a)
	case resource == corev1.Resource("nodes") && operation == admission.Update:
		return n.relabels(a)
	case resource == corev1.Resource("nodes/status") && operation == admission.Update:
		return n.reports(a)
	case resource == corev1.Resource("pods/status") && operation == admission.Update:
		return n.reportsPod(a)
	case resource == corev1.Resource("pods") && operation == admission.Delete:
		return n.removes(a)
	case resource == coordinationv1.Resource("leases") && (operation == admission.Create || operation == admission.Update):
		return n.beats(a)
	case (resource == corev1.Resource("events") || resource == eventsv1.Resource("events")) && operation == admission.Create:
		return n.tells(ctx, a)
	}
	return errOwnOnly
}

func (n nodeWrites) isOwn(name string) error {
	if n.node != "" && name != n.node {
		return fmt.Errorf("it is node %s, not %s", n.node, name)
	}
	return nil
}

// registers: a node begins without what decides about its end and its use.
func (n nodeWrites) registers(a admission.Attributes) error {
	node, ok := a.GetObject().(*corev1.Node)
	if !ok {
		return errOwnOnly
	}
	if err := n.isOwn(node.Name); err != nil {
		return err
	}
	if len(node.Spec.Taints) > 0 {
		return errors.New("it sets no taints")
	}
	if err := bare(node); err != nil {
		return err
	}
	return labelsOf(nil, node.Labels)
}

// bare tells what of an object's metadata only others may set.
func bare(m metav1.Object) error {
	switch {
	case len(m.GetOwnerReferences()) > 0:
		return errors.New("it sets no owner references")
	case len(m.GetFinalizers()) > 0:
		return errors.New("it sets no finalizers")
	}
	return nil
}

// relabels: of what a node is to be, it changes annotations, and labels that say what it is.
func (n nodeWrites) relabels(a admission.Attributes) error {
	old, was := a.GetOldObject().(*corev1.Node)
	node, is := a.GetObject().(*corev1.Node)
	if !was || !is {
		return errOwnOnly
	}
	if err := n.isOwn(node.Name); err != nil {
		return err
	}
	if err := keeps(old, node); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) {
		return errors.New("it changes no taints")
	}
	if !equality.Semantic.DeepEqual(old.Spec, node.Spec) {
		return errors.New("it changes nothing in the spec of its node")
	}
	return labelsOf(old.Labels, node.Labels)
}

// keeps tells whether what has an object deleted, or not deleted, is as it was.
func keeps(old, now metav1.Object) error {
	switch {
	case !equality.Semantic.DeepEqual(old.GetOwnerReferences(), now.GetOwnerReferences()):
		return errors.New("it changes no owner references")
	case !equality.Semantic.DeepEqual(old.GetFinalizers(), now.GetFinalizers()):
		return errors.New("it changes no finalizers")
	}
	return nil
}

// reports: with a status goes no metadata.
func (n nodeWrites) reports(a admission.Attributes) error {
	if err := n.isOwn(a.GetName()); err != nil {
		return err
	}
	return statusOnly(a)
}

func statusOnly(a admission.Attributes) error {
	old, was := a.GetOldObject().(metav1.Object)
	now, is := a.GetObject().(metav1.Object)
	if !was || !is {
		return errOwnOnly
	}
	if err := keeps(old, now); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(old.GetLabels(), now.GetLabels()) || !equality.Semantic.DeepEqual(old.GetAnnotations(), now.GetAnnotations()) {
		return errors.New("it reports a status, and changes no labels or annotations with it")
	}
	return nil
}

// isBound tells whether a pod, as it is in the store now, is on the node.
func (n nodeWrites) isBound(a admission.Attributes) error {
	pod, ok := a.GetOldObject().(*corev1.Pod)
	switch {
	case !ok:
		return errOwnOnly
	case pod.Spec.NodeName == "" || n.node != "" && pod.Spec.NodeName != n.node:
		return fmt.Errorf("pod %s/%s is not bound to its node", pod.Namespace, pod.Name)
	}
	return nil
}

func (n nodeWrites) reportsPod(a admission.Attributes) error {
	if err := n.isBound(a); err != nil {
		return err
	}
	return statusOnly(a)
}

func (n nodeWrites) removes(a admission.Attributes) error {
	if err := n.isBound(a); err != nil {
		return err
	}
	return conditioned(a, "uid")
}

// beats: a lease goes with its node, and keeps nothing from going.
func (n nodeWrites) beats(a admission.Attributes) error {
	lease, ok := a.GetObject().(*coordinationv1.Lease)
	if !ok || a.GetNamespace() != corev1.NamespaceNodeLease {
		return errOwnOnly
	}
	if err := n.isOwn(lease.Name); err != nil {
		return err
	}
	if len(lease.Finalizers) > 0 {
		return errors.New("it sets no finalizers")
	}
	for _, owner := range lease.OwnerReferences {
		itself := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: lease.Name, UID: owner.UID}
		if !equality.Semantic.DeepEqual(owner, itself) {
			return errors.New("the only owner of a lease is its node, which does not wait for it")
		}
	}
	return nil
}

// tells: Events of a node are about it and about its pods, those that are gone too.
func (n nodeWrites) tells(ctx context.Context, a admission.Attributes) error {
	m, ok := a.GetObject().(metav1.Object)
	if !ok {
		return errOwnOnly
	}
	if err := bare(m); err != nil {
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
		return errors.New("it tells of its node and of pods")
	}
	node, found, err := n.pods.NodeOf(ctx, about.Namespace, about.Name)
	if err == nil && found && node != n.node {
		err = fmt.Errorf("pod %s/%s is not bound to its node", about.Namespace, about.Name)
	}
	return err
}

// labelsOf tells which label a node must not change: those by which pods of others are
// kept apart, and those of the system but for what the node is.
func labelsOf(old, now map[string]string) error {
	for key, value := range now {
		if was, ok := old[key]; (!ok || was != value) && !isOwnLabel(key) {
			return fmt.Errorf("it does not set label %s", key)
		}
	}
	for key := range old {
		if _, ok := now[key]; !ok && !isOwnLabel(key) {
			return fmt.Errorf("it does not take label %s away", key)
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

// isIn tells whether a domain is another, or within it.
func isIn(domain, of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }
