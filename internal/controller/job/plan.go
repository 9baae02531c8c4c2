// Package job runs the pods of a Job until enough have succeeded, or the job has failed.
//
//	how the pods have ended ──▶ count.go: each is counted once
//	what that means for the job ──▶ outcome.go: it has failed, it has succeeded, or it goes on
//	what is to be done now ──▶ work.go: pods to create, to delete, to take the finalizer from
//
// A pod is counted exactly once, however often the controller crashes and however late
// its cache is, because it carries a finalizer, which is removed between two writes:
//
//  1. The pod has ended: its uid goes to status.uncountedTerminatedPods.
//  2. The finalizer is removed.
//  3. The pod has no finalizer, or is gone: its uid leaves the status, and the counter
//     goes up, in one write.
//
// Every write of a status is conditioned on the resourceVersion that it was decided on.
// With completion indexes, a success is an index in status.completedIndexes instead, which
// can be added twice without harm.
//
// A pod that is deleted because there are too many, or because the job is suspended, has not
// failed: it loses the finalizer first, while it runs, and is deleted then. A pod that runs
// without the finalizer could not be counted, and is deleted, too (R26).
package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// burst is the most pods that are created, deleted or counted for one job before the
// others have their turn.
const burst = 500

// Plan is what there is to do. The status is written first: the rest depends on it.
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
	// Again is when there is something to do without an event; 0 for never.
	Again time.Duration
	// Backoff is the Observed.Backoff of the next Decide.
	Backoff backoffRecord
}

// newPod is a pod to be created.
type newPod struct {
	// Index is its completion index, negative without one.
	Index int
	// Failures and Ignored are how often pods of the index have failed, if there is a limit
	// per index.
	Failures, Ignored int
}

// Event is an event on the job, for its users.
type Event struct{ Type, Reason, Message string }

// decision is a plan that is being made.
type decision struct {
	job *batchv1.Job
	now time.Time

	pods []observedPod
	// How the pods have ended, whether or not the status can say so yet.
	succeeded, failed        int
	completed, failedIndexes indexSet
	counted                  map[types.UID]bool  // in the new status, or not to be counted: they need no finalizer
	podFailure               string              // why a pod's failure is the job's; empty if none is
	retried                  map[int]observedPod // with a limit per index: of each index to be retried the last pod that failed

	plan Plan
}

// Decide says what to do about a job that has not finished.
func Decide(job *batchv1.Job, seen Observed, now time.Time) Plan {
	d := decision{job: job, now: now, pods: classify(job, seen), counted: map[types.UID]bool{}, retried: map[int]observedPod{}}
	d.plan.Status = *job.Status.DeepCopy()
	d.plan.Backoff = seen.Backoff.after(podsOf(in(d.pods, succeeded)), podsOf(slices.DeleteFunc(in(d.pods, failed, leaving), observedPod.isDiscarded)))
	d.count()
	end := d.outcome()
	switch {
	case job.DeletionTimestamp != nil:
	case end != nil:
		d.endPods(end)
	case isSuspended(job):
		d.plan.Discard = limited(podsOf(in(d.pods, active)))
	default:
		d.work()
	}
	d.untrack(end)
	d.report()
	d.conclude(end)
	return d.plan
}

// again asks for another reconciliation after a time, unless an earlier one was asked for.
func (d *decision) again(in time.Duration) {
	if in > 0 && (d.plan.Again == 0 || in < d.plan.Again) {
		d.plan.Again = in
	}
}

func limited(list []*corev1.Pod) []*corev1.Pod { return list[:min(len(list), burst)] }

func isSuspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func isIndexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion && job.Spec.Completions != nil
}

// isPerIndex reports whether each index has a limit of failures of its own.
func isPerIndex(job *batchv1.Job) bool { return isIndexed(job) && job.Spec.BackoffLimitPerIndex != nil }

// parallelism returns how many pods may run at a time.
func parallelism(job *batchv1.Job) int {
	if job.Spec.Parallelism == nil {
		return 1
	}
	return int(*job.Spec.Parallelism)
}
