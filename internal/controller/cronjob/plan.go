// Package cronjob makes jobs by a schedule.
//
//	schedule, the last run, now ──▶ schedule.go: the latest time that is due
//	jobs that there are ──▶ plan.go: what runs, what is history, what is to be made
//
// No time is run twice: the job of a time has one name, and once it is made the status
// says so. Whatever was made is looked for on the server before it is taken for missing.
// Only when somebody else deletes a job between its creation and the write of the status,
// while the controller is not there to remember, is it made again.
//
// Of all times that were missed the latest is run, however many there were.
package cronjob

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// byHand is the annotation of jobs that kubectl create job --from makes.
const byHand = "cronjob.kubernetes.io/instantiate"

// Plan is what there is to do. The status is written before anything else is done, so
// that no job goes whose run is on no record; and again with the job that was created.
type Plan struct {
	// Delete are jobs that are history, or that the next run replaces.
	Delete []*batchv1.Job
	// Create is the time to run a job for; zero for none.
	Create time.Time
	// Zone is what that time is written in.
	Zone *time.Location
	// Status is that without the job to be created.
	Status batchv1.CronJobStatus
	News   []News
	// Again is when the next job is due; 0 for never.
	Again time.Duration
}

// News is an event.
type News struct{ Type, Reason, Message string }

// Observed is what there is of a CronJob's jobs.
type Observed struct {
	// Mine are the jobs that it controls.
	Mine []*batchv1.Job
	// Ran is the last time that this process has run a job for; zero for none.
	Ran time.Time
}

// Decide says what to do about a CronJob. The time zone of now is that of a schedule
// that names none.
func Decide(c *batchv1.CronJob, seen Observed, now time.Time) Plan {
	p := Plan{Status: *c.Status.DeepCopy()}
	mine := slices.Clone(seen.Mine)
	slices.SortFunc(mine, func(a, b *batchv1.Job) int {
		return cmp.Or(begun(a).Compare(begun(b)), cmp.Compare(a.Name, b.Name))
	})
	p.observe(c, mine)
	if seen.Ran.After(lastRun(&p.Status)) {
		p.Status.LastScheduleTime = &metav1.Time{Time: seen.Ran}
	}
	if c.DeletionTimestamp != nil {
		return p
	}
	p.clearHistory(c, mine)
	if c.Spec.Suspend == nil || !*c.Spec.Suspend {
		p.schedule(c, mine, now)
	}
	return p
}

// observe writes into the status what runs and what has succeeded last.
func (p *Plan) observe(c *batchv1.CronJob, mine []*batchv1.Job) {
	p.Status.Active = nil
	for _, job := range mine {
		end := finished(job)
		was := slices.ContainsFunc(c.Status.Active, isTo(job))
		if end == nil {
			p.Status.Active = append(p.Status.Active, refer(c.Status.Active, job))
			continue
		}
		if was {
			p.tell(corev1.EventTypeNormal, "SawCompletedJob", fmt.Sprintf("Saw completed job: %s, condition: %v", job.Name, end.Type))
		}
		if at := job.Status.CompletionTime; end.Type == batchv1.JobComplete && at != nil &&
			(p.Status.LastSuccessfulTime == nil || at.After(p.Status.LastSuccessfulTime.Time)) {
			p.Status.LastSuccessfulTime = at.DeepCopy()
		}
	}
}

func isTo(job *batchv1.Job) func(corev1.ObjectReference) bool {
	return func(ref corev1.ObjectReference) bool { return ref.UID == job.UID }
}

// refer is how the status names a job. How it did before is good: a job's version changes
// often, and the status need not follow.
func refer(before []corev1.ObjectReference, job *batchv1.Job) corev1.ObjectReference {
	if i := slices.IndexFunc(before, isTo(job)); i >= 0 {
		return before[i]
	}
	return corev1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job",
		Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion,
	}
}

// clearHistory deletes the oldest of the jobs that have finished, as far as there are too
// many, and those that were run by hand like the others.
func (p *Plan) clearHistory(c *batchv1.CronJob, mine []*batchv1.Job) {
	var good, bad []*batchv1.Job
	for _, job := range mine {
		switch end := finished(job); {
		case end == nil || job.DeletionTimestamp != nil:
		case end.Type == batchv1.JobComplete:
			good = append(good, job)
		default:
			bad = append(bad, job)
		}
	}
	if limit := c.Spec.SuccessfulJobsHistoryLimit; limit != nil {
		p.Delete = append(p.Delete, good[:max(0, len(good)-int(*limit))]...)
	}
	if limit := c.Spec.FailedJobsHistoryLimit; limit != nil {
		p.Delete = append(p.Delete, bad[:max(0, len(bad)-int(*limit))]...)
	}
}

// schedule finds out whether a job is due.
func (p *Plan) schedule(c *batchv1.CronJob, mine []*batchv1.Job, now time.Time) {
	s, err := parseSchedule(c.Spec.Schedule, now.Location())
	if err != nil {
		p.tell(corev1.EventTypeWarning, "UnparseableSchedule", err.Error())
		return
	}
	if s, err = s.in(c.Spec.TimeZone); err != nil {
		p.tell(corev1.EventTypeWarning, "UnknownTimeZone", err.Error())
		return
	}
	p.Zone = s.zone
	if next := s.next(now); !next.IsZero() {
		p.Again = next.Sub(now)
	}
	begin := c.CreationTimestamp.Time
	if last := lastRun(&p.Status); !last.IsZero() {
		begin = last
	}
	due := s.latest(begin, now)
	if due.IsZero() {
		return
	}
	if deadline := c.Spec.StartingDeadlineSeconds; deadline != nil {
		if now.Sub(due) > time.Duration(*deadline)*time.Second {
			p.tell(corev1.EventTypeWarning, "MissSchedule", "Missed scheduled time to start a job: "+due.UTC().Format(time.RFC1123Z))
			return
		}
		begin = later(begin, now.Add(-time.Duration(*deadline)*time.Second))
	}
	if s.missed(begin, now) > mostMissed {
		p.tell(corev1.EventTypeWarning, "TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	p.run(c, mine, due)
}

// run runs the job of a time, unless it has been or another one is in the way.
func (p *Plan) run(c *batchv1.CronJob, mine []*batchv1.Job, due time.Time) {
	name := jobName(c, due)
	if slices.ContainsFunc(mine, func(job *batchv1.Job) bool { return job.Name == name }) {
		p.Status.LastScheduleTime = &metav1.Time{Time: due}
		return
	}
	switch c.Spec.ConcurrencyPolicy {
	case batchv1.ForbidConcurrent:
		if len(p.Status.Active) > 0 {
			p.tell(corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
			return
		}
	case batchv1.ReplaceConcurrent:
		for _, job := range mine {
			_, kept := job.Annotations[byHand]
			if finished(job) == nil && job.DeletionTimestamp == nil && !kept {
				p.Delete = append(p.Delete, job)
				p.Status.Active = slices.DeleteFunc(p.Status.Active, isTo(job))
			}
		}
	case batchv1.AllowConcurrent:
	}
	p.Create = due
}

func (p *Plan) tell(kind, reason, message string) {
	p.News = append(p.News, News{kind, reason, message})
}

// finished is the condition with which a job has finished, nil before.
func finished(job *batchv1.Job) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// begun is when the job started, or was made.
func begun(job *batchv1.Job) time.Time {
	if job.Status.StartTime != nil {
		return job.Status.StartTime.Time
	}
	return job.CreationTimestamp.Time
}

func lastRun(s *batchv1.CronJobStatus) time.Time {
	if s.LastScheduleTime == nil {
		return time.Time{}
	}
	return s.LastScheduleTime.Time
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// jobName is that of the job of a time, in minutes: a schedule has no finer ones.
func jobName(c *batchv1.CronJob, at time.Time) string {
	return fmt.Sprintf("%s-%d", c.Name, at.Unix()/60)
}

// jobOf makes the job of a time.
func jobOf(c *batchv1.CronJob, at time.Time, zone *time.Location) *batchv1.Job {
	template := c.Spec.JobTemplate.DeepCopy()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: jobName(c, at), Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, kind())},
		},
		Spec: template.Spec,
	}
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	job.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = at.In(zone).Format(time.RFC3339)
	return job
}
