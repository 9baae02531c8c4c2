package deletion

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// longestGrace is the longest grace period, in seconds, that a time.Duration can hold: 292 years.
const longestGrace = math.MaxInt64 / int64(time.Second)

// firstGrace returns the grace period, in seconds, of the DELETE that begins a deletion, and
// whether the object is deleted gracefully at all.
func (r request) firstGrace() (grace int64, graceful bool) {
	if r.strategy.Grace == nil {
		return 0, false
	}
	grace, graceful = r.strategy.Grace(r.obj, r.requestedGrace())
	if !graceful {
		return 0, false
	}
	return normalGrace(grace), true
}

// laterGrace returns the grace period, and the time of its end, after a DELETE of an object that
// is already being deleted. Both only ever shrink (R17, R19).
func (r request) laterGrace() (grace int64, end metav1.Time) {
	grace, end = r.storedGrace(), *r.object.GetDeletionTimestamp()
	if grace == 0 {
		return 0, earlier(end, r.now)
	}
	requested := r.requestedGrace()
	if requested == nil || *requested >= grace {
		return grace, end
	}
	begin := end.Add(-seconds(grace))
	grace = *requested
	sooner := begin.Add(seconds(grace))
	if sooner.Before(r.now) {
		// The shorter period is over already. The end is not put into the past, and
		// a graceful deletion stays one: the kubelet still has to confirm by a
		// DELETE with grace 0 that the object has stopped (AS-15).
		sooner = r.now
		grace = min(grace, 1)
	}
	return grace, earlier(end, sooner)
}

// storedGrace returns the grace that the object still waits for, in seconds. It is 0 for a kind
// that is not deleted gracefully: no kubelet would end the wait.
func (r request) storedGrace() int64 {
	stored := r.object.GetDeletionGracePeriodSeconds()
	if stored == nil || r.strategy.Grace == nil {
		return 0
	}
	return normalGrace(*stored)
}

// requestedGrace returns the grace period of the options; nil if they have none.
func (r request) requestedGrace() *int64 {
	if r.options.GracePeriodSeconds == nil {
		return nil
	}
	grace := normalGrace(*r.options.GracePeriodSeconds)
	return &grace
}

// normalGrace makes a grace period representable. A negative one means the shortest graceful
// deletion, 1 s: a mistake must not skip the grace (AS-15).
func normalGrace(grace int64) int64 {
	if grace < 0 {
		return 1
	}
	return min(grace, longestGrace)
}

// earlier returns the earlier of two times, so that the end of a deletion never moves later
// (R19).
func earlier(end metav1.Time, than time.Time) metav1.Time {
	if than.Before(end.Time) {
		return metav1.NewTime(than)
	}
	return end
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
