package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/queue"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

func noJitter() float64 { return 0 }

func take(t *testing.T, q *queue.Queue) ownership.UID {
	t.Helper()
	uid, ok := q.Take()
	if !ok {
		t.Fatal("Take: queue is shut down")
	}
	return uid
}

func TestKeysWaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{})
		defer q.ShutDown()

		q.Add("a", "b", "a")
		if got := q.Len(); got != 2 {
			t.Fatalf("Len = %d, want 2", got)
		}
		if got := take(t, q); got != "a" {
			t.Fatalf("first = %q, want a", got)
		}
		// Added while it is with a worker: it comes back, but not before Done.
		q.Add("a", "a")
		if got := take(t, q); got != "b" {
			t.Fatalf("second = %q, want b", got)
		}
		if got := q.Len(); got != 0 {
			t.Fatalf("Len before Done = %d, want 0", got)
		}
		q.Done("a")
		if got := take(t, q); got != "a" {
			t.Fatalf("third = %q, want a", got)
		}
	})
}

func TestRetryBacksOffByKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{Jitter: noJitter})
		defer q.ShutDown()

		want := []time.Duration{5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 20480, 40960, 60000, 60000}
		for i, ms := range want {
			start := time.Now()
			q.Retry("a")
			uid := take(t, q)
			if got := time.Since(start); got != ms*time.Millisecond {
				t.Fatalf("wait %d = %v, want %v", i, got, ms*time.Millisecond)
			}
			q.Done(uid)
		}

		// Another key has its own back-off, and Forget resets it.
		q.Forget("a")
		for _, uid := range []ownership.UID{"b", "a"} {
			start := time.Now()
			q.Retry(uid)
			q.Done(take(t, q))
			if got := time.Since(start); got != 5*time.Millisecond {
				t.Errorf("wait of %s = %v, want 5ms", uid, got)
			}
		}
	})
}

func TestJitterShortensOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{Jitter: func() float64 { return 0.999 }})
		defer q.ShutDown()

		start := time.Now()
		q.Retry("a")
		q.Done(take(t, q))
		if got := time.Since(start); got < 4*time.Millisecond || got > 5*time.Millisecond {
			t.Errorf("wait = %v, want 4ms to 5ms", got)
		}
	})
}

func TestAfterLeavesBackoffAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{})
		defer q.ShutDown()

		start := time.Now()
		q.After("a", 3*time.Second)
		q.Done(take(t, q))
		if got := time.Since(start); got != 3*time.Second {
			t.Errorf("wait = %v, want 3s", got)
		}
		if got := q.Failures("a"); got != 0 {
			t.Errorf("Failures = %d, want 0", got)
		}
	})
}

func TestShutDownEndsTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{})
		q.Add("a")
		q.ShutDown()
		q.Add("b")
		if uid, ok := q.Take(); !ok || uid != "a" {
			t.Fatalf("Take = %q, %v; want what waited", uid, ok)
		}
		if uid, ok := q.Take(); ok {
			t.Fatalf("Take after shutdown = %q, want none", uid)
		}
	})
}
