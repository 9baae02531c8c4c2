package job

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// largest gives a job the largest numbers that its fields can have.
func largest(j *batchv1.Job) {
	const most = math.MaxInt32
	j.Spec.Completions, j.Spec.Parallelism, j.Spec.BackoffLimit = new(int32(most)), new(int32(most)), new(int32(most))
	j.Spec.ActiveDeadlineSeconds, j.Spec.TTLSecondsAfterFinished = new(int64(math.MaxInt64)), new(int32(most))
}

func largestPerIndex(j *batchv1.Job) {
	perIndex(math.MaxInt32)(j)
	j.Spec.MaxFailedIndexes = new(int32(math.MaxInt32))
	j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{
		{SucceededIndexes: new("0-2147483646"), SucceededCount: new(int32(math.MaxInt32))}, {SucceededIndexes: new("0-9223372036854775807")},
	}}
}

// A step of a job depends on the pods that exist, not on how many the job may have.
func TestLargestJobCostsNoMoreThanItsPods(t *testing.T) {
	for name, test := range map[string]struct {
		job   *batchv1.Job
		pods  []string
		first int
	}{
		"without indexes": {jobWith(largest), []string{"a", "b failed=1h"}, unindexed},
		"with indexes":    {jobWith(largest, indexed), []string{"a index=0", "b index=2147483646"}, 1},
		"most indexes are done": {jobWith(largest, indexed, func(j *batchv1.Job) {
			j.Status.CompletedIndexes, j.Status.Succeeded = "0-2147480000", 2147480001
		}), []string{"a index=2147480001"}, 2147480002},
		"most indexes have ended": {jobWith(largest, largestPerIndex, func(j *batchv1.Job) {
			j.Status.CompletedIndexes, j.Status.FailedIndexes = "0-1000000000,1000000002", new("1000000001,1000000003-2147480000")
		}), nil, 2147480001},
	} {
		t.Run(name, func(t *testing.T) {
			var seen Observed
			for _, line := range test.pods {
				seen.Mine = append(seen.Mine, pod(t, line))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p := Decide(test.job, seen, now)
			runtime.ReadMemStats(&after)
			if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 1<<20 {
				t.Errorf("%d bytes are allocated", bytes)
			}
			if len(p.Create) != burst || p.Create[0].Index != test.first {
				t.Errorf("%d pods are created, the first with the index %v; conditions %v", len(p.Create), p.Create, p.Status.Conditions)
			}
			if len(p.Discard)+len(p.Delete)+len(p.Status.Conditions) > 0 {
				t.Errorf("%d pods are discarded, %d deleted; conditions %v", len(p.Discard), len(p.Delete), p.Status.Conditions)
			}
		})
	}
}

func TestNextIndexOutsideOfASet(t *testing.T) {
	s, err := parseIndexes("0-2147483000,2147483002,2147483005", math.MaxInt32)
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for i := s.NextOutside(0); i <= 2147483006; i = s.NextOutside(i + 1) {
		found = append(found, i)
	}
	if want := []int{2147483001, 2147483003, 2147483004, 2147483006}; !slices.Equal(found, want) {
		t.Errorf("%v, want %v", found, want)
	}
	if i := indexSet(nil).NextOutside(7); i != 7 {
		t.Errorf("%d is outside of the empty set", i)
	}
}

// Users may write any number into the annotations of pods, or of the job's template.
func TestAnnotationsThatNoControllerWroteCountAsNone(t *testing.T) {
	for _, number := range []string{"-9", "-9223372036854775808", "9223372036854775807", "99999999999999999999", "x"} {
		job := jobWith(perIndex(5), func(j *batchv1.Job) { j.Spec.Completions = new(int32(1)) })
		p := Decide(job, Observed{Mine: []*corev1.Pod{pod(t, "a index=0 failed=1h failures="+number+" ignored="+number)}}, now)
		if len(p.Create) != 1 || p.Create[0].Failures != 1 || p.Create[0].Ignored != 0 {
			t.Errorf("%s: %v", number, p.Create)
		}
	}
}

// The largest number stays the largest: a larger one would not be read, and the retries would begin anew.
func TestLargestNumberOfFailures(t *testing.T) {
	const largest = "2147483647"
	ignoring := func(j *batchv1.Job) {
		j.Spec.Completions = new(int32(1))
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
		}}}
	}
	job := jobWith(perIndex(5), ignoring)
	p := Decide(job, Observed{Mine: []*corev1.Pod{pod(t, "a index=0 failed=1h disrupted ignored="+largest)}}, now)
	if len(p.Create) != 1 {
		t.Fatalf("%+v", p.Create)
	}
	next := podOf(job, p.Create[0])
	if got := next.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation]; got != largest {
		t.Errorf("the next pod has %q", got)
	}
	if _, ignored := failures(next); ignored != 2147483647 {
		t.Errorf("it is read as %d", ignored)
	}
	if n := oneMore(2147483647); n != 2147483647 {
		t.Errorf("one more is %d", n)
	}
}

// The time at which a pod ended is not before it began, however long it may take to end.
func TestLargestGracePeriod(t *testing.T) {
	p := pod(t, "a deleted")
	p.DeletionGracePeriodSeconds = new(int64(10_000_000_000))
	if end := endOf(p); end.After(now.Add(time.Hour)) {
		t.Errorf("it ended at %s", end)
	}
}
