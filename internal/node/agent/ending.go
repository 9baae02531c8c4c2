package agent

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ending is the agent's state of a pod that is being deleted, for Ending.
type ending struct {
	woken   int       // how often it was enqueued
	calm    bool      // the last reconciliation left nothing to do
	version string    // the resourceVersion of that reconciliation
	until   time.Time // when there is something to do again; zero if only an event can change that
}

// wake enqueues a pod after a change on the node.
func (a *Agent) wake(uid types.UID) {
	a.mu.Lock()
	if e := a.endings[uid]; e != nil {
		e.woken++
		e.calm = false
	}
	a.mu.Unlock()
	a.queue.Add(uid)
}

// reconciling records that a pod is being reconciled. The caller calls calm when nothing is left to do.
func (a *Agent) reconciling(pod *corev1.Pod) (calm func(until time.Time)) {
	if pod.DeletionTimestamp == nil {
		return func(time.Time) {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.endings[pod.UID]
	if e == nil {
		e = &ending{}
		a.endings[pod.UID] = e
	}
	e.calm = false
	woken, version := e.woken, pod.ResourceVersion
	return func(until time.Time) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if e.woken == woken {
			e.calm, e.version, e.until = true, version, until
		}
	}
}

// Ending lists the pods of these nodes that the agent is ending. It leaves out pods that wait for others, and, on nodes
// whose clock a test moves, pods that wait for a later time. versions has the resourceVersions of pods that are being
// deleted, which the agent may not have observed yet.
func (a *Agent) Ending(versions map[types.UID]string) []string {
	var all []string
	if r, ok := a.runtime.(interface{ Due() bool }); ok && r.Due() {
		all = append(all, "events of simulated containers are due")
	}
	for _, obj := range a.pods.GetStore().List() {
		pod, ok := obj.(*corev1.Pod)
		if !ok || !a.isOurs(pod) {
			continue
		}
		version, deleted := versions[pod.UID]
		switch {
		case deleted && version != pod.ResourceVersion:
			all = append(all, fmt.Sprintf("pod %s/%s has changed, and its node has not seen it", pod.Namespace, pod.Name))
		case pod.DeletionTimestamp != nil && !a.rests(pod):
			all = append(all, fmt.Sprintf("pod %s/%s is being ended by its node", pod.Namespace, pod.Name))
		}
	}
	return all
}

func (a *Agent) rests(pod *corev1.Pod) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.endings[pod.UID]
	if e == nil || !e.calm || e.version != pod.ResourceVersion {
		return false
	}
	return e.until.IsZero() || a.movedByHand && a.clock.Now().Before(e.until)
}
