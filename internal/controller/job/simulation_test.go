package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
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

// simulation is a server with one job, the view of a controller with lagging caches, and how the
// pods actually ended. The controller may crash before and after every write.
type simulation struct {
	t       *rapid.T
	choose  histories.Choose
	now     time.Time
	failing int  // percentage of pods that fail
	adverse bool // with crashes, lost responses and users

	version int
	job     *batchv1.Job
	pods    map[types.UID]*corev1.Pod
	events  []event // pod events that the cache has not seen

	cachedJob  *batchv1.Job
	cachedPods map[types.UID]*corev1.Pod
	cachedAt   cachedVersion

	podExpectations, written *controller.Expectations
	backoff                  backoffRecord

	// truth is how the pods ended that had the finalizer at that time.
	truth map[types.UID]corev1.PodPhase
	made  int
	log   []string
}

type event struct {
	pod  *corev1.Pod
	gone bool
}

// cachedVersion is the resourceVersion up to which the cache of pods is current.
type cachedVersion string

func (v *cachedVersion) LastStoreSyncResourceVersion() string { return string(*v) }

// jobCache is the cache of jobs.
type jobCache struct{ s *simulation }

func (c jobCache) LastStoreSyncResourceVersion() string { return c.s.cachedJob.ResourceVersion }

// interrupted ends a reconciliation: the controller crashes, or a request fails.
type interrupted struct{ crash bool }

func newSimulation(t *rapid.T, failing int, job *batchv1.Job) *simulation {
	s := &simulation{
		t: t, choose: histories.Choices(t), now: time.Unix(1_800_000_000, 0), failing: failing, adverse: true,
		pods: map[types.UID]*corev1.Pod{}, truth: map[types.UID]corev1.PodPhase{},
	}
	job.CreationTimestamp = metav1.NewTime(s.now)
	s.storeJob(job)
	s.restart()
	return s
}

// restart starts the controller, which knows only the state of the server.
func (s *simulation) restart() {
	s.cachedJob, s.cachedPods, s.events = s.job, maps.Clone(s.pods), nil
	s.cachedAt = cachedVersion(strconv.Itoa(s.version))
	s.podExpectations, s.written = controller.NewExpectations(&s.cachedAt), controller.NewExpectations(jobCache{s})
	s.backoff = backoffRecord{}
}

func (s *simulation) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%6d ", s.version)+fmt.Sprintf(format, args...))
}

func (s *simulation) fail(format string, args ...any) {
	s.t.Helper()
	for _, line := range s.log[max(0, len(s.log)-60):] {
		s.t.Log(line)
	}
	s.t.Fatalf(format, args...)
}

func (s *simulation) storeJob(job *batchv1.Job) {
	s.version++
	job.ResourceVersion = strconv.Itoa(s.version)
	s.job = job
}

// store writes a pod, or removes it if nothing holds it.
func (s *simulation) store(pod *corev1.Pod) {
	s.version++
	pod.ResourceVersion = strconv.Itoa(s.version)
	gone := pod.DeletionTimestamp != nil && *pod.DeletionGracePeriodSeconds == 0 && len(pod.Finalizers) == 0
	if gone {
		delete(s.pods, pod.UID)
	} else {
		s.pods[pod.UID] = pod
	}
	s.events = append(s.events, event{pod, gone})
}

// write performs a request of the controller.
func (s *simulation) write(what string, do func() bool) {
	fate := 99 - s.choose(100) // the lowest choice is the best outcome, for shrinking
	if s.adverse && fate < 3 {
		s.note("crash before %s", what)
		panic(interrupted{crash: true})
	}
	ok := do()
	s.note("%s: %t", what, ok)
	if s.adverse && fate < 6 {
		s.note("crash after %s", what)
		panic(interrupted{crash: true})
	}
	if !ok || s.adverse && fate < 9 {
		panic(interrupted{}) // a conflict, or a lost response
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
	job := s.cachedJob
	if finished(job) != nil || !s.podExpectations.Satisfied(job.UID) || !s.written.Satisfied(job.UID) {
		return
	}
	seen := Observed{Mine: slices.Collect(maps.Values(s.cachedPods)), Backoff: s.backoff}
	ending := map[types.UID]bool{}
	for uid, pod := range s.cachedPods {
		ending[uid] = pod.DeletionTimestamp != nil
	}
	seen.Leaving = s.podExpectations.PendingDeletions(job.UID, ending)
	plan := Decide(job, seen, s.now)
	s.backoff = plan.Backoff
	if !equality.Semantic.DeepEqual(plan.Status, job.Status) {
		s.write("status "+text(plan.Status), func() bool { return s.writeStatus(job, plan.Status) })
	}
	for _, pod := range plan.Untrack {
		s.write("untrack "+pod.Name, func() bool { s.removeFinalizer(pod, ""); return true })
	}
	for _, pod := range plan.Discard {
		at := pod.ResourceVersion
		if isTracked(pod) {
			s.write("remove the finalizer of "+pod.Name, func() bool { return s.removeFinalizer(pod, at) })
			at = ""
			if now := s.pods[pod.UID]; now != nil {
				at = now.ResourceVersion
			}
		}
		s.write("discard "+pod.Name, func() bool { return s.remove(pod.UID, at) })
		s.podExpectations.ExpectDeletion(job.UID, pod.UID)
	}
	for _, pod := range plan.Delete {
		s.write("delete "+pod.Name, func() bool { return s.remove(pod.UID, pod.ResourceVersion) })
		s.podExpectations.ExpectDeletion(job.UID, pod.UID)
	}
	for _, of := range plan.Create {
		s.create(job, of)
	}
}

func (s *simulation) writeStatus(seen *batchv1.Job, status batchv1.JobStatus) bool {
	if s.job.ResourceVersion != seen.ResourceVersion {
		return false
	}
	s.checkStatus(&s.job.Status, &status)
	changed := s.job.DeepCopy()
	changed.Status = status
	s.storeJob(changed)
	s.written.ExpectVersion(changed.UID, changed.ResourceVersion)
	return true
}

func (s *simulation) removeFinalizer(pod *corev1.Pod, at string) bool {
	now := s.pods[pod.UID]
	if now == nil {
		return true
	}
	if at != "" && now.ResourceVersion != at {
		return false
	}
	if !isTracked(now) {
		return true
	}
	changed := now.DeepCopy()
	changed.Finalizers = nil
	s.store(changed)
	return true
}

func (s *simulation) remove(uid types.UID, at string) bool {
	now := s.pods[uid]
	if now == nil {
		return true
	}
	if at != "" && now.ResourceVersion != at {
		return false
	}
	s.markDeleted(now)
	return true
}

func (s *simulation) markDeleted(pod *corev1.Pod) {
	changed := pod.DeepCopy()
	grace := int64(0)
	if pod.Spec.NodeName != "" && !ended(pod) {
		grace = 30
	}
	if changed.DeletionTimestamp == nil {
		changed.DeletionTimestamp, changed.DeletionGracePeriodSeconds = &metav1.Time{Time: s.now.Add(time.Duration(grace) * time.Second)}, &grace
		if !ended(pod) && isTracked(pod) {
			s.truth[pod.UID] = corev1.PodFailed // that is how the node ends it, if there is one
		}
		s.store(changed)
	}
}

func (s *simulation) create(job *batchv1.Job, of newPod) {
	pod := podOf(job, of)
	s.made++
	pod.Name = pod.GenerateName + strconv.Itoa(s.made)
	pod.UID, pod.CreationTimestamp = types.UID(pod.Name), metav1.NewTime(s.now)
	pod.Status.Phase = corev1.PodPending
	defer s.podExpectations.ExpectVersion(job.UID, strconv.Itoa(s.version+1)) // even if the response is lost: the controller checks
	s.write("create "+pod.Name, func() bool { s.store(pod); return true })
	running, indexes := 0, map[int]int{}
	for _, p := range s.pods {
		occupies := !ended(p) && (p.DeletionTimestamp == nil || replacesWhenEnded(&job.Spec) && p.Spec.NodeName != "")
		if occupies {
			running++
			indexes[indexOf(p)]++
		}
	}
	if running > parallelism(job) {
		s.fail("%d pods run, of at most %d", running, parallelism(job))
	}
	if isIndexed(job) && indexes[of.Index] > 1 {
		s.fail("%d pods run of index %d", indexes[of.Index], of.Index)
	}
	if job.Spec.Completions != nil && !isIndexed(job) {
		if n := s.ended(corev1.PodSucceeded) + running; n > int(*job.Spec.Completions) && !replacesWhenEnded(&job.Spec) {
			s.fail("%d pods have succeeded or may, of %d that have to", n, *job.Spec.Completions)
		}
	}
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// end makes a pod end as its node reports it.
func (s *simulation) end(pod *corev1.Pod, as corev1.PodPhase) {
	if isTracked(pod) {
		if _, known := s.truth[pod.UID]; !known {
			s.truth[pod.UID] = as
		}
	}
	pod.Status.Phase = as
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: map[corev1.PodPhase]int32{corev1.PodFailed: 1}[as], FinishedAt: metav1.NewTime(s.now),
	}}}}
}

func (s *simulation) ended(as corev1.PodPhase) int {
	n := 0
	for _, phase := range s.truth {
		if phase == as {
			n++
		}
	}
	return n
}

// anyPod returns one of the pods that match, or nil.
func (s *simulation) anyPod(match func(*corev1.Pod) bool) *corev1.Pod {
	var list []*corev1.Pod
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		if match(s.pods[uid]) {
			list = append(list, s.pods[uid])
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[s.choose(len(list))].DeepCopy()
}

// node acts as the node of a pod.
func (s *simulation) node() {
	pod := s.anyPod(func(p *corev1.Pod) bool { return !ended(p) || p.DeletionTimestamp != nil })
	switch {
	case pod == nil:
		return
	case pod.DeletionTimestamp != nil:
		if !ended(pod) && pod.Spec.NodeName != "" {
			s.end(pod, corev1.PodFailed)
		}
		zero := int64(0)
		pod.DeletionGracePeriodSeconds = &zero
	case pod.Spec.NodeName == "":
		pod.Spec.NodeName, pod.Status.Phase = "n", corev1.PodRunning
	case s.choose(100) >= 100-s.failing:
		s.end(pod, corev1.PodFailed)
	default:
		s.end(pod, corev1.PodSucceeded)
	}
	s.note("node: %s %s, deleted %t", pod.Name, pod.Status.Phase, pod.DeletionTimestamp != nil)
	s.store(pod)
}

// catchUp lets the caches advance.
func (s *simulation) catchUp(n int) {
	for _, e := range s.events[:min(n, len(s.events))] {
		s.cachedAt = cachedVersion(e.pod.ResourceVersion)
		if e.gone {
			delete(s.cachedPods, e.pod.UID)
		} else {
			s.cachedPods[e.pod.UID] = e.pod
		}
	}
	s.events = s.events[min(n, len(s.events)):]
}

func (s *simulation) user(change func(*batchv1.Job)) {
	changed := s.job.DeepCopy()
	change(changed)
	if finished(s.job) == nil {
		s.note("user: suspended %t, parallelism %d", isSuspended(changed), parallelism(changed))
		s.storeJob(changed)
	}
}

// actions returns what can happen, each a few seconds after the previous one.
func (s *simulation) actions() map[string]func(*rapid.T) {
	later := func(do func()) func(*rapid.T) {
		return func(*rapid.T) {
			s.now = s.now.Add(time.Duration(s.choose(20)) * time.Second)
			do()
		}
	}
	return histories.Actions(func(*rapid.T) {}, map[string]histories.Action{
		"controller": {Weight: 16, Do: later(s.reconcile)},
		"node":       {Weight: 12, Do: later(s.node)},
		"pod cache":  {Weight: 8, Do: later(func() { s.catchUp(s.choose(6)) })},
		"job cache":  {Weight: 4, Do: later(func() { s.cachedJob = s.job })},
		"user deletes a pod": {Weight: 1, Do: later(func() {
			if pod := s.anyPod(func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil }); pod != nil {
				s.note("user: delete %s", pod.Name)
				s.markDeleted(pod)
			}
		})},
		"user changes the job": {Weight: 1, Do: later(func() {
			switch s.choose(2) {
			case 0:
				s.user(func(j *batchv1.Job) { j.Spec.Suspend = new(!isSuspended(j)) })
			case 1:
				s.user(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(s.choose(6))) })
			}
		})},
	})
}
