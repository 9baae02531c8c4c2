package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/queue"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// byPrefix makes the part of a key before the dash its tenant.
func byPrefix(uid ownership.UID) string {
	tenant, _, _ := strings.Cut(string(uid), "-")
	return tenant
}

func takeAll(t *testing.T, q *queue.Queue) string {
	t.Helper()
	var order []string
	for q.Len() > 0 {
		uid := take(t, q)
		q.Done(uid)
		order = append(order, string(uid))
	}
	return strings.Join(order, " ")
}

func TestTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{Tenant: byPrefix})
		defer q.ShutDown()
		q.Add("a-1", "a-2", "a-3", "b-1", "c-1", "c-2")
		if got, want := takeAll(t, q), "a-1 b-1 c-1 a-2 c-2 a-3"; got != want {
			t.Errorf("order: %s, want %s", got, want)
		}
	})
}

// TestBystanderIsServedNext has a tenant with 10 000 keys, and another that comes late.
func TestBystanderIsServedNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{Tenant: byPrefix})
		defer q.ShutDown()
		for i := range 10_000 {
			q.Add(ownership.UID(fmt.Sprintf("hostile-%d", i)))
		}
		q.Add("other-1", "other-2")
		for i := 1; ; i++ {
			uid := take(t, q)
			q.Done(uid)
			if uid == "other-2" {
				if i > 4 {
					t.Errorf("the second key of the other tenant was taken as number %d", i)
				}
				return
			}
		}
	})
}

func TestKeysOfOneTenantKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{})
		defer q.ShutDown()
		q.Add("a-1", "b-1", "a-2")
		if got, want := takeAll(t, q), "a-1 b-1 a-2"; got != want {
			t.Errorf("order: %s, want %s", got, want)
		}
	})
}

// Keys that are being worked on, or delayed, do not wait.
func TestWaitingOfATenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{Tenant: byPrefix})
		defer q.ShutDown()
		q.Add("a-1", "a-2", "b-1", "a-1")
		q.After("a-3", time.Second)
		if a, b, c := q.Waiting("a"), q.Waiting("b"), q.Waiting("c"); a != 2 || b != 1 || c != 0 {
			t.Errorf("%d, %d, %d wait", a, b, c)
		}
		q.Done(take(t, q))
		if got := q.Waiting("a"); got != 1 {
			t.Errorf("%d wait", got)
		}
	})
}

func TestOldestIsTheAgeOfTheLongestWaitingKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{Tenant: byPrefix})
		defer q.ShutDown()
		if got := q.Oldest(); got != 0 {
			t.Errorf("an empty queue's oldest key waits for %s", got)
		}
		q.Add("a-1")
		time.Sleep(3 * time.Second)
		q.Add("a-2", "b-1")
		time.Sleep(time.Second)
		if got := q.Oldest(); got != 4*time.Second {
			t.Errorf("oldest: %s, want 4s", got)
		}
		q.Done(take(t, q))
		if got := q.Oldest(); got != time.Second {
			t.Errorf("oldest: %s, want 1s", got)
		}
	})
}
