package queue

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// A queue that forgets has, whenever it is opened, only the keys that were added since.
func TestForgettingQueueIsOpenedEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewForgetting(Config{})
		q.Add("early")
		for range 2 {
			q.Open()
			q.Add("now")
			if uid, _ := q.Take(); uid != "now" || q.Busy() != 1 {
				t.Errorf("took %q, and %d keys are busy", uid, q.Busy())
			}
			q.Done("now")
			q.Add("left")
			q.After("hour", time.Hour)
			q.ShutDown()
			q.Add("added")
			q.Retry("retried")
			time.Sleep(2 * time.Hour)
		}
		if uid, ok := q.Take(); uid != "left" || !ok {
			t.Errorf("took %q (%t), want the key that waited when the queue was shut down", uid, ok)
		}
		q.Done("left")
		if n := q.Busy(); n != 0 {
			t.Errorf("%d keys are busy", n)
		}
	})
}

// A queue that is opened again has its earlier keys, and the keys added meanwhile, each once.
func TestReopenedQueueHasEachKeyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewReopening(Config{})
		if _, ok := q.Take(); ok {
			t.Error("a key comes out of a queue that was never opened")
		}
		q.Add("early")
		q.Open()
		take := func(want ...ownership.UID) {
			t.Helper()
			var got []ownership.UID
			for range want {
				uid, ok := q.Take()
				if !ok {
					t.Fatalf("the queue has ended, want %v", want)
				}
				q.Done(uid)
				got = append(got, uid)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("took %v, want %v", got, want)
			}
		}
		take("early")
		q.Add("left", "once")
		q.After("hour", time.Hour)
		if n := q.Delayed(); n != 1 {
			t.Errorf("%d keys are delayed, want 1", n)
		}
		q.ShutDown()
		q.Add("added", "once")
		q.Retry("retried")
		q.After("after", time.Hour)
		q.Forget("retried")
		if n := q.Busy(); n != 6 {
			t.Errorf("%d keys are busy or kept, want 2 and 4", n)
		}
		q.Open()
		take("added", "after", "hour", "left", "once", "retried")
		if n := q.Busy(); n != 0 {
			t.Errorf("%d keys are busy", n)
		}
		q.After("later", time.Minute)
		began := time.Now()
		take("later")
		if d := time.Since(began); d != time.Minute {
			t.Errorf("a key that was added after a minute came after %v", d)
		}
		q.ShutDown()
		if _, ok := q.Take(); ok {
			t.Error("a key comes out of a queue that is shut down and empty")
		}
		// The bubble fails the test when a goroutine is left.
	})
}
