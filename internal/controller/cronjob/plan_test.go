package cronjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func at(t rapid.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.UTC()
}

// noon is the current time in most tests.
const noon = "2027-03-10T12:00:00Z"

func TestLatestTime(t *testing.T) {
	const berlin = "Europe/Berlin"
	for name, test := range map[string]struct {
		schedule, zone, begin, now, want string
		missed                           int
	}{
		"hourly":                     {"0 * * * *", "", "2027-03-10T10:30:00Z", "2027-03-10T12:10:00Z", "2027-03-10T12:00:00Z", 2},
		"none yet":                   {"0 * * * *", "", "2027-03-10T12:00:00Z", "2027-03-10T12:59:59Z", "", 0},
		"to the second":              {"0 * * * *", "", "2027-03-10T11:30:00Z", noon, noon, 1},
		"a year of minutes":          {"* * * * *", "", "2026-03-10T12:00:00Z", "2027-03-10T12:00:30Z", noon, 101},
		"once a year":                {"@yearly", "", "2020-05-05T00:00:00Z", noon, "2027-01-01T00:00:00Z", 7},
		"never":                      {"0 0 31 2 *", "", "2020-05-05T00:00:00Z", noon, "", 0},
		"every":                      {"@every 90m", "", "2027-03-10T06:00:30Z", noon, "2027-03-10T10:30:30Z", 3},
		"every, and not yet":         {"@every 90m", "", "2027-03-10T11:00:00Z", noon, "", 0},
		"of another zone":            {"0 9 * * *", berlin, "2027-03-09T12:00:00Z", noon, "2027-03-10T08:00:00Z", 1},
		"of a zone in summer":        {"0 9 * * *", berlin, "2027-07-09T12:00:00Z", "2027-07-10T12:00:00Z", "2027-07-10T07:00:00Z", 1},
		"an hour that does not come": {"30 2 * * *", berlin, "2027-03-27T12:00:00Z", "2027-03-28T12:00:00Z", "", 0},
		"a clock that went back":     {"0 * * * *", "", "2027-03-10T13:00:00Z", noon, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := parseSchedule(test.schedule, time.UTC)
			if err != nil {
				t.Fatal(err)
			}
			if test.zone != "" {
				if s, err = s.in(&test.zone); err != nil {
					t.Fatal(err)
				}
			}
			var want time.Time
			if test.want != "" {
				want = at(t, test.want)
			}
			if got := s.latest(at(t, test.begin), at(t, test.now)); !got.Equal(want) {
				t.Errorf("latest %v, want %v", got, want)
			}
			if got := s.missed(at(t, test.begin), at(t, test.now)); got != test.missed {
				t.Errorf("missed %d, want %d", got, test.missed)
			}
		})
	}
}

// cronWith returns a CronJob that was created at midnight and runs every hour.
func cronWith(t *testing.T, changes ...func(*batchv1.CronJob)) *batchv1.CronJob {
	c := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c", UID: "c", CreationTimestamp: metav1.NewTime(at(t, "2027-03-10T00:00:00Z"))},
		Spec:       batchv1.CronJobSpec{Schedule: "0 * * * *", ConcurrencyPolicy: batchv1.AllowConcurrent},
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

func ran(t *testing.T, text string) func(*batchv1.CronJob) {
	return func(c *batchv1.CronJob) { c.Status.LastScheduleTime = &metav1.Time{Time: at(t, text)} }
}

func concurrency(p batchv1.ConcurrencyPolicy) func(*batchv1.CronJob) {
	return func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = p }
}

// jobIn returns the job that a line describes: its name, and its state.
func jobIn(t *testing.T, c *batchv1.CronJob, line string) *batchv1.Job {
	t.Helper()
	name, words, _ := strings.Cut(line, " ")
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: c.CreationTimestamp, Annotations: map[string]string{},
	}}
	for word := range strings.FieldsSeq(words) {
		end := batchv1.JobCondition{Status: corev1.ConditionTrue}
		switch key, value, _ := strings.Cut(word, "="); key {
		case "complete":
			end.Type = batchv1.JobComplete
			job.Status.CompletionTime = &metav1.Time{Time: at(t, "2027-03-10T"+value+":00Z")}
			job.Status.StartTime = job.Status.CompletionTime
		case "failed":
			end.Type = batchv1.JobFailed
		case "target":
			end.Type = batchv1.JobFailureTarget
		case "byhand":
			job.Annotations[instantiateAnnotation] = "manual"
			continue
		case "deleted":
			job.DeletionTimestamp = &c.CreationTimestamp
			continue
		default:
			t.Fatalf("what is %q?", word)
		}
		job.Status.Conditions = append(job.Status.Conditions, end)
	}
	return job
}

func outcome(p Plan) string {
	var out []string
	for _, job := range p.Outdated {
		out = append(out, "delete "+job.Name)
	}
	for _, job := range p.Replaced {
		out = append(out, "replace "+job.Name)
	}
	if !p.Create.IsZero() {
		out = append(out, "create "+p.Create.UTC().Format("15:04"))
	}
	for _, ref := range p.Status.Active {
		out = append(out, "active "+ref.Name)
	}
	if last := p.Status.LastScheduleTime; last != nil {
		out = append(out, "ran "+last.UTC().Format("15:04"))
	}
	if last := p.Status.LastSuccessfulTime; last != nil {
		out = append(out, "succeeded "+last.UTC().Format("15:04"))
	}
	for _, event := range p.Events {
		out = append(out, event.Reason)
	}
	return strings.Join(out, ", ")
}

func TestPlanOfCronJobs(t *testing.T) {
	minutes := at(t, noon).Unix() / 60
	of := func(hour int, what string) string { return fmt.Sprintf("c-%d %s", minutes+int64(hour-12)*60, what) }
	limits := func(good, bad int32) func(*batchv1.CronJob) {
		return func(c *batchv1.CronJob) {
			c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = &good, &bad
		}
	}
	deadline := func(s int64) func(*batchv1.CronJob) {
		return func(c *batchv1.CronJob) { c.Spec.StartingDeadlineSeconds = &s }
	}
	zone := func(name string) func(*batchv1.CronJob) {
		return func(c *batchv1.CronJob) { c.Spec.TimeZone = &name }
	}
	schedule := func(text string) func(*batchv1.CronJob) {
		return func(c *batchv1.CronJob) { c.Spec.Schedule = text }
	}
	for name, test := range map[string]struct {
		cron []func(*batchv1.CronJob)
		jobs []string
		ran  string // what the process remembers having run
		now  string // 12:10 if empty
		want string
	}{
		"of all that were missed the latest":  {want: "create 12:00"},
		"the next":                            {cron: []func(*batchv1.CronJob){ran(t, "2027-03-10T11:00:00Z")}, want: "create 12:00, ran 11:00"},
		"that has been":                       {cron: []func(*batchv1.CronJob){ran(t, noon)}, want: "ran 12:00"},
		"that has been, and is not written":   {cron: []func(*batchv1.CronJob){ran(t, "2027-03-10T11:00:00Z")}, jobs: []string{of(12, "complete=12:05")}, want: "ran 12:00, succeeded 12:05"},
		"that has been, and is remembered":    {cron: []func(*batchv1.CronJob){ran(t, "2027-03-10T11:00:00Z")}, ran: noon, want: "ran 12:00"},
		"suspended":                           {cron: []func(*batchv1.CronJob){func(c *batchv1.CronJob) { c.Spec.Suspend = new(true) }}, want: ""},
		"being deleted":                       {cron: []func(*batchv1.CronJob){limits(0, 0), func(c *batchv1.CronJob) { c.DeletionTimestamp = &c.CreationTimestamp }}, jobs: []string{"a complete=03:00", "b"}, want: "active b, succeeded 03:00"},
		"too late":                            {cron: []func(*batchv1.CronJob){deadline(599)}, want: "MissSchedule"},
		"just in time":                        {cron: []func(*batchv1.CronJob){deadline(600)}, want: "create 12:00"},
		"too many missed":                     {cron: []func(*batchv1.CronJob){schedule("* * * * *")}, want: "create 12:10, TooManyMissedTimes"},
		"too many, but not within the time":   {cron: []func(*batchv1.CronJob){schedule("* * * * *"), deadline(300)}, want: "create 12:10"},
		"no schedule":                         {cron: []func(*batchv1.CronJob){schedule("whenever")}, want: "UnparseableSchedule"},
		"no zone":                             {cron: []func(*batchv1.CronJob){zone("Atlantis")}, want: "UnknownTimeZone"},
		"a zone half an hour off":             {cron: []func(*batchv1.CronJob){zone("Asia/Kolkata")}, want: "create 11:30"},
		"allowed at the same time":            {jobs: []string{of(11, "")}, want: "create 12:00, active c-" + fmt.Sprint(minutes-60)},
		"forbidden":                           {cron: []func(*batchv1.CronJob){concurrency(batchv1.ForbidConcurrent)}, jobs: []string{"a"}, want: "active a, JobAlreadyActive"},
		"forbidden, one is about to fail":     {cron: []func(*batchv1.CronJob){concurrency(batchv1.ForbidConcurrent)}, jobs: []string{"a target"}, want: "active a, JobAlreadyActive"},
		"forbidden, one run by hand":          {cron: []func(*batchv1.CronJob){concurrency(batchv1.ForbidConcurrent)}, jobs: []string{"a byhand"}, want: "active a, JobAlreadyActive"},
		"forbidden, and late when it is free": {cron: []func(*batchv1.CronJob){concurrency(batchv1.ForbidConcurrent)}, jobs: []string{"a failed"}, want: "create 12:00"},
		"replaced":                            {cron: []func(*batchv1.CronJob){concurrency(batchv1.ReplaceConcurrent)}, jobs: []string{"a", "b complete=03:00", "d deleted"}, want: "replace a, create 12:00, active d, succeeded 03:00"},
		"not replaced, as it was run by hand": {cron: []func(*batchv1.CronJob){concurrency(batchv1.ReplaceConcurrent)}, jobs: []string{"a byhand"}, want: "create 12:00, active a"},
		"nothing to replace yet":              {cron: []func(*batchv1.CronJob){concurrency(batchv1.ReplaceConcurrent), ran(t, noon)}, jobs: []string{"a"}, want: "active a, ran 12:00"},
		"history limits": {
			cron: []func(*batchv1.CronJob){limits(1, 1), ran(t, noon)},
			jobs: []string{"a complete=05:00", "b complete=03:00", "x complete=04:00 byhand", "d failed", "e failed", "f"},
			want: "delete b, delete x, delete d, active f, ran 12:00, succeeded 05:00",
		},
		"history limits of 0": {cron: []func(*batchv1.CronJob){limits(0, 0), ran(t, noon)}, jobs: []string{"a complete=05:00", "d failed deleted"}, want: "delete a, ran 12:00, succeeded 05:00"},
		"no history limits":   {cron: []func(*batchv1.CronJob){ran(t, noon)}, jobs: []string{"a complete=05:00"}, want: "ran 12:00, succeeded 05:00"},
		"it has ended": {
			cron: []func(*batchv1.CronJob){ran(t, noon), func(c *batchv1.CronJob) {
				c.Status.Active = []corev1.ObjectReference{{Name: "a", UID: "a"}, {Name: "lost", UID: "lost"}}
			}},
			jobs: []string{"a complete=12:05"}, want: "ran 12:00, succeeded 12:05, SawCompletedJob",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := cronWith(t, test.cron...)
			var seen Observed
			for _, line := range test.jobs {
				seen.Mine = append(seen.Mine, jobIn(t, c, line))
			}
			if test.ran != "" {
				seen.Ran = at(t, test.ran)
			}
			if got := outcome(Decide(c, seen, at(t, noon).Add(10*time.Minute))); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestNextLook(t *testing.T) {
	if p := Decide(cronWith(t, ran(t, noon)), Observed{}, at(t, noon).Add(10*time.Minute)); p.RequeueAfter != 50*time.Minute {
		t.Errorf("again in %v", p.RequeueAfter)
	}
	never := cronWith(t, func(c *batchv1.CronJob) { c.Spec.Schedule = "0 0 31 2 *" })
	if p := Decide(never, Observed{}, at(t, noon)); p.RequeueAfter != 0 {
		t.Errorf("again in %v for a time that never comes", p.RequeueAfter)
	}
}

func TestJobOf(t *testing.T) {
	zone := "Asia/Kolkata"
	c := cronWith(t, func(c *batchv1.CronJob) {
		c.Spec.TimeZone = &zone
		c.Spec.JobTemplate.Labels = map[string]string{"app": "a"}
		c.Spec.JobTemplate.Annotations = map[string]string{"note": "n"}
		c.Spec.JobTemplate.Spec.Parallelism = new(int32(3))
	})
	p := Decide(c, Observed{}, at(t, noon))
	job := jobOf(c, p.Create, p.Zone)
	if job.Name != "c-30077970" || job.Namespace != "team" || job.Labels["app"] != "a" || job.Annotations["note"] != "n" || *job.Spec.Parallelism != 3 {
		t.Errorf("%s/%s %v %v", job.Namespace, job.Name, job.Labels, job.Annotations)
	}
	if got := job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]; got != "2027-03-10T17:00:00+05:30" {
		t.Errorf("scheduled for %s", got)
	}
	ref := metav1.GetControllerOf(job)
	if ref == nil || ref.UID != "c" || ref.Kind != "CronJob" || ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion {
		t.Errorf("owned by %v", ref)
	}
	if len(c.Spec.JobTemplate.Annotations) != 1 {
		t.Error("the template was changed")
	}
}

// A new resourceVersion of a job is no reason to write the status.
func TestReferencesStay(t *testing.T) {
	c := cronWith(t, ran(t, noon))
	job := jobIn(t, c, "a")
	job.ResourceVersion = "7"
	first := Decide(c, Observed{Mine: []*batchv1.Job{job}}, at(t, noon))
	c.Status = first.Status
	job.ResourceVersion = "8"
	if second := Decide(c, Observed{Mine: []*batchv1.Job{job}}, at(t, noon)); second.Status.Active[0] != first.Status.Active[0] {
		t.Errorf("%v", second.Status.Active)
	}
}
