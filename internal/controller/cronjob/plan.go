// Package cronjob creates jobs on a schedule.
//
//	schedule, the last run, now ──▶ schedule.go: the latest time that is due
//	existing jobs ──▶ plan.go: the running jobs, the jobs to delete, the job to create
//
// No scheduled time runs twice (R27): the job for a time has a fixed name, and the status
// records its creation. The controller reads a job live before it treats it as missing. A job is
// created again only if another client deletes it between its creation and the write of the
// status, and the controller stops in between.
//
// Of the missed times only the latest runs, however many there are.
package cronjob

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// instantiateAnnotation marks jobs that were created by kubectl create job --from.
const instantiateAnnotation = "cronjob.kubernetes.io/instantiate"

// Plan is the result of Decide. The status is written first, so that no job is deleted before
// its run is recorded, and again with the created job.
type Plan struct {
	// Outdated are finished jobs beyond the history limits; whether they can be deleted does not matter to the next run.
	Outdated []*batchv1.Job
	// Replaced are running jobs that must be deleted before Create.
	Replaced []*batchv1.Job
	// Create is the scheduled time of the job to create; zero means none.
	Create time.Time
	// Zone is the time zone in which that time is formatted.
	Zone *time.Location
	// Status does not include the job to create.
	Status batchv1.CronJobStatus
	Events []Event
	// RequeueAfter is the time until the next job is due; 0 means never.
	RequeueAfter time.Duration
}

// Event is an event to record on the CronJob.
type Event struct{ Type, Reason, Message string }

// Observed is the observed state of a CronJob's jobs.
type Observed struct {
	// Mine are the jobs that the CronJob controls.
	Mine []*batchv1.Job
	// Ran is the last scheduled time for which this process created a job; zero means none.
	Ran time.Time
}

// Decide plans the next step for a CronJob. A schedule without a time zone is in the time zone
// of now.
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
	p.cleanUpFinished(c, mine)
	if c.Spec.Suspend == nil || !*c.Spec.Suspend {
		p.schedule(c, mine, now)
	}
	return p
}

// observe writes the running jobs and the time of the last success into the status.
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
			p.event(corev1.EventTypeNormal, "SawCompletedJob", fmt.Sprintf("Saw completed job: %s, condition: %v", job.Name, end.Type))
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

// refer returns the reference to a job in the status. It keeps an existing reference: the
// resourceVersion of a job changes often, and the status need not follow.
func refer(before []corev1.ObjectReference, job *batchv1.Job) corev1.ObjectReference {
	if i := slices.IndexFunc(before, isTo(job)); i >= 0 {
		return before[i]
	}
	return corev1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job",
		Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion,
	}
}

// cleanUpFinished deletes the oldest of the finished jobs beyond the history limits. Jobs that
// were created by hand count like the others.
func (p *Plan) cleanUpFinished(c *batchv1.CronJob, mine []*batchv1.Job) {
	var complete, failed []*batchv1.Job
	for _, job := range mine {
		switch end := finished(job); {
		case end == nil || job.DeletionTimestamp != nil:
		case end.Type == batchv1.JobComplete:
			complete = append(complete, job)
		default:
			failed = append(failed, job)
		}
	}
	if limit := c.Spec.SuccessfulJobsHistoryLimit; limit != nil {
		p.Outdated = append(p.Outdated, complete[:max(0, len(complete)-int(*limit))]...)
	}
	if limit := c.Spec.FailedJobsHistoryLimit; limit != nil {
		p.Outdated = append(p.Outdated, failed[:max(0, len(failed)-int(*limit))]...)
	}
}

func (p *Plan) schedule(c *batchv1.CronJob, mine []*batchv1.Job, now time.Time) {
	s, err := parseSchedule(c.Spec.Schedule, now.Location())
	if err != nil {
		p.event(corev1.EventTypeWarning, "UnparseableSchedule", err.Error())
		return
	}
	if s, err = s.in(c.Spec.TimeZone); err != nil {
		p.event(corev1.EventTypeWarning, "UnknownTimeZone", err.Error())
		return
	}
	p.Zone = s.zone
	if next := s.next(now); !next.IsZero() {
		p.RequeueAfter = next.Sub(now)
	}
	begin := c.CreationTimestamp.Time
	if last := lastRun(&p.Status); !last.IsZero() {
		begin = last
	}
	begin = later(begin, now.AddDate(-longestLookBack, 0, 0))
	due := s.latest(begin, now)
	if due.IsZero() {
		return
	}
	if deadline := c.Spec.StartingDeadlineSeconds; deadline != nil {
		if now.Sub(due) > pods.Seconds(*deadline) {
			p.event(corev1.EventTypeWarning, "MissSchedule", "Missed scheduled time to start a job: "+due.UTC().Format(time.RFC1123Z))
			return
		}
		begin = later(begin, now.Add(-pods.Seconds(*deadline)))
	}
	if s.missed(begin, now) > maxMissed {
		p.event(corev1.EventTypeWarning, "TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	p.run(c, mine, due)
}

// run plans the job for a scheduled time, unless it exists or the concurrency policy forbids it.
func (p *Plan) run(c *batchv1.CronJob, mine []*batchv1.Job, due time.Time) {
	name := jobName(c, due)
	if slices.ContainsFunc(mine, func(job *batchv1.Job) bool { return job.Name == name }) {
		p.Status.LastScheduleTime = &metav1.Time{Time: due}
		return
	}
	switch c.Spec.ConcurrencyPolicy {
	case batchv1.ForbidConcurrent:
		if len(p.Status.Active) > 0 {
			p.event(corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
			return
		}
	case batchv1.ReplaceConcurrent:
		for _, job := range mine {
			_, kept := job.Annotations[instantiateAnnotation]
			if finished(job) == nil && job.DeletionTimestamp == nil && !kept {
				p.Replaced = append(p.Replaced, job)
				p.Status.Active = slices.DeleteFunc(p.Status.Active, isTo(job))
			}
		}
	case batchv1.AllowConcurrent:
	}
	p.Create = due
}

func (p *Plan) event(kind, reason, message string) {
	p.Events = append(p.Events, Event{kind, reason, message})
}

// finished returns the condition with which a job finished, or nil if it has not.
func finished(job *batchv1.Job) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// begun returns the time when the job started or, before that, was created.
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

// jobName returns the name of the job for a scheduled time, which contains the time in minutes:
// schedules are no finer.
func jobName(c *batchv1.CronJob, at time.Time) string {
	return fmt.Sprintf("%s-%d", c.Name, at.Unix()/60)
}

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
