// Package job runs pods until so many have succeeded, or until that is hopeless.
//
//	what the pods have come to ──▶ count.go: each is counted once
//	what that means for the job ──▶ verdict.go: it has failed, it has succeeded, or it goes on
//	what is to be done now ──▶ work.go: pods to create, to end, to let go of
//
// A pod is counted exactly once, however often the controller crashes and however late
// its cache is, because it carries a finalizer, which is removed in the middle of it:
//
//  1. The pod has ended: its uid goes to status.uncountedTerminatedPods.
//  2. The finalizer is removed.
//  3. The pod has no finalizer, or is gone: its uid leaves the status, and the counter
//     goes up, in one write.
//
// Every write of a status is conditioned on the resourceVersion that it was decided on.
// With completion indexes, a success is an index in status.completedIndexes instead, where
// it can be put twice without harm.
//
// A pod that is ended because there are too many, or because the job is suspended, is
// no failure: it loses the finalizer first, while it runs, and is deleted then. A pod that
// runs without the finalizer could not be counted, and is ended, too.
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

// Plan is what there is to do. The status is written first: the rest holds only when
// that was not refused.
type Plan struct {
	Status batchv1.JobStatus
	// Untrack are pods that have ended, whose finalizer has done its work.
	Untrack []*corev1.Pod
	// Discard are pods that lose the finalizer and are deleted, and count as nothing.
	Discard []*corev1.Pod
	// Delete are pods that are deleted and count as failed.
	Delete []*corev1.Pod
	Create []NewPod
	// News are for the users.
	News []News
	// Again is when there is something to do without an event; 0 for never.
	Again time.Duration
	// History is to be handed to the next Decide.
	History History
}

// NewPod is a pod to be created.
type NewPod struct {
	// Index is its completion index, negative without one.
	Index int
	// Failures and Ignored are how often pods of the index have failed, with a limit on
	// them per index.
	Failures, Ignored int
}

// News is an event.
type News struct{ Type, Reason, Message string }

// decision is a plan in the making.
type decision struct {
	job *batchv1.Job
	now time.Time

	pods []sighting
	// What the pods have come to, whether or not the status can say so yet.
	succeeded, failed        int
	completed, failedIndexes Indexes
	counted                  map[types.UID]bool // in the new status, or of no account: they need no finalizer
	hopeless                 string             // why a pod's failure is the job's
	retried                  map[int]sighting   // with a limit per index: the last that failed of an index to be tried again

	plan Plan
}

// Decide says what to do about a job that has not finished.
func Decide(job *batchv1.Job, seen Observed, now time.Time) Plan {
	d := decision{job: job, now: now, pods: sight(job, seen), counted: map[types.UID]bool{}, retried: map[int]sighting{}}
	d.plan.Status = *job.Status.DeepCopy()
	d.plan.History = seen.History.after(podsOf(in(d.pods, succeeded)), podsOf(slices.DeleteFunc(in(d.pods, failed, leaving), sighting.isDiscarded)))
	d.count()
	verdict := d.judge()
	switch {
	case job.DeletionTimestamp != nil:
	case verdict != nil:
		d.windUp(verdict)
	case isSuspended(job):
		d.plan.Discard = limited(podsOf(in(d.pods, active)))
	default:
		d.work()
	}
	d.untrack(verdict)
	d.report()
	d.conclude(verdict)
	return d.plan
}

// again asks for another look after a time, if no earlier one was asked for.
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

// isPerIndex tells whether each index has a limit of failures of its own.
func isPerIndex(job *batchv1.Job) bool { return isIndexed(job) && job.Spec.BackoffLimitPerIndex != nil }

// parallelism is how many pods may run at a time.
func parallelism(job *batchv1.Job) int {
	if job.Spec.Parallelism == nil {
		return 1
	}
	return int(*job.Spec.Parallelism)
}
