package batch

import (
	"strconv"
	"strings"
	"testing"

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

// TestJobStatus: a status that cannot be is refused; one that has not changed is left alone.
func TestJobStatus(t *testing.T) {
	complete := []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
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
		"completed":                 {false, batchv1.JobStatus{}, batchv1.JobStatus{CompletionTime: &metav1.Time{}, Conditions: complete}, ""},
		"completed without":         {false, batchv1.JobStatus{}, batchv1.JobStatus{CompletionTime: &metav1.Time{}}, "status.completionTime"},
		"indexes of others":         {false, batchv1.JobStatus{}, batchv1.JobStatus{CompletedIndexes: "0"}, "status.completedIndexes"},
		"indexes":                   {true, batchv1.JobStatus{}, batchv1.JobStatus{CompletedIndexes: "0-2"}, ""},
		"too many indexes":          {true, batchv1.JobStatus{}, batchv1.JobStatus{CompletedIndexes: "0-9"}, "status.completedIndexes"},
		"failed indexes without":    {true, batchv1.JobStatus{}, batchv1.JobStatus{FailedIndexes: new("")}, "status.failedIndexes"},
		"uncounted":                 {false, batchv1.JobStatus{}, uncounted([]types.UID{"a"}, []types.UID{"b"}), ""},
		"uncounted, both":           {false, batchv1.JobStatus{}, uncounted([]types.UID{"a"}, []types.UID{"a"}), "status.uncountedTerminatedPods.failed[0]"},
		"uncounted, without a name": {false, batchv1.JobStatus{}, uncounted([]types.UID{""}, nil), "status.uncountedTerminatedPods.succeeded[0]"},
	} {
		j := &batchv1.Job{Spec: batchv1.JobSpec{Completions: ptr.To[int32](3)}, Status: test.now}
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
