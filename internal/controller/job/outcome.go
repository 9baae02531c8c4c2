package job

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// outcome is the outcome of a job, whose pods may still be running.
type outcome struct {
	target          batchv1.JobConditionType // FailureTarget or SuccessCriteriaMet
	reason, message string
}

func (v *outcome) isFailure() bool { return v.target == batchv1.JobFailureTarget }

// outcome returns the outcome of the job, or nil if it continues. An outcome is final. Failure
// takes precedence over success.
func (d *decision) outcome() *outcome {
	for _, target := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet} {
		if c := trueCondition(d.job, target); c != nil {
			return &outcome{target, c.Reason, c.Message}
		}
	}
	if d.job.DeletionTimestamp != nil {
		return nil
	}
	if v := d.failure(); v != nil {
		return v
	}
	return d.success()
}

func (d *decision) failure() *outcome {
	spec := &d.job.Spec
	fail := func(reason, message string) *outcome { return &outcome{batchv1.JobFailureTarget, reason, message} }
	switch {
	case d.podFailure != "":
		return fail(batchv1.JobReasonPodFailurePolicy, d.podFailure)
	case spec.BackoffLimit != nil && (d.failed > int(*spec.BackoffLimit) || d.restarts() >= max(1, int(*spec.BackoffLimit))):
		return fail(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case d.isOverdue():
		return fail(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	case !isPerIndex(d.job):
	case spec.MaxFailedIndexes != nil && d.failedIndexes.Len() > int(*spec.MaxFailedIndexes):
		return fail(batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
	case d.failedIndexes.Len() > 0 && d.failedIndexes.Len()+d.completed.Len() >= int(*spec.Completions):
		return fail(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
	}
	return nil
}

// restarts returns how often containers were restarted in place, which happens with restart
// policy OnFailure only.
func (d *decision) restarts() int {
	if d.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return 0
	}
	n := 0
	for _, pod := range in(d.pods, active) {
		for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			n += int(s.RestartCount)
		}
	}
	return n
}

// isOverdue reports whether the job has exceeded its active deadline; if not, it schedules a
// reconciliation at the deadline.
func (d *decision) isOverdue() bool {
	limit, start := d.job.Spec.ActiveDeadlineSeconds, d.startTime()
	if limit == nil || start == nil || isSuspended(d.job) {
		return false
	}
	left := start.Add(pods.Seconds(*limit)).Sub(d.now)
	d.requeueAfter(left)
	return left <= 0
}

// startTime returns the time when the job started or, after a suspension, was resumed.
func (d *decision) startTime() *metav1.Time {
	resumed := trueCondition(d.job, batchv1.JobSuspended) != nil
	if !isSuspended(d.job) && (d.job.Status.StartTime == nil || resumed) {
		return &metav1.Time{Time: d.now}
	}
	return d.job.Status.StartTime
}

func (d *decision) success() *outcome {
	spec := &d.job.Spec
	succeed := func(reason, message string) *outcome {
		return &outcome{batchv1.JobSuccessCriteriaMet, reason, message}
	}
	if rule := successMatch(spec.SuccessPolicy, d.completed); isIndexed(d.job) && rule >= 0 {
		return succeed(batchv1.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", rule))
	}
	done := spec.Completions != nil && d.succeeded >= int(*spec.Completions)
	if spec.Completions == nil {
		// A pod that succeeds has found the work queue empty. The job is done when the other pods
		// have ended, too.
		done = d.succeeded > 0 && len(in(d.pods, active)) == 0
	}
	if done {
		return succeed(batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
	}
	return nil
}

// conclude writes the conditions and the start and completion times. Complete and Failed are
// written last, when no pod of the job runs any more and all are counted.
func (d *decision) conclude(v *outcome) {
	if d.job.DeletionTimestamp != nil {
		return
	}
	status := &d.plan.Status
	if v == nil {
		status.StartTime = d.startTime()
		d.concludeSuspension()
		return
	}
	d.set(v.target, corev1.ConditionTrue, v.reason, v.message)
	unsettled := func(pod observedPod) bool {
		return pod.tracked || pod.state == active || pod.state == terminating || pod.state == leaving
	}
	uncounted := status.UncountedTerminatedPods
	if len(uncounted.Succeeded)+len(uncounted.Failed) > 0 || slices.ContainsFunc(d.pods, unsettled) {
		return
	}
	if status.StartTime == nil { // it never ran
		status.StartTime = &metav1.Time{Time: d.now}
	}
	if v.isFailure() {
		d.set(batchv1.JobFailed, corev1.ConditionTrue, v.reason, v.message)
		d.event(corev1.EventTypeWarning, v.reason, v.message)
		return
	}
	d.set(batchv1.JobComplete, corev1.ConditionTrue, v.reason, v.message)
	status.CompletionTime = &metav1.Time{Time: d.now}
	d.event(corev1.EventTypeNormal, "Completed", "Job completed")
}

func (d *decision) concludeSuspension() {
	was := trueCondition(d.job, batchv1.JobSuspended) != nil
	switch {
	case isSuspended(d.job) && !was:
		d.plan.Status.StartTime = nil // when it is resumed, it starts again
		d.set(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended")
		d.event(corev1.EventTypeNormal, "Suspended", "Job suspended")
	case !isSuspended(d.job) && was:
		d.set(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed")
		d.event(corev1.EventTypeNormal, "Resumed", "Job resumed")
	}
}

// set sets a condition in the status, unless it is set.
func (d *decision) set(t batchv1.JobConditionType, is corev1.ConditionStatus, reason, message string) {
	now := metav1.Time{Time: d.now}
	condition := batchv1.JobCondition{Type: t, Status: is, LastProbeTime: now, LastTransitionTime: now, Reason: reason, Message: message}
	list := d.plan.Status.Conditions
	i := slices.IndexFunc(list, func(c batchv1.JobCondition) bool { return c.Type == t })
	switch {
	case i < 0:
		d.plan.Status.Conditions = append(list, condition)
	case list[i].Status != is:
		list[i] = condition
	}
}

func (d *decision) event(kind, reason, message string) {
	d.plan.Events = append(d.plan.Events, Event{kind, reason, message})
}

// trueCondition returns the condition of that type if it is true, or nil.
func trueCondition(job *batchv1.Job, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Type == t && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// finished returns the condition with which the job finished, or nil if it has not.
func finished(job *batchv1.Job) *batchv1.JobCondition {
	if c := trueCondition(job, batchv1.JobComplete); c != nil {
		return c
	}
	return trueCondition(job, batchv1.JobFailed)
}

// expiry returns the time from now until the job's deletion, zero or negative if that is due.
// The second result is false for a job that has no time to live or has not finished.
func expiry(job *batchv1.Job, now time.Time) (time.Duration, bool) {
	end, ttl := finished(job), job.Spec.TTLSecondsAfterFinished
	if end == nil || ttl == nil || job.DeletionTimestamp != nil {
		return 0, false
	}
	return end.LastTransitionTime.Add(time.Duration(*ttl) * time.Second).Sub(now), true
}
