package agent

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ending is what the agent knows of a pod that is being deleted, for Ending.
type ending struct {
	woken   int       // how often it was enqueued
	calm    bool      // there was nothing more to do about it when it was last reconciled
	version string    // the resourceVersion that this is about
	until   time.Time // when there will be; zero if only an event can change that
}

// wake enqueues a pod of which something has changed on the node.
func (a *Agent) wake(uid types.UID) {
	a.mu.Lock()
	if e := a.endings[uid]; e != nil {
		e.woken++
		e.calm = false
	}
	a.mu.Unlock()
	a.queue.Add(uid)
}

// reconciling records that a pod is reconciled. calm is to be called when nothing is left to do.
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

// Ending says which pods of these nodes are being ended. A pod is not if only others can go on
// with it; or, on nodes whose clock is moved by hand, if its time has not come. The caller knows
// the resourceVersions of pods that are being deleted: the agent may not have observed these yet.
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
