package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateJobStatus checks the status that a controller reports of a Job. Values that have not changed are not checked
// again.
func validateJobStatus(j, old *batchv1.Job) field.ErrorList {
	s, was, status := &j.Status, &old.Status, field.NewPath("status")
	errs := slices.Concat(
		validate.Counts(status, map[string]int32{"active": s.Active, "succeeded": s.Succeeded, "failed": s.Failed}),
		validate.NotNegative(s.Terminating, status.Child("terminating")),
		validate.NotNegative(s.Ready, status.Child("ready")),
		validateUncounted(s.UncountedTerminatedPods, status.Child("uncountedTerminatedPods")),
		validateJobIndexes(j, old, status),
		validateJobOutcome(j, old, status),
		validateJobTimes(j, old, status),
		validateFinishedJob(j, old, status),
	)
	if s.Failed < was.Failed {
		errs = append(errs, field.Invalid(status.Child("failed"), s.Failed, "cannot decrease the failed counter"))
	}
	// If the number of indexes can change, an index whose pod has succeeded may be removed.
	if s.Succeeded < was.Succeeded && (!isIndexed(&j.Spec) || !ptr.Equal(j.Spec.Completions, j.Spec.Parallelism)) {
		errs = append(errs, field.Invalid(status.Child("succeeded"), s.Succeeded, "cannot decrease the succeeded counter"))
	}
	if s.Ready != nil && *s.Ready > s.Active && (!ptr.Equal(s.Ready, was.Ready) || s.Active != was.Active) {
		errs = append(errs, field.Invalid(status.Child("ready"), *s.Ready, "cannot set more ready pods than active"))
	}
	return errs
}

func isIndexed(s *batchv1.JobSpec) bool {
	return ptr.Deref(s.CompletionMode, "") == batchv1.IndexedCompletion
}

func validateJobIndexes(j, old *batchv1.Job, status *field.Path) field.ErrorList {
	var errs field.ErrorList
	done, failed, completions := j.Status.CompletedIndexes, j.Status.FailedIndexes, j.Spec.Completions
	completes, fails := done != old.Status.CompletedIndexes, !ptr.Equal(failed, old.Status.FailedIndexes)
	if completes {
		at := status.Child("completedIndexes")
		if done != "" && !isIndexed(&j.Spec) {
			errs = append(errs, field.Invalid(at, done, "cannot set non-empty completedIndexes when non-indexed completion mode"))
		}
		if completions != nil {
			if _, err := countIndexes(done, *completions); err != nil {
				errs = append(errs, field.Invalid(at, done, "error parsing completedIndexes: "+err.Error()))
			}
		}
	}
	if failed == nil {
		return errs
	}
	at := status.Child("failedIndexes")
	switch {
	case !fails:
	case j.Spec.BackoffLimitPerIndex == nil:
		errs = append(errs, field.Invalid(at, *failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null"))
	case completions != nil:
		if _, err := countIndexes(*failed, *completions); err != nil {
			errs = append(errs, field.Invalid(at, *failed, "error parsing failedIndexes: "+err.Error()))
		}
	}
	if (completes || fails) && completions != nil {
		if index, overlap := commonIndex(done, *failed, *completions); overlap {
			errs = append(errs, field.Invalid(at, *failed, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", index)))
		}
	}
	return errs
}

// validateUncounted checks the UIDs of pods that have ended and are not counted yet: each may be in one list, once.
func validateUncounted(u *batchv1.UncountedTerminatedPods, path *field.Path) field.ErrorList {
	if u == nil {
		return nil
	}
	seen := map[types.UID]bool{}
	check := func(uid *types.UID, at *field.Path) field.ErrorList {
		switch {
		case *uid == "":
			return field.ErrorList{field.Invalid(at, *uid, "must not be empty")}
		case seen[*uid]:
			return field.ErrorList{field.Duplicate(at, *uid)}
		}
		seen[*uid] = true
		return nil
	}
	return append(validate.Each(u.Succeeded, path.Child("succeeded"), check), validate.Each(u.Failed, path.Child("failed"), check)...)
}
