package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/testing/histories"
)

// checkStatus checks what the API requires of changes to a job's status.
func (s *simulation) checkStatus(old, now *batchv1.JobStatus) {
	has := func(status *batchv1.JobStatus, t batchv1.JobConditionType) bool {
		return trueCondition(&batchv1.Job{Status: *status}, t) != nil
	}
	failed, complete := has(now, batchv1.JobFailed), has(now, batchv1.JobComplete)
	for what, wrong := range map[string]bool{
		"failed and complete":             failed && complete,
		"failed without the target":       failed && !has(now, batchv1.JobFailureTarget),
		"complete without the criteria":   complete && !has(now, batchv1.JobSuccessCriteriaMet),
		"both targets":                    has(now, batchv1.JobFailureTarget) && has(now, batchv1.JobSuccessCriteriaMet),
		"finished with active pods":       (failed || complete) && now.Active > 0,
		"finished with terminating pods":  (failed || complete) && *now.Terminating > 0,
		"finished with uncounted pods":    (failed || complete) && len(now.UncountedTerminatedPods.Failed)+len(now.UncountedTerminatedPods.Succeeded) > 0,
		"finished and never begun":        (failed || complete) && now.StartTime == nil,
		"complete without a time":         complete && now.CompletionTime == nil,
		"a time without being complete":   !complete && now.CompletionTime != nil,
		"fewer failed":                    now.Failed < old.Failed,
		"fewer succeeded":                 now.Succeeded < old.Succeeded,
		"no longer completed, or failed":  has(old, batchv1.JobSuccessCriteriaMet) && !has(now, batchv1.JobSuccessCriteriaMet) || has(old, batchv1.JobFailureTarget) && !has(now, batchv1.JobFailureTarget),
		"more ready than active":          *now.Ready > now.Active,
		"written after it has finished":   has(old, batchv1.JobFailed) || has(old, batchv1.JobComplete),
		"restarted without being resumed": old.StartTime != nil && !old.StartTime.Equal(now.StartTime) && !has(old, batchv1.JobSuspended) && !has(now, batchv1.JobSuspended),
		"suspended and begun":             has(now, batchv1.JobSuspended) && !failed && !complete && now.StartTime != nil,
	} {
		if wrong {
			s.fail("the status is %s: %s", what, text(*now))
		}
	}
}

func text(s batchv1.JobStatus) string {
	conditions := ""
	for _, c := range s.Conditions {
		conditions += fmt.Sprintf(" %s=%s", c.Type, c.Status)
	}
	return fmt.Sprintf("active %d succeeded %d (%s) failed %d uncounted %v%s", s.Active, s.Succeeded, s.CompletedIndexes, s.Failed, *s.UncountedTerminatedPods, conditions)
}

// settle lets the job finish.
func (s *simulation) settle() {
	s.adverse = false
	s.user(func(j *batchv1.Job) {
		j.Spec.Suspend = new(false)
		j.Spec.Parallelism = new(max(1, *j.Spec.Parallelism))
	})
	for range 5000 {
		s.now = s.now.Add(time.Minute)
		s.node()
		s.cachedJob = s.job
		s.catchUp(len(s.events))
		s.reconcile()
		if finished(s.job) != nil && !slices.ContainsFunc(slices.Collect(maps.Values(s.pods)), isTracked) {
			return
		}
	}
	s.fail("the job does not finish: %s", text(s.job.Status))
}

func TestR26_SimulatedJobs(t *testing.T) {
	// One spec for each way of counting; failing is the percentage of pods that fail.
	for name, test := range map[string]struct {
		failing int
		spec    batchv1.JobSpec
	}{
		"completions":             {20, batchv1.JobSpec{Completions: new(int32(8)), Parallelism: new(int32(3)), BackoffLimit: new(int32(1000))}},
		"work queue":              {20, batchv1.JobSpec{Parallelism: new(int32(3)), BackoffLimit: new(int32(1000))}},
		"a limit of failures":     {60, batchv1.JobSpec{Completions: new(int32(8)), Parallelism: new(int32(3)), BackoffLimit: new(int32(2))}},
		"a deadline":              {20, batchv1.JobSpec{Completions: new(int32(8)), Parallelism: new(int32(3)), BackoffLimit: new(int32(1000)), ActiveDeadlineSeconds: new(int64(600))}},
		"replaced when ended":     {20, batchv1.JobSpec{Completions: new(int32(8)), Parallelism: new(int32(3)), BackoffLimit: new(int32(1000)), PodReplacementPolicy: new(batchv1.Failed)}},
		"indexes":                 {20, indexedSpec(8, 3)},
		"limits per index":        {50, perIndexSpec(8, 3, 1)},
		"indexes until one fails": {50, perIndexSpec(8, 3, 0)},
		"success of some": {20, func() batchv1.JobSpec {
			spec := indexedSpec(8, 3)
			spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededCount: new(int32(3))}}}
			return spec
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			histories.Check(t, 100, 150, func(t *rapid.T) {
				s := newSimulation(t, test.failing, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "j"}, Spec: *test.spec.DeepCopy()})
				t.Repeat(s.actions())
				s.settle()
				s.checkEnd()
			})
		})
	}
}

// checkEnd compares the counters of a finished job with how its pods actually ended.
func (s *simulation) checkEnd() {
	status := s.job.Status
	if int(status.Failed) != s.ended(corev1.PodFailed) {
		s.fail("%d have failed, counted are %d", s.ended(corev1.PodFailed), status.Failed)
	}
	if isIndexed(s.job) {
		var done []int
		for uid, phase := range s.truth {
			if phase == corev1.PodSucceeded {
				index, _ := strconv.Atoi(string(uid)[len("j-"):][:1])
				done = append(done, index)
			}
		}
		if want := indexSet(nil).With(done...).String(); status.CompletedIndexes != want {
			s.fail("completed are %s, counted are %s", want, status.CompletedIndexes)
		}
	} else if int(status.Succeeded) != s.ended(corev1.PodSucceeded) {
		s.fail("%d have succeeded, counted are %d", s.ended(corev1.PodSucceeded), status.Succeeded)
	}
	if trueCondition(s.job, batchv1.JobComplete) != nil && s.job.Spec.Completions != nil && s.job.Spec.SuccessPolicy == nil && status.Succeeded != *s.job.Spec.Completions {
		s.fail("complete with %d successes of %d", status.Succeeded, *s.job.Spec.Completions)
	}
}

func indexedSpec(completions, parallelism int32) batchv1.JobSpec {
	return batchv1.JobSpec{
		CompletionMode: new(batchv1.IndexedCompletion), Completions: &completions, Parallelism: &parallelism, BackoffLimit: new(int32(1000)),
	}
}

func perIndexSpec(completions, parallelism, limit int32) batchv1.JobSpec {
	spec := indexedSpec(completions, parallelism)
	spec.BackoffLimitPerIndex = &limit
	return spec
}
