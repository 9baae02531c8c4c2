package agent

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
	"github.com/coppice-dev/coppice/internal/node/scheduler/placement"
)

// A node rejects its first pods at once, and later ones at a limited rate, the rate at which a cluster's controllers
// create pods. Controllers that replace a failed pod at once, without a back-off, would otherwise create thousands.
const (
	rejectionsAtOnce = 20
	rejectionEvery   = 100 * time.Millisecond
)

// admissions contains the pods that the nodes have admitted or rejected. It is safe for concurrent
// use.
type admissions struct {
	mu       sync.Mutex
	nodes    map[string]*admittingNode // guarded by mu, like all fields below
	verdicts map[types.UID]*verdict
}

// admittingNode is a node with the pods that it has admitted and that have not ended.
type admittingNode struct {
	*placement.Node

	object *corev1.Node
	// rejected is the time by which all rejections so far would have been made one by one.
	rejected time.Time
}

// verdict is the decision about a pod. It does not change.
type verdict struct {
	node      string
	rejection *lifecycle.Rejection // nil if the pod was admitted
}

func newAdmissions() admissions {
	return admissions{nodes: map[string]*admittingNode{}, verdicts: map[types.UID]*verdict{}}
}

// node returns the entry of a node, updated from the API. The caller holds the lock.
func (a *admissions) node(object *corev1.Node) *admittingNode {
	n := a.nodes[object.Name]
	switch {
	case n == nil:
		n = &admittingNode{Node: placement.NewNode(object), object: object}
		a.nodes[object.Name] = n
	case n.object != object:
		n.object = object
		n.Update(object)
	}
	return n
}

// add counts the current usage of an admitted pod.
func (n *admittingNode) add(pod *corev1.Pod) {
	if n.Pod(pod.UID) != pod {
		n.Add(pod)
	}
}

// forget drops a pod that is gone.
func (a *admissions) forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.releaseLocked(uid)
	delete(a.verdicts, uid)
}

// releaseLocked frees the resources of a pod.
func (a *admissions) releaseLocked(uid types.UID) {
	if v := a.verdicts[uid]; v != nil && a.nodes[v.node] != nil {
		a.nodes[v.node].Remove(uid)
	}
}

// decided returns the rejection of a pod, and whether the decision is known. It frees the resources of a pod that has
// ended.
func (a *admissions) decided(pod *corev1.Pod, found bool) (rejection *lifecycle.Rejection, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.verdicts[pod.UID]
	switch {
	case !found, hasEnded(pod):
		a.releaseLocked(pod.UID)
		return nil, true
	case v != nil && v.rejection == nil:
		a.nodes[v.node].add(pod)
		return nil, true
	case v != nil:
		return v.rejection, true
	}
	return nil, pod.DeletionTimestamp != nil // it will not be started
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// try admits a pod, unless the node rejects it. A pod that the node has already started stays admitted, whatever has
// changed since.
func (a *admissions) try(pod *corev1.Pod, object *corev1.Node) *placement.Rejection {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.node(object)
	if pod.Status.StartTime == nil {
		if r := n.Admit(pod); r != nil {
			return r
		}
	}
	n.add(pod)
	a.verdicts[pod.UID] = &verdict{node: object.Name}
	return nil
}

// free frees the resources of the pods that have ended.
func (a *admissions) free(node string, ended func(types.UID) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.nodes[node]; n != nil {
		n.RemoveFunc(ended)
	}
}

// reject records that a node rejects a pod.
func (a *admissions) reject(pod *corev1.Pod, r placement.Rejection, now time.Time) *lifecycle.Rejection {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[pod.Spec.NodeName]
	if n.rejected = n.rejected.Add(rejectionEvery); n.rejected.Before(now) {
		n.rejected = now
	}
	rejection := &lifecycle.Rejection{Reason: r.Reason, Message: r.Message, At: n.rejected.Add(-(rejectionsAtOnce - 1) * rejectionEvery)}
	a.verdicts[pod.UID] = &verdict{pod.Spec.NodeName, rejection}
	return rejection
}

// admit decides once whether a pod may run. It returns the rejection if it may not.
func (a *Agent) admit(ctx context.Context, pod *corev1.Pod, found bool) (*lifecycle.Rejection, error) {
	if r, known := a.admissions.decided(pod, found); known {
		return r, nil
	}
	object := a.nodeObject(pod.Spec.NodeName)
	r := a.admissions.try(pod, object)
	if r == nil {
		return nil, nil // it is admitted
	}
	// The caches may lag behind the client that bound the pod: since then, pods may have ended, and the labels or the
	// capacity of the node may have changed.
	a.admissions.free(pod.Spec.NodeName, a.isOver)
	if fresh, err := a.readNode(ctx, pod.Spec.NodeName, ""); err == nil {
		object = fresh
	} else if ctx.Err() != nil {
		return nil, err
	}
	if r = a.admissions.try(pod, object); r == nil {
		return nil, nil // it is admitted
	}
	a.log.InfoContext(ctx, "pod rejected", "pod", pod.Namespace+"/"+pod.Name, "node", pod.Spec.NodeName, "reason", r.Reason, "message", r.Message)
	a.record(pod, []lifecycle.Event{{Type: corev1.EventTypeWarning, Reason: r.Reason, Message: r.Message}})
	return a.admissions.reject(pod, *r, a.clock.Now()), nil
}

// nodeObject returns the last observed API object of a node, or the object with which it will be registered.
func (a *Agent) nodeObject(name string) *corev1.Node {
	obj, _, err := a.objects.GetStore().GetByKey(name)
	if node, ok := obj.(*corev1.Node); ok && err == nil {
		return node
	}
	return a.object(a.nodes[name], a.problem())
}

// isOver reports whether a pod is gone or has ended.
func (a *Agent) isOver(uid types.UID) bool {
	known, err := a.pods.GetIndexer().ByIndex(byUID, string(uid))
	if err != nil || len(known) == 0 {
		return err == nil
	}
	pod, ok := known[0].(*corev1.Pod)
	return ok && hasEnded(pod)
}

// adoptStarted adopts and admits the pods that an earlier agent has started, before the agent starts any other: they keep
// their addresses and their resources.
func (a *Agent) adoptStarted() {
	for _, obj := range a.pods.GetStore().List() {
		pod, ok := obj.(*corev1.Pod)
		if !ok || !a.isOurs(pod) || pod.Status.StartTime == nil || hasEnded(pod) {
			continue
		}
		a.runtime.Adopt(pod)
		a.admissions.try(pod, a.nodeObject(pod.Spec.NodeName))
	}
}
