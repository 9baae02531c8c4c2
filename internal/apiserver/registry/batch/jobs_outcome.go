package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// jobOutcome is the progress of a Job, from the conditions in its status.
type jobOutcome struct{ complete, failed, willFail, willSucceed bool }

func outcomeOf(j *batchv1.Job) jobOutcome {
	return jobOutcome{
		complete: holds(j, batchv1.JobComplete), failed: holds(j, batchv1.JobFailed),
		willFail: holds(j, batchv1.JobFailureTarget), willSucceed: holds(j, batchv1.JobSuccessCriteriaMet),
	}
}

func (o jobOutcome) finished() bool { return o.complete || o.failed }

// rule is a rule about the status of a Job: its error if the status breaks it, and whether it applies. Most rules
// apply only to updates that change the fields they check: after a user has changed the spec, the status may break
// the others for a moment.
type rule struct {
	applies, broken bool
	err             *field.Error
}

func broken(rules []rule) field.ErrorList {
	var errs field.ErrorList
	for _, r := range rules {
		if r.applies && r.broken {
			errs = append(errs, r.err)
		}
	}
	return errs
}

// validateJobOutcome checks the conditions: a Job either fails or succeeds, announces it before it ends, and does not
// revoke it.
func validateJobOutcome(j, old *batchv1.Job, status *field.Path) field.ErrorList {
	is, was := outcomeOf(j), outcomeOf(old)
	completes, fails := is.complete != was.complete, is.failed != was.failed
	wrong := func(what string) *field.Error {
		return field.Invalid(status.Child("conditions"), field.OmitValueType{}, what)
	}
	cannotDisable := func(t batchv1.JobConditionType) *field.Error {
		return wrong(fmt.Sprintf("cannot disable the terminal %s=True condition", t))
	}
	return broken([]rule{
		{completes || fails, is.complete && is.failed, wrong("cannot set Complete=True and Failed=true conditions")},
		{completes || is.willFail != was.willFail, is.complete && is.willFail, wrong("cannot set Complete=True and FailureTarget=true conditions")},
		{
			fails || !ptr.Equal(j.Status.FailedIndexes, old.Status.FailedIndexes), is.failed && !is.willFail,
			wrong("cannot set Failed=True condition without the FailureTarget=true condition"),
		},
		{
			completes || is.willSucceed != was.willSucceed, is.complete && !is.willSucceed,
			wrong("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
		},
		{true, is.willSucceed && is.failed, wrong("cannot set SuccessCriteriaMet=True and Failed=true conditions")},
		{true, is.willSucceed && is.willFail, wrong("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")},
		{
			j.Spec.SuccessPolicy != nil, is.complete && !is.willSucceed,
			wrong("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"),
		},
		{was.failed, !is.failed, cannotDisable(batchv1.JobFailed)},
		{was.complete, !is.complete, cannotDisable(batchv1.JobComplete)},
		{was.willFail, !is.willFail, cannotDisable(batchv1.JobFailureTarget)},
		{was.willSucceed, !is.willSucceed, wrong("cannot disable the SuccessCriteriaMet=True condition")},
		{was.complete && !was.willSucceed, is.willSucceed, wrong("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")},
	})
}

// validateJobTimes checks when a Job started and ended.
func validateJobTimes(j, old *batchv1.Job, status *field.Path) field.ErrorList {
	is, was := outcomeOf(j), outcomeOf(old)
	start, started := j.Status.StartTime, old.Status.StartTime
	end, ended := j.Status.CompletionTime, old.Status.CompletionTime
	starts, ends := !start.Equal(started), !end.Equal(ended)
	completes := ends || is.complete != was.complete
	neverRuns := ptr.Deref(j.Spec.Suspend, false) && ptr.Deref(j.Spec.Completions, 1) == 0
	startTime, completionTime := status.Child("startTime"), status.Child("completionTime")
	return broken([]rule{
		{completes, end != nil && !is.complete, field.Invalid(completionTime, end, "cannot set completionTime when there is no Complete=True condition")},
		{completes, end == nil && is.complete, field.Required(completionTime, "completionTime is required for Complete jobs")},
		{starts || ends, start != nil && end != nil && end.Before(start), field.Invalid(completionTime, end, "must be equal to or after `startTime`")},
		{end != nil && ended != nil, ends, field.Invalid(completionTime, end, "field is immutable")},
		{(starts || is.finished() != was.finished()) && !neverRuns, start == nil && is.finished(), field.Required(startTime, "startTime is required for finished job")},
		{
			starts && !isResumed(j, old), started != nil && !ptr.Deref(j.Spec.Suspend, false),
			field.Invalid(startTime, start, "field is immutable for unsuspended job once set"),
		},
	})
}

// isResumed reports whether an update resumes a suspended Job.
func isResumed(j, old *batchv1.Job) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionFalse {
			return holds(old, batchv1.JobSuspended)
		}
	}
	return false
}

// validateFinishedJob checks that all pods of a finished Job have ended.
func validateFinishedJob(j, old *batchv1.Job, status *field.Path) field.ErrorList {
	s, was := &j.Status, &old.Status
	finished := outcomeOf(j).finished()
	finishes := finished != outcomeOf(old).finished()
	uncounted := s.UncountedTerminatedPods
	return broken([]rule{
		{finishes || s.Active != was.Active, finished && s.Active > 0, field.Invalid(status.Child("active"), s.Active, "active>0 is invalid for finished job")},
		{
			finishes || !ptr.Equal(s.Terminating, was.Terminating), finished && ptr.Deref(s.Terminating, 0) > 0,
			field.Invalid(status.Child("terminating"), s.Terminating, "terminating>0 is invalid for finished job"),
		},
		{
			finishes || !equality.Semantic.DeepEqual(uncounted, was.UncountedTerminatedPods), finished && uncounted != nil && len(uncounted.Succeeded)+len(uncounted.Failed) > 0,
			field.Invalid(status.Child("uncountedTerminatedPods"), uncounted, "must be empty for finished job"),
		},
	})
}
