package explain

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// lost is how long a node may be not ready before the wait for its kubelet is stuck: as long as pods tolerate it by
// default.
const lost = 5 * time.Minute

// grace explains a grace period: the object waits for its end, and a pod for the kubelet, which sets the period to
// zero when the containers are stopped.
func (e *Explainer) grace(o *inventory.Object) (Wait, bool) {
	since := requested(o)
	w := Wait{On: OnGracePeriod, State: Slow, Since: &since, Next: []Step{{"wait", waitFor(o)}}}
	w.Says = fmt.Sprintf("its grace period of %s ends in %s", o.Grace, o.Deadline().Sub(e.Now).Round(time.Second))
	isRunning := e.Now.Before(o.Deadline())
	if o.Kind != (ownership.Kind{Kind: "Pod"}) || o.Grace == 0 {
		return w, isRunning
	}
	pod := e.Inventory.Pods[o.UID]
	switch {
	case pod == nil:
		return Wait{On: OnUnread, State: Unknown, Since: &since, Says: "the node of the pod was not read"}, true
	case pod.Node == "" || pod.IsFinished():
		return w, isRunning
	}
	if collected, ok := e.abandoned(o); ok {
		return collected, true
	}
	return e.kubelet(o, pod.Node, w), true
}

// kubelet explains a pod that its node has to stop. inTime is the wait during the grace period.
func (e *Explainer) kubelet(o *inventory.Object, name string, inTime Wait) Wait {
	w := Wait{On: OnNode, State: Unknown, Since: inTime.Since, Object: &Ref{Kind: "Node", Name: name}}
	if r := e.Inventory.Resource(ownership.Kind{Kind: "Node"}); r != nil {
		if node := e.Inventory.Named(r, "", name); node != nil {
			w.Object.UID = node.UID
		}
	}
	late := e.Now.Sub(o.Deadline())
	if e.Facts == nil {
		w.Says = fmt.Sprintf("the kubelet of node %s has to stop it; the node was not read", name)
		return w
	}
	read := e.Facts.Node(name)
	node := read.Value
	w.Next = []Step{{"look at the node", "kubectl describe node " + escape.Shell(name)}}
	switch {
	case read.Unread != "":
		w.Says = fmt.Sprintf("the kubelet of node %s has to stop it; the node could not be read: %s", name, read.Unread)
	case !node.Ready && e.Now.Sub(node.Since) > lost:
		w.State, w.Since = Stuck, &node.Since
		w.Says = e.unready(name, node) + ", and only its kubelet can say that the pod has stopped"
		w.Next = append(w.Next, Step{
			"if the machine is off for good, say so: its pods are deleted and its volumes are detached",
			"kubectl taint node " + escape.Shell(name) + " node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
		})
	case !node.Ready:
		w.Says = e.unready(name, node)
	case late <= 0:
		return inTime
	case late < prompt:
		w.State, w.Next = Slow, inTime.Next
		w.Says = fmt.Sprintf("its grace period is over; node %s is ready and stops it", name)
	default:
		w.Says = fmt.Sprintf("its grace period was over %s ago, and node %s, which is ready, has not stopped it", e.age(o.Deadline()), name)
		w.Next = []Step{{"look at its events and volumes", "kubectl describe pod " + escape.Shell(o.Name) + " -n " + escape.Shell(o.Namespace)}}
	}
	return w
}

// unready says since when a node is not ready.
func (e *Explainer) unready(name string, node inventory.Node) string {
	if node.HasNotReported {
		return fmt.Sprintf("its node %s has never reported, and was created %s ago", name, e.age(node.Since))
	}
	return fmt.Sprintf("its node %s has not been ready for %s", name, e.age(node.Since))
}

// abandoned explains a pod that no kubelet ends: the pod garbage collector removes it.
func (e *Explainer) abandoned(o *inventory.Object) (Wait, bool) {
	pod := e.Inventory.Pods[o.UID]
	if pod == nil {
		return Wait{}, false
	}
	meta, since := metav1.ObjectMeta{}, time.Time{}
	if o.Phase != ownership.Active {
		meta.DeletionTimestamp, since = &metav1.Time{Time: o.Deadline()}, requested(o)
	}
	now := pod.Object(meta)
	var says string
	switch builtin.PodGarbageOf(&now, e.nodeOf(o, pod)) {
	case builtin.NodeGone:
		says = fmt.Sprintf("its node %s is gone: the pod garbage collector, which looks every %s, removes it once the node has been gone for %s",
			pod.Node, builtin.PodGarbagePeriod, builtin.NodeQuarantine)
	case builtin.NodeOutOfService:
		says = fmt.Sprintf("its node %s is out of service: the pod garbage collector, which looks every %s, removes it", pod.Node, builtin.PodGarbagePeriod)
	case builtin.NeverBound:
		says = fmt.Sprintf("it is bound to no node: the pod garbage collector, which looks every %s, removes it", builtin.PodGarbagePeriod)
	default:
		return Wait{}, false
	}
	next := deletes(preview.ByPodCollector, "", since)
	if w, refused := e.unreported(o, next); refused {
		return w, true
	}
	return e.undecided(e.builtin(o, OnController, finalizerowner.PodCollector, says, since), o, next), true
}

// nodeOf returns the state of the node of a pod. It counts as ready if nothing is known of it. Only for a pod that is
// being deleted, the node itself is read.
func (e *Explainer) nodeOf(o *inventory.Object, pod *inventory.Pod) builtin.NodeState {
	ready := builtin.NodeState{Exists: true, Ready: true}
	nodes := e.Inventory.Resource(inventory.NodeKind())
	switch {
	case pod.Node == "":
		return ready
	case nodes != nil && e.Inventory.Complete(nodes, "") && e.Inventory.Named(nodes, "", pod.Node) == nil:
		return builtin.NodeState{}
	case o.Phase == ownership.Active || e.Facts == nil:
		return ready
	}
	if read := e.Facts.Node(pod.Node); read.Unread == "" {
		return read.Value.NodeState
	}
	return ready
}
