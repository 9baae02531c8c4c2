package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	name    = "job-controller"
	workers = 5
)

type reconciler struct {
	client     kubernetes.Interface
	jobs       batchlisters.JobLister
	pods       *controller.RefManager[*corev1.Pod]
	podControl *controller.PodControl
	events     record.EventRecorder
	now        func() time.Time

	// written holds the expectations about statuses: from a job older than its last status, pods
	// would be counted, and created, again.
	written *controller.Expectations
	// untracked are the pods whose finalizers were removed, until the cache shows that, so that
	// they are not removed again.
	untracked *controller.Expectations
	refusals  *controller.Refusals

	mu       sync.Mutex
	backoffs map[cache.ObjectName]jobBackoff // guarded by mu
}

// jobBackoff is the record of the job with that uid.
type jobBackoff struct {
	job types.UID
	backoffRecord
}

// Controllers returns the controllers of batch/v1 Job: one that runs jobs and deletes
// finished ones when their time to live is over, and one that removes the tracking finalizer
// from pods that no job counts any more.
func Controllers(shared *controller.Context) []*controller.Controller {
	source := shared.Informers.Jobs
	c := &reconciler{
		client: shared.Client, jobs: source.Lister(), pods: shared.Pods, podControl: shared.PodControl(name), events: shared.Events(name), now: shared.Clock.Now,
		written: controller.NewExpectations(source.Informer().GetIndexer()), untracked: controller.NewExpectations(shared.Pods.Indexer()),
		refusals: controller.NewRefusals(), backoffs: map[cache.ObjectName]jobBackoff{},
	}
	return []*controller.Controller{
		{
			Name: name, Reconcile: c.reconcile, Workers: workers,
			Sources: []controller.Source{controller.For(source.Informer()), shared.Pods.Source(kind(), c.matching)},
		},
		c.tracking(source.Informer(), shared.Informers.Pods),
	}
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	job, err := c.jobs.Jobs(key.Namespace).Get(key.Name)
	switch {
	case apierrors.IsNotFound(err):
		c.forget(key, "")
		return 0, nil
	case err != nil:
		return 0, err
	case finished(job) != nil:
		c.forget(key, "")
		return c.expire(ctx, job)
	case job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName:
		return 0, nil
	}
	c.forget(key, job.UID)
	if !c.podControl.Expectations.Satisfied(job.UID) || !c.written.Satisfied(job.UID) {
		return controller.LostEventPeriod, nil // the awaited event enqueues the key earlier
	}
	owner, err := c.owner(job)
	if err != nil {
		return 0, err
	}
	mine, err := c.pods.AdoptAndRelease(ctx, owner, c.podControl.Expectations)
	if err != nil {
		return 0, err
	}
	plan := Decide(job, c.observed(key, job, mine), c.now())
	c.remember(key, job, plan.Backoff)
	if err := c.write(ctx, job, plan); err != nil {
		return 0, err // the rest of the plan depends on it
	}
	err = errors.Join(c.untrack(ctx, job, c.unseen(job, mine, plan.Untrack)), c.carryOut(ctx, owner, job, plan))
	return controller.Sooner(plan.RequeueAfter, controller.RequeueAfter(job.UID, c.podControl.Expectations)), err
}

func (c *reconciler) owner(job *batchv1.Job) (controller.Owner, error) {
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil {
		return controller.Owner{}, fmt.Errorf("read the selector: %w", err)
	}
	return controller.Owner{
		Object: job, Kind: kind(), Selector: selector, Finalizer: batchv1.JobTrackingFinalizer,
		Live: func(ctx context.Context) (metav1.Object, error) {
			return c.client.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
		},
	}, nil
}

func (c *reconciler) observed(key cache.ObjectName, job *batchv1.Job, mine []*corev1.Pod) Observed {
	ending := make(map[types.UID]bool, len(mine))
	for _, pod := range mine {
		ending[pod.UID] = pod.DeletionTimestamp != nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return Observed{
		Mine: mine, Leaving: c.podControl.Expectations.PendingDeletions(job.UID, ending), Refused: c.refusals.Present(key, ending), Backoff: c.backoffs[key].backoffRecord,
	}
}

func (c *reconciler) remember(key cache.ObjectName, job *batchv1.Job, r backoffRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.backoffs[key] = jobBackoff{job.UID, r}
}

// forget drops the back-off of jobs of that name with any other uid.
func (c *reconciler) forget(key cache.ObjectName, but types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.backoffs[key]
	if !ok || known.job == but {
		return
	}
	delete(c.backoffs, key)
	c.refusals.Forget(key)
	for _, expectations := range []*controller.Expectations{c.podControl.Expectations, c.written, c.untracked} {
		expectations.Forget(known.job)
	}
}

// write writes the status if it differs from the one in the cache.
func (c *reconciler) write(ctx context.Context, job *batchv1.Job, plan Plan) error {
	if equality.Semantic.DeepEqual(plan.Status, job.Status) {
		return nil
	}
	changed := job.DeepCopy()
	changed.Status = plan.Status
	updated, err := c.client.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	c.written.ExpectVersion(job.UID, updated.ResourceVersion)
	for _, event := range plan.Events {
		c.events.Event(job, event.Type, event.Reason, event.Message)
	}
	return nil
}

// unseen returns the pods of a list whose finalizers have not been removed yet.
func (c *reconciler) unseen(job *batchv1.Job, mine, list []*corev1.Pod) []*corev1.Pod {
	gone := make(map[types.UID]bool, len(mine))
	for _, pod := range mine {
		gone[pod.UID] = !isTracked(pod)
	}
	done := c.untracked.PendingDeletions(job.UID, gone)
	return slices.DeleteFunc(list, func(pod *corev1.Pod) bool { return done[pod.UID] })
}

// untrack removes the finalizer from pods that have been counted, even if other fields of the
// pods have changed.
func (c *reconciler) untrack(ctx context.Context, job *batchv1.Job, list []*corev1.Pod) error {
	return controller.AttemptAll(list, func(pod *corev1.Pod) error {
		_, err := c.removeFinalizer(ctx, pod, "")
		if err == nil || controller.IsNotFound(err) {
			c.untracked.ExpectDeletion(job.UID, pod.UID)
			return nil
		}
		return err
	})
}

// removeFinalizer removes the tracking finalizer from a pod if it is still at that
// resourceVersion; an empty one matches any.
func (c *reconciler) removeFinalizer(ctx context.Context, pod *corev1.Pod, at string) (*corev1.Pod, error) {
	metadata := map[string]any{"uid": pod.UID, "$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}}
	if at != "" {
		metadata["resourceVersion"] = at
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("write a patch: %w", err)
	}
	changed, err := c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("remove the finalizer from pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return changed, nil
}

func (c *reconciler) carryOut(ctx context.Context, owner controller.Owner, job *batchv1.Job, plan Plan) error {
	counted := func(pod *corev1.Pod, err error) error {
		if controller.IsRefusal(err) {
			c.refusals.Add(cache.MetaObjectToName(job), pod.UID)
		}
		return err
	}
	// The pods to create are beside those whose deletion is refused.
	return errors.Join(
		controller.AttemptAll(plan.Discard, func(pod *corev1.Pod) error { return counted(pod, c.discard(ctx, owner, job, pod)) }),
		controller.AttemptAll(plan.Delete, func(pod *corev1.Pod) error { return counted(pod, c.podControl.Delete(ctx, owner, job, pod)) }),
		controller.IgnoreNamespaceTerminating(controller.SlowStartBatch(ctx, len(plan.Create), func(ctx context.Context, i int) error {
			return c.podControl.Create(ctx, owner, job, podOf(job, plan.Create[i]))
		})),
	)
}

// discard deletes a pod that counts neither as failed nor as succeeded. If it has ended
// meanwhile it has changed, so the request conflicts, and the pod is counted. A pod that the
// server does not delete, because it is protected, keeps its finalizer: it runs on, and counts.
func (c *reconciler) discard(ctx context.Context, owner controller.Owner, job *batchv1.Job, pod *corev1.Pod) error {
	if isTracked(pod) {
		if err := c.podControl.CheckDeletion(ctx, job, pod); err != nil {
			return err
		}
		changed, err := c.removeFinalizer(ctx, pod, pod.ResourceVersion)
		if controller.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		pod = changed
	}
	return c.podControl.Delete(ctx, owner, job, pod)
}

// expire deletes a finished job when its time to live is over.
func (c *reconciler) expire(ctx context.Context, job *batchv1.Job) (time.Duration, error) {
	in, expires := expiry(job, c.now())
	if !expires || in > 0 {
		return max(0, in), nil
	}
	background := metav1.DeletePropagationBackground
	err := c.client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion}, PropagationPolicy: &background,
	})
	if err != nil && !controller.IsNotFound(err) {
		return 0, fmt.Errorf("delete job %s/%s, whose time to live is over: %w", job.Namespace, job.Name, err)
	}
	return 0, nil
}

func (c *reconciler) matching(pod *corev1.Pod) []cache.ObjectName {
	list, err := c.jobs.Jobs(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	return controller.MatchingOwners(pod, list, func(job *batchv1.Job) *metav1.LabelSelector { return job.Spec.Selector })
}
