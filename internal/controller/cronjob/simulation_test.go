package cronjob

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/testing/histories"
)

// simulation is a server with one CronJob and its jobs, and a controller with lagging caches
// that may crash before and after every write.
type simulation struct {
	t       *rapid.T
	choose  histories.Choose
	now     time.Time
	adverse bool // with crashes and lost responses

	version int
	cron    *batchv1.CronJob
	jobs    map[string]*batchv1.Job
	events  []event

	cachedCron *batchv1.CronJob
	cachedJobs map[string]*batchv1.Job
	cachedAt   cachedVersion

	made, written *controller.Expectations
	ran           time.Time

	runs map[string]int // how often the job for each time was created
	log  []string
}

type event struct {
	job  *batchv1.Job
	gone bool
}

// cachedVersion is the resourceVersion up to which the cache of jobs is current.
type cachedVersion string

func (v *cachedVersion) LastStoreSyncResourceVersion() string { return string(*v) }

// cronCache is the cache of CronJobs.
type cronCache struct{ s *simulation }

func (c cronCache) LastStoreSyncResourceVersion() string { return c.s.cachedCron.ResourceVersion }

// interrupted ends a reconciliation: the controller crashes, or a request fails.
type interrupted struct{ crash bool }

func newSimulation(t *rapid.T, policy batchv1.ConcurrencyPolicy) *simulation {
	s := &simulation{t: t, choose: histories.Choices(t), now: at(t, noon), adverse: true, jobs: map[string]*batchv1.Job{}, runs: map[string]int{}}
	s.storeCron(&batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c", CreationTimestamp: metav1.NewTime(s.now)},
		Spec: batchv1.CronJobSpec{
			Schedule: "*/30 * * * *", ConcurrencyPolicy: policy,
			SuccessfulJobsHistoryLimit: new(int32(s.choose(2))), FailedJobsHistoryLimit: new(int32(s.choose(2))),
		},
	})
	s.restart()
	return s
}

func (s *simulation) restart() {
	s.cachedCron, s.cachedJobs, s.events = s.cron, maps.Clone(s.jobs), nil
	s.cachedAt = cachedVersion(strconv.Itoa(s.version))
	s.made, s.written, s.ran = controller.NewExpectations(&s.cachedAt), controller.NewExpectations(cronCache{s}), time.Time{}
}

func (s *simulation) note(format string, args ...any) {
	s.log = append(s.log, s.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (s *simulation) fail(format string, args ...any) {
	s.t.Helper()
	for _, line := range s.log[max(0, len(s.log)-40):] {
		s.t.Log(line)
	}
	s.t.Fatalf(format, args...)
}

func (s *simulation) store(job *batchv1.Job, gone bool) {
	s.version++
	job.ResourceVersion = strconv.Itoa(s.version)
	s.jobs[job.Name] = job
	if gone {
		delete(s.jobs, job.Name)
	}
	s.events = append(s.events, event{job, gone})
}

func (s *simulation) storeCron(cron *batchv1.CronJob) {
	s.version++
	cron.ResourceVersion = strconv.Itoa(s.version)
	s.cron = cron
}

// write performs a request of the controller.
func (s *simulation) write(what string, do func() bool) {
	fate := 99 - s.choose(100) // the lowest choice is the best outcome, for shrinking
	if s.adverse && fate < 6 {
		s.note("crash before %s", what)
		panic(interrupted{crash: true})
	}
	ok := do()
	s.note("%s: %t", what, ok)
	if s.adverse && fate < 12 {
		s.note("crash after %s", what)
		panic(interrupted{crash: true})
	}
	if !ok || s.adverse && fate < 18 {
		panic(interrupted{})
	}
}

// reconcile reconciles once, as the controller does.
func (s *simulation) reconcile() {
	defer func() {
		if r := recover(); r != nil {
			end, ok := r.(interrupted)
			if !ok {
				panic(r)
			}
			if end.crash {
				s.restart()
			}
		}
	}()
	cron := s.cachedCron
	if !s.written.Satisfied(cron.UID) || !s.made.Satisfied(cron.UID) {
		return
	}
	plan := Decide(cron, Observed{Mine: slices.Collect(maps.Values(s.cachedJobs)), Ran: s.ran}, s.now)
	cron = s.record(cron, plan.Status)
	for _, job := range slices.Concat(plan.Outdated, plan.Replaced) {
		s.write("delete "+job.Name, func() bool { return s.remove(job) })
	}
	if !plan.Create.IsZero() {
		job := jobOf(cron, plan.Create, plan.Zone)
		s.createAndLook(cron, job)
		s.ran = plan.Create
		plan.Status.LastScheduleTime = &metav1.Time{Time: plan.Create}
		plan.Status.Active = append(plan.Status.Active, refer(nil, s.jobs[job.Name]))
	}
	s.record(cron, plan.Status)
}

func (s *simulation) record(cron *batchv1.CronJob, status batchv1.CronJobStatus) *batchv1.CronJob {
	if equality.Semantic.DeepEqual(status, cron.Status) {
		return cron
	}
	s.write("status", func() bool { return s.writeStatus(cron, status) })
	return s.cron
}

// createAndLook finds out whether the job was created even if the response is lost.
func (s *simulation) createAndLook(cron *batchv1.CronJob, job *batchv1.Job) {
	defer func() {
		if there := s.jobs[job.Name]; there != nil {
			s.made.ExpectVersion(cron.UID, there.ResourceVersion)
		}
	}()
	s.write("create "+job.Name, func() bool { s.create(job); return true })
}

// create does nothing for a job that exists.
func (s *simulation) create(job *batchv1.Job) {
	if s.jobs[job.Name] != nil {
		return
	}
	if s.runs[job.Name]++; s.runs[job.Name] > 1 {
		s.fail("%s runs twice", job.Name)
	}
	if s.cron.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && s.running() > 0 {
		s.fail("%s runs while another one does", job.Name)
	}
	if !slices.Contains([]int{0, 30}, scheduledTime(s.t, job).Minute()) {
		s.fail("%s is not due", job.Name)
	}
	job.UID, job.CreationTimestamp = types.UID(fmt.Sprint(job.Name, "/", s.version)), metav1.NewTime(s.now)
	s.store(job, false)
}

func scheduledTime(t rapid.TB, job *batchv1.Job) time.Time {
	return at(t, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
}

func (s *simulation) running() int {
	n := 0
	for _, job := range s.jobs {
		if finished(job) == nil {
			n++
		}
	}
	return n
}

func (s *simulation) remove(seen *batchv1.Job) bool {
	now := s.jobs[seen.Name]
	if now != nil && now.ResourceVersion != seen.ResourceVersion {
		return false
	}
	if now != nil {
		s.store(now.DeepCopy(), true)
	}
	return true
}

func (s *simulation) writeStatus(seen *batchv1.CronJob, status batchv1.CronJobStatus) bool {
	if seen.ResourceVersion != s.cron.ResourceVersion {
		return false
	}
	if lastRun(&status).Before(lastRun(&s.cron.Status)) {
		s.fail("the last run goes back")
	}
	changed := s.cron.DeepCopy()
	changed.Status = status
	s.storeCron(changed)
	s.written.ExpectVersion(changed.UID, changed.ResourceVersion)
	return true
}

// finish ends a running job.
func (s *simulation) finish() {
	for _, name := range slices.Sorted(maps.Keys(s.jobs)) {
		if finished(s.jobs[name]) == nil {
			changed := s.jobs[name].DeepCopy()
			end := batchv1.JobComplete
			if s.choose(3) == 2 {
				end = batchv1.JobFailed
			}
			changed.Status.Conditions = []batchv1.JobCondition{{Type: end, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.now)}}
			changed.Status.CompletionTime = &metav1.Time{Time: s.now}
			s.note("%s ends", name)
			s.store(changed, false)
			return
		}
	}
}

// forget deletes a finished job, as any user may, once its run is recorded.
func (s *simulation) forget() {
	for _, name := range slices.Sorted(maps.Keys(s.jobs)) {
		if job := s.jobs[name]; finished(job) != nil && !scheduledTime(s.t, job).After(lastRun(&s.cron.Status)) {
			s.note("%s is removed", name)
			s.store(job.DeepCopy(), true)
			return
		}
	}
}

func (s *simulation) catchUp(n int) {
	for _, e := range s.events[:min(n, len(s.events))] {
		s.cachedAt = cachedVersion(e.job.ResourceVersion)
		s.cachedJobs[e.job.Name] = e.job
		if e.gone {
			delete(s.cachedJobs, e.job.Name)
		}
	}
	s.events = s.events[min(n, len(s.events)):]
}

// actions returns what can happen.
func (s *simulation) actions() map[string]func(*rapid.T) {
	action := func(weight int, do func()) histories.Action {
		return histories.Action{Weight: weight, Do: func(*rapid.T) { do() }}
	}
	return histories.Actions(func(*rapid.T) {}, map[string]histories.Action{
		"controller":      action(4, s.reconcile),
		"time":            action(2, func() { s.now = s.now.Add(time.Duration(s.choose(25*60)) * time.Second) }),
		"job ends":        action(1, s.finish),
		"job is removed":  action(1, s.forget),
		"job cache":       action(2, func() { s.catchUp(s.choose(4)) }),
		"cron job cache":  action(1, func() { s.cachedCron = s.cron }),
		"another's write": action(1, func() { s.storeCron(s.cron.DeepCopy()) }),
	})
}

func TestR27_SimulatedCronJobs(t *testing.T) {
	for _, policy := range []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent} {
		t.Run(string(policy), func(t *testing.T) {
			histories.Check(t, 100, 200, func(t *rapid.T) {
				s := newSimulation(t, policy)
				t.Repeat(s.actions())
				s.settle()
			})
		})
	}
}

// settle lets all jobs end, and checks that the latest time has run and nothing is active.
func (s *simulation) settle() {
	s.adverse = false
	for range 40 {
		s.finish()
		s.cachedCron = s.cron
		s.catchUp(len(s.events))
		s.reconcile()
	}
	due := s.now.Truncate(30 * time.Minute)
	if due.After(s.cron.CreationTimestamp.Time) && !lastRun(&s.cron.Status).Equal(due) {
		s.fail("the last run was %v, not %v", lastRun(&s.cron.Status), due)
	}
	if n := len(s.cron.Status.Active); n > 0 {
		s.fail("%d jobs are active", n)
	}
	good, bad := 0, 0
	for _, job := range s.jobs {
		if finished(job).Type == batchv1.JobComplete {
			good++
		} else {
			bad++
		}
	}
	if spec := s.cron.Spec; good > int(*spec.SuccessfulJobsHistoryLimit) || bad > int(*spec.FailedJobsHistoryLimit) {
		s.fail("%d and %d finished jobs are kept", good, bad)
	}
}
