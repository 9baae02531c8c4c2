package job

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestPlanOfIndexes(t *testing.T) {
	success := func(rule batchv1.SuccessPolicyRule) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{rule}}
		}
	}
	completed := func(text string) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Status.CompletedIndexes = text }
	}
	runPlans(t, map[string]planTest{
		"the lowest first": {job: jobWith(indexed), want: "create:0 create:1 | active 0 ready 0 terminating 0 succeeded 0 failed 0"},
		"those that are left": {
			job: jobWith(indexed, completed("0,2")), pods: []string{"a index=1"},
			want: "create:3 | active 1 ready 0 terminating 0 succeeded 2 failed 0 completed 0,2",
		},
		"a success": {
			job: jobWith(indexed, completed("0")), pods: []string{"a index=1 succeeded=1h", "b index=2", "c index=3"},
			want: "untrack a | active 2 ready 0 terminating 0 succeeded 2 failed 0 completed 0,1",
		},
		"the same success again": {
			job: jobWith(indexed, completed("0,1")), pods: []string{"a index=1 succeeded=1h", "b index=2", "c index=3"},
			want: "untrack a | active 2 ready 0 terminating 0 succeeded 2 failed 0 completed 0,1",
		},
		"two of one index, one of none, one beyond": {
			job: jobWith(indexed), pods: []string{"a index=1", "b index=1", "c", "d index=4"},
			want: "discard b,c,d | active 4 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"a success beyond counts as none": {
			job: jobWith(indexed), pods: []string{"a index=4 succeeded=1h", "b index=0", "c index=1"},
			want: "untrack a | active 2 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"made smaller": {
			job:  jobWith(indexed, completed("0-3"), func(j *batchv1.Job) { j.Spec.Completions, j.Status.Succeeded = new(int32(2)), 4 }),
			want: "| active 0 ready 0 terminating 0 succeeded 2 failed 0 completed 0,1 SuccessCriteriaMet=True:CompletionsReached Complete=True:CompletionsReached",
		},
		"an index that failed waits, and others go on": {
			job: jobWith(perIndex(1)), pods: []string{"a index=0 failed=4s"},
			want: "create:1 create:2 again 6s | active 0 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [a]",
		},
		"it is tried again, with what it has failed": {
			job: jobWith(perIndex(2), func(j *batchv1.Job) { j.Status.UncountedTerminatedPods.Failed = []types.UID{"a"} }), pods: []string{"a index=0 failed=1h failures=1", "b index=1"},
			want: "create:0(2,0) | active 1 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [a]",
		},
		"the record of its failures goes when there is another": {
			job: jobWith(perIndex(1), func(j *batchv1.Job) { j.Status.UncountedTerminatedPods.Failed = []types.UID{"a"} }), pods: []string{"a index=0 failed=1h", "b index=0 failures=1", "c index=1"},
			want: "untrack a | active 2 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [a]",
		},
		"an index is given up": {
			job: jobWith(perIndex(1)), pods: []string{"a index=0 failed=1h failures=1", "b index=1", "c index=2"},
			want: "untrack a | active 2 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [a] given up 0",
		},
		"a success of an index that is given up counts as none": {
			job: jobWith(perIndex(0), func(j *batchv1.Job) { j.Status.FailedIndexes = new("0") }), pods: []string{"a index=0 succeeded=1h", "b index=1", "c index=2"},
			want: "untrack a | active 2 ready 0 terminating 0 succeeded 0 failed 0 given up 0",
		},
		"too many are given up": {
			job: jobWith(perIndex(0), func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = new(int32(0)) }), pods: []string{"a index=0 failed=1h", "b index=1"},
			want: "untrack a delete b | active 1 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [a] given up 0 FailureTarget=True:MaxFailedIndexesExceeded",
		},
		"all have ended, not all well": {
			job:  jobWith(perIndex(0), completed("1-3"), func(j *batchv1.Job) { j.Status.FailedIndexes, j.Status.Failed = new("0"), 1 }),
			want: "| active 0 ready 0 terminating 0 succeeded 3 failed 1 completed 1-3 given up 0 FailureTarget=True:FailedIndexes Failed=True:FailedIndexes",
		},
		"enough have succeeded": {
			job: jobWith(indexed, completed("1,3"), success(batchv1.SuccessPolicyRule{SucceededCount: new(int32(2))})), pods: []string{"a index=0"},
			want: "discard a | active 1 ready 0 terminating 0 succeeded 2 failed 0 completed 1,3 SuccessCriteriaMet=True:SuccessPolicy",
		},
		"not those that have to": {
			job: jobWith(indexed, completed("1,3"), success(batchv1.SuccessPolicyRule{SucceededIndexes: new("1-2")})), pods: []string{"a index=0", "b index=2"},
			want: "| active 2 ready 0 terminating 0 succeeded 2 failed 0 completed 1,3",
		},
		"as many of the indexes as required": {
			job: jobWith(indexed, completed("1,3"), success(batchv1.SuccessPolicyRule{SucceededIndexes: new("1-2"), SucceededCount: new(int32(1))})), pods: []string{"a free index=0 failed=1h"},
			want: "| active 0 ready 0 terminating 0 succeeded 2 failed 0 completed 1,3 SuccessCriteriaMet=True:SuccessPolicy Complete=True:SuccessPolicy",
		},
		"a rule that cannot be parsed": {
			job: jobWith(indexed, completed("1,3"), success(batchv1.SuccessPolicyRule{SucceededIndexes: new("x")})), pods: []string{"a index=0", "b index=2"},
			want: "| active 2 ready 0 terminating 0 succeeded 2 failed 0 completed 1,3",
		},
	})
}

func TestPlanOfFailurePolicy(t *testing.T) {
	policy := func(rules ...batchv1.PodFailurePolicyRule) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules} }
	}
	onExit := func(action batchv1.PodFailurePolicyAction, operator batchv1.PodFailurePolicyOnExitCodesOperator, codes ...int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: operator, Values: codes}}
	}
	disrupted := batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget}}}
	other := onExit(batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyOnExitCodesOpIn, 42)
	other.OnExitCodes.ContainerName = new("sidecar")
	in, notIn := batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	runPlans(t, map[string]planTest{
		"the job fails": {
			job: jobWith(policy(onExit(batchv1.PodFailurePolicyActionFailJob, in, 42))), pods: []string{"a exit=42", "b"},
			want: "untrack a delete b | active 1 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [a] FailureTarget=True:PodFailurePolicy",
		},
		"another code": {
			job: jobWith(policy(onExit(batchv1.PodFailurePolicyActionFailJob, in, 42))), pods: []string{"a exit=43", "b"},
			want: "untrack a create | active 1 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [a]",
		},
		"any code but": {
			job: jobWith(policy(onExit(batchv1.PodFailurePolicyActionFailJob, notIn, 42))), pods: []string{"a exit=43"},
			want: "untrack a | active 0 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [a] FailureTarget=True:PodFailurePolicy",
		},
		"the container of another rule": {
			job: jobWith(policy(other)), pods: []string{"a exit=42", "b"},
			want: "untrack a create | active 1 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [a]",
		},
		"ignored: it does not count, and is replaced": {
			job: jobWith(policy(disrupted)), pods: []string{"a exit=1 disrupted", "b"},
			want: "untrack a create | active 1 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"the first rule that matches": {
			job: jobWith(policy(disrupted, onExit(batchv1.PodFailurePolicyActionFailJob, in, 1))), pods: []string{"a exit=1 disrupted", "b"},
			want: "untrack a create | active 1 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"one that is ending has not failed yet": {
			job: jobWith(policy(disrupted)), pods: []string{"a deleted disrupted", "b"},
			want: "| active 1 ready 0 terminating 1 succeeded 0 failed 0",
		},
		"the index fails": {
			job: jobWith(perIndex(5), policy(onExit(batchv1.PodFailurePolicyActionFailIndex, in, 42))), pods: []string{"a index=0 exit=42", "b index=1"},
			want: "untrack a create:2 | active 1 ready 0 terminating 0 succeeded 0 failed 0 uncounted [] [a] given up 0",
		},
		"ignored for the index, too": {
			job: jobWith(perIndex(0), policy(disrupted)), pods: []string{"a index=0 exit=1 disrupted ignored=3", "b index=1"},
			want: "create:0(0,4) | active 1 ready 0 terminating 0 succeeded 0 failed 0",
		},
	})
}

func TestMessagesOfFailurePolicy(t *testing.T) {
	rules := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42}}},
		{Action: batchv1.PodFailurePolicyActionFailJob, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}},
	}}
	for line, want := range map[string]string{
		"a exit=42":          "Container main for pod team/a failed with exit code 42 matching FailJob rule at index 0",
		"a exit=1 disrupted": "Pod team/a has condition DisruptionTarget matching FailJob rule at index 1",
		"a exit=1":           "",
	} {
		if _, got := failureAction(rules, pod(t, line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestFinishedJobExpiresAfterItsTTL(t *testing.T) {
	ended := func(t batchv1.JobConditionType) *batchv1.Job {
		return jobWith(func(j *batchv1.Job) {
			j.Spec.TTLSecondsAfterFinished = new(int32(60))
			j.Status.Conditions = []batchv1.JobCondition{{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-50 * time.Second))}}
		})
	}
	ending := ended(batchv1.JobComplete)
	ending.DeletionTimestamp = &start
	stays := ended(batchv1.JobComplete)
	stays.Spec.TTLSecondsAfterFinished = nil
	for name, test := range map[string]struct {
		job     *batchv1.Job
		expires bool
	}{
		"complete": {ended(batchv1.JobComplete), true}, "failed": {ended(batchv1.JobFailed), true},
		"about to fail": {ended(batchv1.JobFailureTarget), false}, "being deleted": {ending, false}, "stays": {stays, false},
	} {
		in, expires := expiry(test.job, now)
		if expires != test.expires || expires && in != 10*time.Second {
			t.Errorf("%s: in %v, %t", name, in, expires)
		}
	}
}

func TestPodOf(t *testing.T) {
	job := jobWith(perIndex(3), func(j *batchv1.Job) {
		j.Name = strings.Repeat("x", 60)
		j.Spec.Template.Labels = map[string]string{"app": "a"}
		j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}, {Name: "own", Env: []corev1.EnvVar{{Name: indexVariable, Value: "mine"}}}}
	})
	p := podOf(job, newPod{Index: 12, Failures: 2})
	if want := strings.Repeat("x", 54) + "-12-"; p.GenerateName != want {
		t.Errorf("named %s, want %s", p.GenerateName, want)
	}
	const key = batchv1.JobCompletionIndexAnnotation
	if p.Labels[key] != "12" || p.Annotations[key] != "12" || p.Annotations[batchv1.JobIndexFailureCountAnnotation] != "2" || !isTracked(p) || p.Spec.Hostname != job.Name+"-12" {
		t.Errorf("%v %v %v %s", p.Labels, p.Annotations, p.Finalizers, p.Spec.Hostname)
	}
	if env := p.Spec.Containers[0].Env; len(env) != 1 || env[0].ValueFrom.FieldRef.FieldPath != "metadata.labels['"+key+"']" {
		t.Errorf("%v", env)
	}
	if env := p.Spec.Containers[1].Env; len(env) != 1 || env[0].Value != "mine" {
		t.Errorf("%v", env)
	}
	if _, there := job.Spec.Template.Labels[key]; there {
		t.Error("the template was changed")
	}
	if p := podOf(jobWith(), newPod{Index: unindexed}); p.GenerateName != "j-" || p.Spec.Hostname != "" || len(p.Annotations) > 0 {
		t.Errorf("%s %s %v", p.GenerateName, p.Spec.Hostname, p.Annotations)
	}
}

func TestIndexesAreReadAndWrittenInUpstreamsNotation(t *testing.T) {
	for text, want := range map[string]string{"": "", "3": "3", "1,2": "1,2", "5,1-3,2-4": "1-5", "7-20": "7-9", "1,3-4,6-7,9": "1,3,4,6,7,9"} {
		s, err := parseIndexes(text, 10)
		if err != nil || s.String() != want {
			t.Errorf("%q: %s, %v; want %s", text, s, err, want)
		}
		n := 0
		for i := range 12 {
			if s.Has(i) {
				n++
			}
		}
		if n != s.Len() || s.Common(s) != n || s.With(0, 11).Len() != n+2 {
			t.Errorf("%q: %d, %d, %d", text, n, s.Len(), s.Common(s))
		}
	}
	for _, text := range []string{"x", "1-", "3-2", ","} {
		if s, err := parseIndexes(text, 10); err == nil {
			t.Errorf("%q is read as %s", text, s)
		}
	}
	a, _ := parseIndexes("0-3,6,8-9", 10)
	if b, _ := parseIndexes("2-6,9", 10); a.Common(b) != 4 || b.Common(a) != 4 {
		t.Errorf("in common %d, %d", a.Common(b), b.Common(a))
	}
}

// A pod whose deletion was refused comes after the others, and in its turn again.
func TestRefusedPodsAreDeletedLast(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*batchv1.Job)
		refused map[types.UID]int
		discard []string
	}{
		"surplus, none":                      {func(*batchv1.Job) {}, nil, []string{"a"}},
		"surplus, one":                       {func(*batchv1.Job) {}, map[types.UID]int{"a": 1}, []string{"b"}},
		"surplus, all, the first more often": {func(*batchv1.Job) {}, map[types.UID]int{"a": 2, "b": 1, "c": 1}, []string{"b"}},
		"suspended":                          {func(j *batchv1.Job) { j.Spec.Suspend = new(true) }, map[types.UID]int{"a": 1}, []string{"b", "c", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := Observed{Mine: []*corev1.Pod{pod(t, "a"), pod(t, "b"), pod(t, "c")}, Refused: test.refused}
			var discard []string
			for _, pod := range Decide(jobWith(test.change), seen, now).Discard {
				discard = append(discard, pod.Name)
			}
			if !slices.Equal(discard, test.discard) {
				t.Errorf("%q, want %q", discard, test.discard)
			}
		})
	}
}
