// Package job runs the pods of a Job until enough have succeeded, or the job has failed.
//
//	how the pods have ended ──▶ count.go: each is counted once
//	the outcome for the job ──▶ outcome.go: it has failed, it has succeeded, or it continues
//	the next steps ──▶ work.go: pods to create, to delete, to remove the finalizer from
//
// A pod is counted exactly once, however often the controller crashes and however late
// its cache is, because it carries a finalizer, which is removed between two writes:
//
//  1. The pod has ended: its uid goes to status.uncountedTerminatedPods.
//  2. The finalizer is removed.
//  3. The pod has no finalizer, or is gone: its uid leaves the status, and the counter
//     goes up, in one write.
//
// Every write of a status is conditioned on the resourceVersion that the decision was based
// on. With completion indexes, a success is an index in status.completedIndexes instead,
// which can be added twice without harm.
//
// A pod that is deleted because there are too many, or because the job is suspended, has not
// failed: its finalizer is removed first, while it runs, and then it is deleted. A pod that
// runs without the finalizer could not be counted and is deleted, too (R26).
package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// burst is the maximum number of pods that are created, deleted or counted for one job before
// other jobs get their turn.
const burst = 500

// Plan is the result of Decide. The status is written first: the rest depends on it.
type Plan struct {
	Status batchv1.JobStatus
	// Untrack are pods that have been counted and lose their finalizer.
	Untrack []*corev1.Pod
	// Discard are pods that lose the finalizer and are deleted, and do not count.
	Discard []*corev1.Pod
	// Delete are pods that are deleted and count as failed.
	Delete []*corev1.Pod
	Create []newPod
	Events []Event
	// RequeueAfter is the time until the next step that no event triggers; 0 means never.
	RequeueAfter time.Duration
	// Backoff is the Observed.Backoff of the next Decide.
	Backoff backoffRecord
}

// newPod is a pod to be created.
type newPod struct {
	// Index is its completion index; negative if it has none.
	Index int
	// Failures and Ignored are how often pods of the index have failed, if there is a limit
	// per index.
	Failures, Ignored int
}

// Event is an event to record on the job.
type Event struct{ Type, Reason, Message string }

// decision builds a Plan.
type decision struct {
	job *batchv1.Job
	now time.Time

	pods    []observedPod
	refused map[types.UID]int
	// The results of the pods, whether or not the status can reflect them yet.
	succeeded, failed        int
	completed, failedIndexes indexSet
	counted                  map[types.UID]bool  // in the new status, or not to be counted, so they need no finalizer
	podFailure               string              // why a pod's failure fails the job; empty if none does
	retried                  map[int]observedPod // with a limit per index: the last failed pod of each index to be retried

	plan Plan
}

// Decide plans the next step for a job that has not finished.
func Decide(job *batchv1.Job, seen Observed, now time.Time) Plan {
	d := decision{job: job, now: now, pods: classify(job, seen), refused: seen.Refused, counted: map[types.UID]bool{}, retried: map[int]observedPod{}}
	d.plan.Status = *job.Status.DeepCopy()
	d.plan.Backoff = seen.Backoff.after(podsOf(in(d.pods, succeeded)), podsOf(slices.DeleteFunc(in(d.pods, failed, leaving), observedPod.isDiscarded)))
	d.count()
	end := d.outcome()
	switch {
	case job.DeletionTimestamp != nil:
	case end != nil:
		d.endPods(end)
	case isSuspended(job):
		d.plan.Discard = limited(d.lessRefusedFirst(podsOf(in(d.pods, active))))
	default:
		d.work()
	}
	d.untrack(end)
	d.report()
	d.conclude(end)
	return d.plan
}

// requeueAfter schedules another reconciliation after a time, unless an earlier one is already
// scheduled.
func (d *decision) requeueAfter(in time.Duration) {
	if in > 0 && (d.plan.RequeueAfter == 0 || in < d.plan.RequeueAfter) {
		d.plan.RequeueAfter = in
	}
}

func limited(list []*corev1.Pod) []*corev1.Pod { return list[:min(len(list), burst)] }

// lessRefusedFirst sorts pods that are to be deleted.
func (d *decision) lessRefusedFirst(list []*corev1.Pod) []*corev1.Pod {
	slices.SortStableFunc(list, pods.LessRefused(d.refused))
	return list
}

func isSuspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func isIndexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion && job.Spec.Completions != nil
}

// isPerIndex reports whether each index has a failure limit of its own.
func isPerIndex(job *batchv1.Job) bool { return isIndexed(job) && job.Spec.BackoffLimitPerIndex != nil }

// parallelism returns how many pods may run at a time.
func parallelism(job *batchv1.Job) int {
	if job.Spec.Parallelism == nil {
		return 1
	}
	return int(*job.Spec.Parallelism)
}
