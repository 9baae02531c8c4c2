package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	start = metav1.NewTime(time.Unix(1_800_000_000, 0))
	now   = start.Add(time.Hour)
)

// jobWith returns a job that has run for an hour.
func jobWith(changes ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "j", UID: "j", CreationTimestamp: start},
		Spec:       batchv1.JobSpec{Parallelism: new(int32(2)), Completions: new(int32(4)), BackoffLimit: new(int32(6))},
		Status:     batchv1.JobStatus{StartTime: &start, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}},
	}
	for _, change := range changes {
		change(job)
	}
	return job
}

func indexed(j *batchv1.Job) { j.Spec.CompletionMode = new(batchv1.IndexedCompletion) }

func perIndex(limit int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		indexed(j)
		j.Spec.BackoffLimitPerIndex = &limit
	}
}

func condition(t batchv1.JobConditionType, reason string) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason})
	}
}

// pod returns the pod that a line describes: its name, then its properties.
func pod(t *testing.T, line string) *corev1.Pod {
	t.Helper()
	words := strings.Fields(line)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: words[0], UID: types.UID(words[0]), CreationTimestamp: start,
			Finalizers: []string{batchv1.JobTrackingFinalizer}, Annotations: map[string]string{},
		},
		Spec:   corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	ends := func(phase corev1.PodPhase, code int32, ago string) {
		past, err := time.ParseDuration(ago)
		if err != nil {
			t.Fatal(err)
		}
		p.Status.Phase = phase
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(now.Add(-past))},
		}}}
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "index":
			p.Annotations[batchv1.JobCompletionIndexAnnotation] = value
		case "failures":
			p.Annotations[batchv1.JobIndexFailureCountAnnotation] = value
		case "ignored":
			p.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = value
		case "free":
			p.Finalizers = nil
		case "unbound":
			p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
		case "ready":
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		case "disrupted":
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
		case "succeeded":
			ends(corev1.PodSucceeded, 0, value)
		case "failed":
			ends(corev1.PodFailed, 1, value)
		case "exit":
			n, _ := strconv.Atoi(value)
			ends(corev1.PodFailed, int32(n), "1h")
		case "restarts":
			n, _ := strconv.Atoi(value)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: int32(n)}}
		case "deleted":
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(30 * time.Second)}, new(int64(30))
		case "released":
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now}, new(int64(0))
		default:
			t.Fatalf("what is %q?", word)
		}
	}
	return p
}

// summary formats a plan: one line for the actions, one for the status.
func summary(p Plan) string {
	names := func(what string, list []*corev1.Pod) string {
		if len(list) == 0 {
			return ""
		}
		var names []string
		for _, pod := range list {
			names = append(names, pod.Name)
		}
		slices.Sort(names)
		return " " + what + " " + strings.Join(names, ",")
	}
	out := names("untrack", p.Untrack) + names("discard", p.Discard) + names("delete", p.Delete)
	for _, c := range p.Create {
		out += " create"
		if c.Index != unindexed {
			out += fmt.Sprintf(":%d", c.Index)
		}
		if c.Failures+c.Ignored > 0 {
			out += fmt.Sprintf("(%d,%d)", c.Failures, c.Ignored)
		}
	}
	if p.RequeueAfter > 0 {
		out += " again " + p.RequeueAfter.String()
	}
	s := p.Status
	out += fmt.Sprintf(" | active %d ready %d terminating %d succeeded %d failed %d", s.Active, *s.Ready, *s.Terminating, s.Succeeded, s.Failed)
	if u := s.UncountedTerminatedPods; len(u.Succeeded)+len(u.Failed) > 0 {
		out += fmt.Sprintf(" uncounted %v %v", u.Succeeded, u.Failed)
	}
	if s.CompletedIndexes != "" {
		out += " completed " + s.CompletedIndexes
	}
	if s.FailedIndexes != nil && *s.FailedIndexes != "" {
		out += " given up " + *s.FailedIndexes
	}
	for _, c := range s.Conditions {
		out += fmt.Sprintf(" %s=%s:%s", c.Type, c.Status, c.Reason)
	}
	return strings.TrimSpace(out)
}

type planTest struct {
	job     *batchv1.Job
	pods    []string
	leaving string
	refused string // pods whose deletion was refused before
	want    string
}

func runPlans(t *testing.T, tests map[string]planTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var seen Observed
			for _, line := range test.pods {
				seen.Mine = append(seen.Mine, pod(t, line))
			}
			if test.leaving != "" {
				seen.Leaving = map[types.UID]bool{types.UID(test.leaving): true}
			}
			for name := range strings.FieldsSeq(test.refused) {
				if seen.Refused == nil {
					seen.Refused = map[types.UID]int{}
				}
				seen.Refused[types.UID(name)]++
			}
			before := test.job.DeepCopy()
			if got := summary(Decide(test.job, seen, now)); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
			if diff := cmp.Diff(before, test.job); diff != "" {
				t.Errorf("the job was changed: %s", diff)
			}
		})
	}
}

func TestPlanOfPodsToRun(t *testing.T) {
	runPlans(t, map[string]planTest{
		"as many as may run at a time": {job: jobWith(), want: "create create | active 0 ready 0 terminating 0 succeeded 0 failed 0"},
		"no more than have to succeed": {
			job:  jobWith(func(j *batchv1.Job) { j.Status.Succeeded = 3 }),
			want: "create | active 0 ready 0 terminating 0 succeeded 3 failed 0",
		},
		"those that have succeeded and are not counted yet have succeeded": {
			job:  jobWith(func(j *batchv1.Job) { j.Status.Succeeded = 2 }),
			pods: []string{"a succeeded=1h", "b ready"},
			want: "untrack a | active 1 ready 1 terminating 0 succeeded 2 failed 0 uncounted [a] []",
		},
		"too many": {
			job: jobWith(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(1)) }), pods: []string{"a ready", "b unbound"},
			want: "discard b | active 2 ready 1 terminating 0 succeeded 0 failed 0",
		},
		"too many, and that is being seen to": {
			job: jobWith(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(1)) }), pods: []string{"a", "b"}, leaving: "b",
			want: "| active 1 ready 0 terminating 1 succeeded 0 failed 0",
		},
		"a pod that could not be counted": {
			job: jobWith(), pods: []string{"a free", "b"},
			want: "discard a | active 2 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"none": {
			job:  jobWith(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(0)) }),
			want: "| active 0 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"one is deleted: another takes its place": {
			job: jobWith(func(j *batchv1.Job) { j.Status.StartTime = &start }), pods: []string{"a", "b deleted"},
			want: "untrack b again 10s | active 1 ready 0 terminating 1 succeeded 0 failed 0 uncounted [] [b]",
		},
		"one is deleted: it has to end first": {
			job: jobWith(func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = new(batchv1.Failed) }), pods: []string{"a", "b deleted"},
			want: "| active 1 ready 0 terminating 1 succeeded 0 failed 0",
		},
		"one that no node has ends with its deletion": {
			job: jobWith(func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = new(batchv1.Failed) }), pods: []string{"a", "b unbound deleted"},
			want: "untrack b again 10s | active 1 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [b]",
		},
		"one that its node has let go of has ended": {
			job: jobWith(func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = new(batchv1.Failed) }), pods: []string{"a", "b released"},
			want: "untrack b again 10s | active 1 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [b]",
		},
		"a queue of work": {
			job: jobWith(func(j *batchv1.Job) { j.Spec.Completions = nil }), pods: []string{"a"},
			want: "create | active 1 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"a queue of work that is found empty": {
			job: jobWith(func(j *batchv1.Job) { j.Spec.Completions = nil }), pods: []string{"a", "b succeeded=1h"},
			want: "untrack b | active 1 ready 0 terminating 0 succeeded 0 failed 0 uncounted [b] []",
		},
		"a job that is being deleted": {
			job: jobWith(func(j *batchv1.Job) { j.DeletionTimestamp = &start }), pods: []string{"a deleted", "b", "c succeeded=1h"},
			want: "untrack a,c | active 1 ready 0 terminating 1 succeeded 0 failed 0 uncounted [c] [a]",
		},
	})
}

func TestR26_PlanOfCounting(t *testing.T) {
	counting := func(j *batchv1.Job) {
		j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"a"}, Failed: []types.UID{"b"}}
	}
	runPlans(t, map[string]planTest{
		"in the status, and tracked: once more": {
			job: jobWith(counting), pods: []string{"a succeeded=1h", "b failed=1h", "x", "y"},
			want: "untrack a,b | active 2 ready 0 terminating 0 succeeded 0 failed 0 uncounted [a] [b]",
		},
		"in the status, and free: to the counters": {
			job: jobWith(counting), pods: []string{"a free succeeded=1h", "b free failed=1h", "x", "y"},
			want: "| active 2 ready 0 terminating 0 succeeded 1 failed 1",
		},
		"in the status, and gone": {
			job: jobWith(counting), pods: []string{"x", "y"},
			want: "| active 2 ready 0 terminating 0 succeeded 1 failed 1",
		},
		"counted long ago": {
			job: jobWith(), pods: []string{"a free succeeded=1h", "b free failed=1h", "x", "y"},
			want: "| active 2 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"counted as failed while it was ending, it counts no more when it has succeeded": {
			job: jobWith(func(j *batchv1.Job) { j.Status.UncountedTerminatedPods.Failed = []types.UID{"a"} }), pods: []string{"a deleted succeeded=1h", "x", "y"},
			want: "untrack a | active 2 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [a]",
		},
	})
}

func TestPlanOfBackoff(t *testing.T) {
	free := func(lines ...string) []string {
		for i, line := range lines {
			lines[i] = fmt.Sprintf("p%d free %s", i, line)
		}
		return append(lines, "z")
	}
	counts := func(n int32) *batchv1.Job { return jobWith(func(j *batchv1.Job) { j.Status.Failed = n }) }
	for name, test := range map[string]struct {
		pods []string
		want time.Duration
	}{
		"first":                           {free("failed=4s"), 6 * time.Second},
		"over":                            {free("failed=10s"), 0},
		"second":                          {free("failed=90s", "failed=4s"), 16 * time.Second},
		"fourth":                          {free("failed=90s", "failed=80s", "failed=70s", "failed=60s"), 20 * time.Second},
		"a success in between":            {free("failed=90s", "failed=80s", "succeeded=70s", "failed=4s"), 6 * time.Second},
		"a success after all":             {free("failed=5s", "succeeded=4s"), 0},
		"what was discarded":              {free("failed=4s deleted", "deleted"), 0},
		"at the same time as the success": {free("failed=4s", "succeeded=4s"), 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var seen Observed
			for _, line := range test.pods {
				seen.Mine = append(seen.Mine, pod(t, line))
			}
			p := Decide(counts(1), seen, now)
			if p.RequeueAfter != test.want || (len(p.Create) == 0) != (test.want > 0) {
				t.Errorf("again %v, create %d; want %v", p.RequeueAfter, len(p.Create), test.want)
			}
			// Known failures are not counted twice, and are not forgotten with the pods.
			seen.Backoff = p.Backoff
			if p := Decide(counts(1), seen, now); p.RequeueAfter != test.want {
				t.Errorf("again %v at the second look, want %v", p.RequeueAfter, test.want)
			}
			seen.Mine = nil
			if p := Decide(counts(1), seen, now); p.RequeueAfter != test.want {
				t.Errorf("again %v when the pods are gone, want %v", p.RequeueAfter, test.want)
			}
		})
	}
	if got := backoff(40, now, now); got != lastBackoff {
		t.Errorf("after many failures %v, want %v", got, lastBackoff)
	}
}

func TestPlanOfTheEnd(t *testing.T) {
	done := func(n int32) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Status.Succeeded = n } }
	failedTimes := func(n int32) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Status.Failed = n } }
	deadline := func(s int64) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = &s }
	}
	onFailure := func(limit int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Spec.Template.Spec.RestartPolicy, j.Spec.BackoffLimit = corev1.RestartPolicyOnFailure, &limit
		}
	}
	const met, target = "SuccessCriteriaMet=True:CompletionsReached", "FailureTarget=True:BackoffLimitExceeded"
	runPlans(t, map[string]planTest{
		"enough": {
			job:  jobWith(done(4)),
			want: "| active 0 ready 0 terminating 0 succeeded 4 failed 0 " + met + " Complete=True:CompletionsReached",
		},
		"enough, and one is uncounted": {
			job: jobWith(done(3)), pods: []string{"a succeeded=1h"},
			want: "untrack a | active 0 ready 0 terminating 0 succeeded 3 failed 0 uncounted [a] [] " + met,
		},
		"enough, and one still runs": {
			job: jobWith(done(4)), pods: []string{"a"},
			want: "discard a | active 1 ready 0 terminating 0 succeeded 4 failed 0 " + met,
		},
		"enough, and one is ending": {
			job: jobWith(done(4)), pods: []string{"a free deleted"},
			want: "| active 0 ready 0 terminating 1 succeeded 4 failed 0 " + met,
		},
		"none are asked for": {
			job:  jobWith(func(j *batchv1.Job) { j.Spec.Completions, j.Status.StartTime = new(int32(0)), nil }),
			want: "| active 0 ready 0 terminating 0 succeeded 0 failed 0 " + met + " Complete=True:CompletionsReached",
		},
		"a queue of work is done when all have ended": {
			job: jobWith(done(1), func(j *batchv1.Job) { j.Spec.Completions = nil }), pods: []string{"a free succeeded=1h"},
			want: "| active 0 ready 0 terminating 0 succeeded 1 failed 0 " + met + " Complete=True:CompletionsReached",
		},
		"as many failures as may be": {
			job:  jobWith(failedTimes(6)),
			want: "create create | active 0 ready 0 terminating 0 succeeded 0 failed 6",
		},
		"one failure too many": {
			job: jobWith(failedTimes(6)), pods: []string{"a failed=1h", "b"},
			want: "untrack a delete b | active 1 ready 0 terminating 0 succeeded 0 failed 6 uncounted [] [a] " + target,
		},
		"what was killed counts as failed": {
			job: jobWith(failedTimes(7), condition(batchv1.JobFailureTarget, "BackoffLimitExceeded")), pods: []string{"b deleted"},
			want: "untrack b | active 0 ready 0 terminating 1 succeeded 0 failed 7 uncounted [] [b] " + target,
		},
		"all have ended": {
			job:  jobWith(failedTimes(8), condition(batchv1.JobFailureTarget, "BackoffLimitExceeded")),
			want: "| active 0 ready 0 terminating 0 succeeded 0 failed 8 " + target + " Failed=True:BackoffLimitExceeded",
		},
		"what has failed does not succeed": {
			job: jobWith(done(4), condition(batchv1.JobFailureTarget, "BackoffLimitExceeded")), pods: []string{"b"},
			want: "delete b | active 1 ready 0 terminating 0 succeeded 4 failed 0 " + target,
		},
		"restarts count": {
			job: jobWith(onFailure(3)), pods: []string{"a restarts=1", "b restarts=2"},
			want: "delete a,b | active 2 ready 0 terminating 0 succeeded 0 failed 0 " + target,
		},
		"fewer restarts": {
			job: jobWith(onFailure(3)), pods: []string{"a restarts=1", "b restarts=1"},
			want: "| active 2 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"no restart is allowed": {
			job: jobWith(onFailure(0)), pods: []string{"a restarts=1", "b"},
			want: "delete a,b | active 2 ready 0 terminating 0 succeeded 0 failed 0 " + target,
		},
		"time is over": {
			job: jobWith(deadline(3600)), pods: []string{"a"},
			want: "delete a | active 1 ready 0 terminating 0 succeeded 0 failed 0 FailureTarget=True:DeadlineExceeded",
		},
		"there is time": {
			job: jobWith(deadline(3601)), pods: []string{"a", "b"},
			want: "again 1s | active 2 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"time does not pass while it is suspended": {
			job:  jobWith(deadline(3600), condition(batchv1.JobSuspended, "JobSuspended"), func(j *batchv1.Job) { j.Spec.Suspend = new(true) }),
			want: "| active 0 ready 0 terminating 0 succeeded 0 failed 0 Suspended=True:JobSuspended",
		},
		"time starts again when it is resumed": {
			job:  jobWith(deadline(3600), condition(batchv1.JobSuspended, "JobSuspended")),
			want: "create create again 1h0m0s | active 0 ready 0 terminating 0 succeeded 0 failed 0 Suspended=False:JobResumed",
		},
		"suspended": {
			job: jobWith(func(j *batchv1.Job) { j.Spec.Suspend = new(true) }), pods: []string{"a", "b succeeded=1h"},
			want: "untrack b discard a | active 1 ready 0 terminating 0 succeeded 0 failed 0 uncounted [b] [] Suspended=True:JobSuspended",
		},
	})
}
