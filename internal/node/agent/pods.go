package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// record is the agent's state of one pod. Only the worker that holds the pod's key uses pod and
// written.
type record struct {
	pod     *corev1.Pod // as last seen
	written *corev1.Pod // the API's response to our last write, until the watch delivers it

	mu      sync.Mutex
	state   lifecycle.State // guarded by mu
	changed bool            // guarded by mu; a step has ended since the last decision
}

// leftover returns a record for a pod that only the runtime has. It returns nil if the runtime has nothing of it.
func leftover(uid types.UID, observed lifecycle.Observed) *record {
	if observed.Sandbox.ID == "" && len(observed.Instances) == 0 {
		return nil
	}
	left := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	named := map[string]bool{}
	for _, i := range observed.Instances {
		if !named[i.Container] {
			named[i.Container] = true
			left.Spec.Containers = append(left.Spec.Containers, corev1.Container{Name: i.Container})
		}
	}
	return &record{pod: left}
}

// find returns the record of a pod, updated from the API, and reports whether the API has the pod. A nil record means
// that there is nothing to do. observed is the pod in the runtime.
func (a *Agent) find(uid types.UID, observed lifecycle.Observed) (r *record, found bool, err error) {
	known, err := a.pods.GetIndexer().ByIndex(byUID, string(uid))
	if err != nil {
		return nil, false, fmt.Errorf("find pod %s: %w", uid, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r = a.records[uid]
	if len(known) == 0 {
		if r == nil {
			if r = leftover(uid, observed); r != nil {
				a.records[uid] = r
			}
		}
		return r, false, nil
	}
	pod, ok := known[0].(*corev1.Pod)
	if !ok {
		return nil, false, fmt.Errorf("pod %s is a %T", uid, known[0])
	}
	if r == nil {
		a.runtime.Adopt(pod)
		r = &record{}
		a.records[uid] = r
	}
	if r.written != nil {
		if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, r.written.ResourceVersion); err == nil && order < 0 {
			pod = r.written
		} else {
			r.written = nil
		}
	}
	r.pod = pod
	a.runtime.Update(pod)
	return r, true, nil
}

func (a *Agent) forget(uid types.UID) {
	a.admissions.forget(uid)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.records, uid)
	delete(a.endings, uid)
}

// reconcile brings a pod closer to its desired state.
func (a *Agent) reconcile(ctx context.Context, uid types.UID) error {
	for ctx.Err() == nil {
		before := a.runtime.Observe(uid) // once: a second look may find containers that the first did not
		r, found, err := a.find(uid, before)
		if err != nil {
			return err
		}
		if r == nil {
			if !before.Unknown {
				a.runtime.Forget(uid)
			}
			return nil
		}
		calm := a.reconciling(r.pod)
		rejection, err := a.admit(ctx, r.pod, found)
		if err != nil {
			return err
		}
		plan, observed := a.decide(r, !found, rejection)
		if observed.Unknown {
			return nil // the runtime reports a change when it can describe the pod
		}
		a.record(r.pod, plan.Events)
		if a.begin(ctx, r, plan.Steps); r.hasChanged() {
			continue
		}
		wrote := false
		if found {
			wrote, err = a.report(ctx, r, &plan.Status)
		}
		switch {
		case err != nil:
			return err
		case wrote:
			continue
		case !found && observed.Sandbox.ID == "" && len(observed.Instances) == 0 && plan.Next.IsZero():
			a.forget(uid)
			a.runtime.Forget(uid)
		case !plan.Next.IsZero():
			a.queue.AddAfter(uid, plan.Next.Sub(a.clock.Now()))
		}
		calm(plan.Next)
		return nil
	}
	return nil
}

func (a *Agent) decide(r *record, gone bool, rejection *lifecycle.Rejection) (lifecycle.Plan, lifecycle.Observed) {
	observed := a.runtime.Observe(r.pod.UID)
	r.mu.Lock()
	defer r.mu.Unlock()
	in := lifecycle.Input{Pod: r.pod, Gone: gone, Rejection: rejection, Observed: observed, HostIPs: a.nodes[r.pod.Spec.NodeName].Addresses, Now: a.clock.Now()}
	return lifecycle.Decide(in, &r.state), observed
}

// hasChanged reports, once, that a step has ended.
func (r *record) hasChanged() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.changed
	r.changed = false
	return changed
}

func (a *Agent) begin(ctx context.Context, r *record, steps []lifecycle.Step) {
	for _, s := range steps {
		pod := r.pod
		uid := pod.UID
		done := func(err error) {
			a.record(pod, lifecycle.EventsOf(s, err))
			r.mu.Lock()
			r.state.Finished(s, err, a.clock.Now())
			r.changed = true
			r.mu.Unlock()
			a.wake(uid)
		}
		a.logStep(ctx, r.pod, s)
		if _, ok := s.(lifecycle.Delete); ok {
			done(a.remove(ctx, r.pod))
			continue
		}
		a.runtime.Do(ctx, r.pod, s, done)
	}
}

// logStep logs the steps that end something. Starts are routine.
func (a *Agent) logStep(ctx context.Context, pod *corev1.Pod, s lifecycle.Step) {
	switch s := s.(type) {
	case lifecycle.Kill:
		a.log.InfoContext(ctx, "container killed", "pod", pod.Namespace+"/"+pod.Name, "container", s.Container)
	case lifecycle.CreateSandbox, lifecycle.StopSandbox, lifecycle.RemoveSandbox, lifecycle.Start, lifecycle.GiveUp, lifecycle.Remove,
		lifecycle.Probe, lifecycle.PreStop, lifecycle.Signal, lifecycle.Resize, lifecycle.Delete:
		a.log.DebugContext(ctx, "step", "pod", pod.Namespace+"/"+pod.Name, "step", fmt.Sprintf("%T", s))
	}
}

// report writes the status of a pod if it differs from the API's, and reports whether it did. The
// write is conditioned on the UID.
func (a *Agent) report(ctx context.Context, r *record, status *corev1.PodStatus) (wrote bool, err error) {
	if equality.Semantic.DeepEqual(&r.pod.Status, status) || a.isHeld(r.pod, status) {
		return false, nil
	}
	written, err := a.writeStatus(ctx, r.pod, status)
	switch {
	case a.isGone(ctx, r.pod, err):
		return false, nil // the watch will deliver that
	case err != nil:
		return false, fmt.Errorf("report the status of pod %s/%s: %w", r.pod.Namespace, r.pod.Name, err)
	}
	a.record(r.pod, lifecycle.EventsBetween(r.pod, status))
	written.ManagedFields = nil
	if equality.Semantic.DeepEqual(&r.pod.Status, &written.Status) {
		return false, nil // the API normalizes the status: writing it again would change nothing
	}
	r.pod, r.written = written, written
	return true, nil
}

// writeStatus writes the status on the condition that the pod is as the agent knows it, and otherwise as a patch, which
// costs the server twice as much.
func (a *Agent) writeStatus(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus) (*corev1.Pod, error) {
	changed := *pod
	changed.Status = *status
	written, err := a.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, &changed, metav1.UpdateOptions{})
	if !apierrors.IsConflict(err) {
		return written, err
	}
	patch, err := statusPatch(pod, status)
	if err != nil {
		return nil, err
	}
	return a.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// statusPatch returns a patch of the status of this very pod. It does not touch the fields that others report.
func statusPatch(pod *corev1.Pod, status *corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: pod.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: *status})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}

// remove removes a pod from the API when the node has nothing left of it.
func (a *Agent) remove(ctx context.Context, pod *corev1.Pod) error {
	now, uid := int64(0), pod.UID
	err := a.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if err != nil && !a.isGone(ctx, pod, err) {
		a.failures.Warn(ctx, "pod not removed", pod.Namespace+"/"+pod.Name, err, "pod", pod.Namespace+"/"+pod.Name)
		return fmt.Errorf("remove pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// isGone reports whether the error of a write shows that a pod was removed or replaced. To a node with a credential of
// its own, the server answers Forbidden about every pod that is not bound to it, also about one that does not exist; its
// own pods it may list.
func (a *Agent) isGone(ctx context.Context, pod *corev1.Pod, err error) bool {
	if !apierrors.IsForbidden(err) {
		return controller.IsNotFound(err) || controller.IsConflict(err)
	}
	selector := fields.Set{"metadata.name": pod.Name, "spec.nodeName": pod.Spec.NodeName}.AsSelector()
	list, err := a.client.CoreV1().Pods(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
	return err == nil && !slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return p.UID == pod.UID })
}

// Pod returns a pod on a node of this agent, as last observed. The error is NotFound if the agent has no such pod.
func (a *Agent) Pod(namespace, name string) (*corev1.Pod, error) {
	if !a.pods.HasSynced() {
		return nil, errNotSeen()
	}
	obj, _, err := a.pods.GetIndexer().GetByKey(namespace + "/" + name)
	if err != nil {
		return nil, fmt.Errorf("find pod %s/%s: %w", namespace, name, err)
	}
	if pod, ok := obj.(*corev1.Pod); ok && a.isOurs(pod) {
		return pod, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

// Stream returns the URL, on this machine, of a stream to a pod on a node of this agent. The error is NotFound if there
// is no such container.
func (a *Agent) Stream(ctx context.Context, pod *corev1.Pod, r kubeletapi.StreamRequest) (*url.URL, error) {
	if !a.isOurs(pod) {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), pod.Spec.NodeName)
	}
	to, err := a.runtime.Stream(ctx, pod, r)
	switch {
	case errors.Is(err, kubeletapi.ErrNoContainer):
		return nil, notFound(err)
	case errors.Is(err, kubeletapi.ErrNoProcesses):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s is on node %s, of which nothing can be reached: %s", pod.Name, pod.Spec.NodeName, err))
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	}
	return to, nil
}

// notFound returns an error of reason NotFound with the text of err.
func notFound(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: err.Error(),
	}}
}

// Logs returns the lines that a container of a pod on a node of this agent has written. The error is NotFound if there
// is no such container.
func (a *Agent) Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	if !a.isOurs(pod) {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), pod.Spec.NodeName)
	}
	log, err := a.runtime.Logs(ctx, pod, o)
	if errors.Is(err, kubeletapi.ErrNoContainer) {
		return nil, notFound(err)
	}
	return log, err
}
