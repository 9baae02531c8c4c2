package cronjob

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	_ "time/tzdata" // already linked for the validation of time zones

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	name    = "cronjob-controller"
	workers = 2
)

func kind() schema.GroupVersionKind { return batchv1.SchemeGroupVersion.WithKind("CronJob") }

type reconciler struct {
	client kubernetes.Interface
	crons  batchlisters.CronJobLister
	jobs   *controller.RefManager[*batchv1.Job]
	events record.EventRecorder
	now    func() time.Time

	// written holds the expectations about statuses: from a CronJob older than its last status,
	// a job that is already gone would be created again.
	written *controller.Expectations
	// made holds the expectations about created jobs: until the cache shows them, they count as
	// running.
	made *controller.Expectations

	mu   sync.Mutex
	runs map[cache.ObjectName]run // guarded by mu
}

// run is the last run of the CronJob with that uid.
type run struct {
	cron types.UID
	at   time.Time
}

// New returns the controller of batch/v1 CronJob.
func New(shared *controller.Context) (*controller.Controller, error) {
	crons, jobs := shared.Informers.CronJobs, shared.Informers.Jobs
	dependents, err := controller.NewRefManager(jobs.Informer(),
		func(ctx context.Context, namespace, name string, kind types.PatchType, patch []byte) (*batchv1.Job, error) {
			return shared.Client.BatchV1().Jobs(namespace).Patch(ctx, name, kind, patch, metav1.PatchOptions{})
		})
	if err != nil {
		return nil, err
	}
	c := &reconciler{
		client: shared.Client, crons: crons.Lister(), jobs: dependents, events: shared.Events(name), now: shared.Clock.Now,
		written: controller.NewExpectations(crons.Informer().GetIndexer()), made: controller.NewExpectations(dependents.Indexer()),
		runs: map[cache.ObjectName]run{},
	}
	return &controller.Controller{
		Name: name, Reconcile: c.reconcile, Workers: workers,
		Sources: []controller.Source{controller.For(crons.Informer()), dependents.Source(kind(), nil)},
	}, nil
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	cron, err := c.crons.CronJobs(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.forget(key, "")
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	c.forget(key, cron.UID)
	if !c.written.Satisfied(cron.UID) || !c.made.Satisfied(cron.UID) {
		return controller.LostEventPeriod, nil // the awaited event enqueues the key earlier
	}
	plan := Decide(cron, Observed{Mine: c.jobs.ControlledBy(cron.UID), Ran: c.ran(key)}, c.now())
	for _, event := range plan.Events {
		c.events.Event(cron, event.Type, event.Reason, event.Message)
	}
	// A run is recorded before its job may be deleted.
	if cron, err = c.write(ctx, cron, plan.Status); err != nil {
		return 0, err
	}
	outdated := c.remove(ctx, cron, plan.Outdated)
	err = controller.IgnoreNamespaceTerminating(c.carryOut(ctx, key, cron, &plan))
	_, writeErr := c.write(ctx, cron, plan.Status)
	return plan.RequeueAfter, errors.Join(err, outdated, writeErr)
}

// carryOut replaces running jobs by the planned one, and adds that to the status.
func (c *reconciler) carryOut(ctx context.Context, key cache.ObjectName, cron *batchv1.CronJob, plan *Plan) error {
	if err := c.remove(ctx, cron, plan.Replaced); err != nil || plan.Create.IsZero() {
		return err
	}
	job, err := c.create(ctx, cron, jobOf(cron, plan.Create, plan.Zone))
	if err != nil {
		return err
	}
	c.remember(key, run{cron.UID, plan.Create})
	plan.Status.LastScheduleTime = &metav1.Time{Time: plan.Create}
	if finished(job) == nil {
		plan.Status.Active = append(plan.Status.Active, refer(nil, job))
	}
	return nil
}

func (c *reconciler) remove(ctx context.Context, cron *batchv1.CronJob, jobs []*batchv1.Job) error {
	return controller.AttemptAll(jobs, func(job *batchv1.Job) error { return c.removeOne(ctx, cron, job) })
}

// removeOne deletes a job and its pods, on the condition that the job equals the cached one.
func (c *reconciler) removeOne(ctx context.Context, cron *batchv1.CronJob, job *batchv1.Job) error {
	background := metav1.DeletePropagationBackground
	err := c.client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion}, PropagationPolicy: &background,
	})
	switch {
	case err == nil:
		c.events.Eventf(cron, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %s", job.Name)
		return nil
	case controller.IsNotFound(err):
		return nil
	case !controller.IsConflict(err):
		c.events.Eventf(cron, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
	}
	return fmt.Errorf("delete job %s/%s: %w", job.Namespace, job.Name, err)
}

// create creates a job, or finds that it exists: the cache may not show an earlier creation, and
// the response to a request may be lost.
func (c *reconciler) create(ctx context.Context, cron *batchv1.CronJob, job *batchv1.Job) (*batchv1.Job, error) {
	made, err := c.client.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
	if controller.IsNamespaceTerminating(err) {
		return nil, err
	}
	if err == nil {
		c.events.Eventf(cron, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %s", made.Name)
	} else {
		there, readErr := c.client.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
		if readErr != nil || !metav1.IsControlledBy(there, cron) {
			c.events.Eventf(cron, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
			return nil, fmt.Errorf("create a job: %w", err)
		}
		made = there
	}
	c.made.ExpectVersion(cron.UID, made.ResourceVersion)
	return made, nil
}

// write writes the status if it has changed, and returns the CronJob with it.
func (c *reconciler) write(ctx context.Context, cron *batchv1.CronJob, status batchv1.CronJobStatus) (*batchv1.CronJob, error) {
	if equality.Semantic.DeepEqual(status, cron.Status) {
		return cron, nil
	}
	changed := cron.DeepCopy()
	changed.Status = status
	updated, err := c.client.BatchV1().CronJobs(cron.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the status of cron job %s/%s: %w", cron.Namespace, cron.Name, err)
	}
	c.written.ExpectVersion(cron.UID, updated.ResourceVersion)
	return updated, nil
}

func (c *reconciler) ran(key cache.ObjectName) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[key].at
}

func (c *reconciler) remember(key cache.ObjectName, last run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[key] = last
}

// forget drops the state of CronJobs of that name with any other uid.
func (c *reconciler) forget(key cache.ObjectName, but types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.runs[key]
	if !ok || last.cron == but {
		return
	}
	delete(c.runs, key)
	c.written.Forget(last.cron)
	c.made.Forget(last.cron)
}
