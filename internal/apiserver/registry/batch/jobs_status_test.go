package batch

import (
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestCountIndexes(t *testing.T) {
	for list, want := range map[string]string{
		"": "0", "0": "1", "0,3-5": "4", "1-2,4-9": "8",
		"a":     `cannot convert string to integer for index: "a"`,
		"0-1-2": `the fragment "0-1-2" violates the requirement that an index interval can have at most two parts separated by '-'`,
		"10":    `too large index: "10"`,
		"3,3":   "non-increasing order, previous: 3, current: 3",
		"4-2":   "non-increasing order, previous: 4, current: 2",
	} {
		n, err := countIndexes(list, 10)
		got := strconv.Itoa(int(n))
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", list, got, want)
		}
	}
}

func TestCommonIndex(t *testing.T) {
	for lists, want := range map[[2]string]string{
		{"", "1"}: "none", {"0-2", "3,5"}: "none", {"0,3-5", "1,4-6"}: "4", {"7", "2-8"}: "7", {"a,2", "2"}: "2", {"0-20", "2"}: "none",
		{"2", "5,0-3"}: "2", {"4", "0-5,1-2"}: "4", // in any order
	} {
		got := "none"
		if index, overlap := commonIndex(lists[0], lists[1], 10); overlap {
			got = strconv.Itoa(int(index))
		}
		if got != want {
			t.Errorf("%q: %s, want %s", lists, got, want)
		}
	}
}

// TestJobStatus checks that an impossible status is refused, unless it has not changed.
func TestJobStatus(t *testing.T) {
	with := func(types ...batchv1.JobConditionType) (list []batchv1.JobCondition) {
		for _, t := range types {
			list = append(list, batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue})
		}
		return list
	}
	resumed := []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse}}
	early, late := &metav1.Time{Time: time.Unix(1000, 0)}, &metav1.Time{Time: time.Unix(2000, 0)}
	const met, complete, target, failed = batchv1.JobSuccessCriteriaMet, batchv1.JobComplete, batchv1.JobFailureTarget, batchv1.JobFailed
	ended := batchv1.JobStatus{StartTime: early, CompletionTime: late, Conditions: with(met, complete)}
	uncounted := func(succeeded, failed []types.UID) batchv1.JobStatus {
		return batchv1.JobStatus{UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{Succeeded: succeeded, Failed: failed}}
	}
	for name, test := range map[string]struct {
		indexed  bool
		old, now batchv1.JobStatus
		want     string
	}{
		"counts":                    {false, batchv1.JobStatus{}, batchv1.JobStatus{Active: 2, Ready: ptr.To[int32](2), Succeeded: 1}, ""},
		"more ready than active":    {false, batchv1.JobStatus{}, batchv1.JobStatus{Ready: ptr.To[int32](1)}, "status.ready"},
		"more ready before":         {false, batchv1.JobStatus{Ready: ptr.To[int32](1)}, batchv1.JobStatus{Ready: ptr.To[int32](1)}, ""},
		"fewer failed":              {false, batchv1.JobStatus{Failed: 2}, batchv1.JobStatus{Failed: 1}, "status.failed"},
		"fewer succeeded":           {false, batchv1.JobStatus{Succeeded: 2}, batchv1.JobStatus{Succeeded: 1}, "status.succeeded"},
		"fewer succeeded indexes":   {true, batchv1.JobStatus{Succeeded: 2, CompletedIndexes: "0,1"}, batchv1.JobStatus{Succeeded: 1, CompletedIndexes: "0"}, ""},
		"completed":                 {false, batchv1.JobStatus{StartTime: early}, ended, ""},
		"completed without":         {false, batchv1.JobStatus{}, batchv1.JobStatus{CompletionTime: late}, "status.completionTime"},
		"complete, no time":         {false, batchv1.JobStatus{StartTime: early}, batchv1.JobStatus{StartTime: early, Conditions: with(met, complete)}, "status.completionTime"},
		"complete before it began":  {false, batchv1.JobStatus{}, batchv1.JobStatus{StartTime: late, CompletionTime: early, Conditions: with(met, complete)}, "status.completionTime"},
		"complete, never begun":     {false, batchv1.JobStatus{}, batchv1.JobStatus{CompletionTime: late, Conditions: with(met, complete)}, "status.startTime"},
		"complete at another time":  {false, ended, batchv1.JobStatus{StartTime: early, CompletionTime: early, Conditions: with(met, complete)}, "status.completionTime"},
		"complete without criteria": {false, batchv1.JobStatus{StartTime: early}, batchv1.JobStatus{StartTime: early, CompletionTime: late, Conditions: with(complete)}, "status.conditions"},
		"complete no more":          {false, ended, batchv1.JobStatus{StartTime: early, Conditions: with(met)}, "status.conditions"},
		"criteria met no more":      {false, batchv1.JobStatus{Conditions: with(met)}, batchv1.JobStatus{}, "status.conditions"},
		"failed":                    {false, batchv1.JobStatus{StartTime: early, Conditions: with(target)}, batchv1.JobStatus{StartTime: early, Conditions: with(target, failed)}, ""},
		"failed without target":     {false, batchv1.JobStatus{StartTime: early}, batchv1.JobStatus{StartTime: early, Conditions: with(failed)}, "status.conditions"},
		"failed no more":            {false, batchv1.JobStatus{StartTime: early, Conditions: with(target, failed)}, batchv1.JobStatus{StartTime: early, Conditions: with(target)}, "status.conditions"},
		"both targets":              {false, batchv1.JobStatus{}, batchv1.JobStatus{Conditions: with(target, met)}, "status.conditions"},
		"finished, active":          {false, ended, batchv1.JobStatus{StartTime: early, CompletionTime: late, Conditions: with(met, complete), Active: 1}, "status.active"},
		"finished, terminating":     {false, ended, batchv1.JobStatus{StartTime: early, CompletionTime: late, Conditions: with(met, complete), Terminating: ptr.To[int32](1)}, "status.terminating"},
		"started again":             {false, batchv1.JobStatus{StartTime: early}, batchv1.JobStatus{StartTime: late}, "status.startTime"},
		"resumed":                   {false, batchv1.JobStatus{StartTime: early, Conditions: with(batchv1.JobSuspended)}, batchv1.JobStatus{StartTime: late, Conditions: resumed}, ""},
		"indexes of others":         {false, batchv1.JobStatus{}, batchv1.JobStatus{CompletedIndexes: "0"}, "status.completedIndexes"},
		"indexes":                   {true, batchv1.JobStatus{}, batchv1.JobStatus{CompletedIndexes: "0-2"}, ""},
		"too many indexes":          {true, batchv1.JobStatus{}, batchv1.JobStatus{CompletedIndexes: "0-9"}, "status.completedIndexes"},
		"failed indexes without":    {true, batchv1.JobStatus{}, batchv1.JobStatus{FailedIndexes: new("")}, "status.failedIndexes"},
		"uncounted":                 {false, batchv1.JobStatus{}, uncounted([]types.UID{"a"}, []types.UID{"b"}), ""},
		"uncounted, both":           {false, batchv1.JobStatus{}, uncounted([]types.UID{"a"}, []types.UID{"a"}), "status.uncountedTerminatedPods.failed[0]"},
		"uncounted, without a name": {false, batchv1.JobStatus{}, uncounted([]types.UID{""}, nil), "status.uncountedTerminatedPods.succeeded[0]"},
	} {
		j := &batchv1.Job{Spec: batchv1.JobSpec{Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](3)}, Status: test.now}
		if test.indexed {
			j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		}
		old := j.DeepCopy()
		old.Status = test.old
		var fields []string
		for _, err := range validateJobStatus(j, old) {
			fields = append(fields, err.Field)
		}
		first, _, _ := strings.Cut(strings.Join(fields, " "), " ")
		if first != test.want {
			t.Errorf("%s: errors at %q, want at %q", name, fields, test.want)
		}
	}
}
