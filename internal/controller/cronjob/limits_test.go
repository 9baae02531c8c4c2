package cronjob

import (
	"math"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// The largest deadline and limits are as good as none.
func TestLargestLimits(t *testing.T) {
	c := cronWith(t, func(c *batchv1.CronJob) {
		c.Spec.StartingDeadlineSeconds = new(int64(math.MaxInt64))
		c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = new(int32(math.MaxInt32)), new(int32(math.MaxInt32))
	})
	done := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}}
	p := Decide(c, Observed{Mine: []*batchv1.Job{done}}, at(t, "2027-03-10T12:30:00Z"))
	if want := at(t, noon); !p.Create.Equal(want) || len(p.Outdated) > 0 || len(p.Events) > 0 {
		t.Errorf("%+v, want the run of %s", p, want)
	}
}

// Users may write any time into the status. A walk over the times since then ends.
func TestLastRunInAnotherAge(t *testing.T) {
	for schedule, want := range map[string]string{"0 * * * *": noon, "0 0 30 2 *": "", "@yearly": "2027-01-01T00:00:00Z", "@every 1h": noon} {
		t.Run(schedule, func(t *testing.T) {
			c := cronWith(t, ran(t, "0001-01-01T00:00:01Z"), func(c *batchv1.CronJob) { c.Spec.Schedule = schedule })
			var latest time.Time
			if want != "" {
				latest = at(t, want)
			}
			if p := Decide(c, Observed{}, at(t, noon)); !p.Create.Equal(latest) {
				t.Errorf("the run of %s, want %s", p.Create, latest)
			}
		})
	}
}
