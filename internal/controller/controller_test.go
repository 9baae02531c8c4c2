package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// No expectations are kept for an owner that is gone, even if the watch missed its deletion.
func TestExpectationsOfOwnersThatAreGone(t *testing.T) {
	owner := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "1"}}
	for name, gone := range map[string]any{
		"seen":   owner,
		"missed": cache.DeletedFinalStateUnknown{Key: "team/web", Obj: owner},
	} {
		t.Run(name, func(t *testing.T) {
			expectations := NewExpectations(new(fakeCache))
			expectations.ExpectDeletion("1", "a")
			expectations.ExpectDeletion("2", "b")
			var keys []cache.ObjectName
			For(nil, expectations).handler(func(key cache.ObjectName) { keys = append(keys, key) }).OnDelete(gone)
			if len(expectations.owners) != 1 || expectations.owners["2"] == nil {
				t.Errorf("%v, want what is about the other owner", expectations.owners)
			}
			if len(keys) != 1 || keys[0].String() != "team/web" {
				t.Errorf("%v, want that the owner is reconciled", keys)
			}
		})
	}
}

// After a relist an owner that took the name of another has one event, a change.
func TestExpectationsOfAReplacedOwner(t *testing.T) {
	before := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "1"}}
	for uid, left := range map[types.UID]int{"1": 1, "2": 0} {
		expectations := NewExpectations(new(fakeCache))
		expectations.ExpectDeletion("1", "a")
		now := before.DeepCopy()
		now.UID = uid
		source := For(nil, expectations)
		source.Ignore = func(any, any) bool { return true }
		source.handler(func(cache.ObjectName) {}).OnUpdate(before, now)
		if n := len(expectations.owners); n != left {
			t.Errorf("the uid is then %s: expectations of %d owners, want %d", uid, n, left)
		}
	}
}

func TestMatchingOwners(t *testing.T) {
	sets := []*corev1.ReplicationController{
		{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "web"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "db"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "all"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "unreadable"}, Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "no label!"}}},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	got := MatchingOwners(pod, sets, func(rc *corev1.ReplicationController) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: rc.Spec.Selector}
	})
	if len(got) != 1 || got[0].Name != "web" {
		t.Errorf("%v, want web alone", got)
	}
}

// Errors that a lagging cache explains are logged at debug level; all others are warnings, panics among them.
func TestLogLevelOfErrors(t *testing.T) {
	pods := corev1.Resource("pods")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"conflict":       {apierrors.NewConflict(pods, "web", errors.New("changed")), "level=DEBUG"},
		"not found":      {apierrors.NewNotFound(pods, "web"), "level=DEBUG"},
		"already exists": {fmt.Errorf("create: %w", apierrors.NewAlreadyExists(pods, "web")), "level=DEBUG"},
		"forbidden":      {apierrors.NewForbidden(pods, "web", nil), "level=WARN"},
		"two conflicts":  {errors.Join(apierrors.NewConflict(pods, "a", nil), apierrors.NewNotFound(pods, "b")), "level=DEBUG"},
		"a conflict that comes before another error": {
			fmt.Errorf("delete: %w", errors.Join(apierrors.NewConflict(pods, "a", nil), apierrors.NewForbidden(pods, "b", nil))), "level=WARN",
		},
		"no answer": {errors.New("connection reset"), "level=WARN"},
		"a panic":   {nil, "panic: no such index"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged bytes.Buffer
				log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
				queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, lastRetry))
				calls := 0
				controller := &Controller{Name: "test", Reconcile: func(context.Context, cache.ObjectName) (time.Duration, error) {
					if calls++; calls == 2 {
						queue.ShutDown()
						return 0, nil
					}
					if c.err == nil {
						panic("no such index")
					}
					return 0, c.err
				}}
				queue.Add(cache.ObjectName{Namespace: "ns", Name: "web"})
				controller.work(t.Context(), log, pace.NewFailures(log, clock.RealClock{}), queue)
				if got := logged.String(); calls != 2 || strings.Count(got, "\n") != 1 || !strings.Contains(got, c.want) || !strings.Contains(got, "object=ns/web") {
					t.Errorf("%d calls, logged %q; want a retry and one line with %s", calls, got, c.want)
				}
			})
		})
	}
}

// A request is carried out after its time, together with others for the object.
func TestRequestsForOneObjectAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, requests, done := time.Now(), make(chan Request), make(chan error)
		var reconciled []string
		controller := &Controller{
			Name: "test", Workers: 1, Requests: requests,
			Reconcile: func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
				reconciled = append(reconciled, fmt.Sprintf("%s after %s", key.Name, time.Since(began)))
				return 0, nil
			},
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() { done <- controller.Run(ctx, slog.New(slog.DiscardHandler), clock.RealClock{}) }()
		for _, r := range []Request{
			{cache.ObjectName{Name: "later"}, time.Second}, {cache.ObjectName{Name: "soon"}, time.Millisecond}, {cache.ObjectName{Name: "soon"}, 2 * time.Millisecond},
		} {
			requests <- r
		}
		time.Sleep(time.Minute)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := []string{"soon after 1ms", "later after 1s"}; !slices.Equal(reconciled, want) {
			t.Errorf("reconciled %q, want %q", reconciled, want)
		}
	})
}

// An object whose reconciliation fails is reconciled again at its time, even if the back-off is longer.
func TestFailureDoesNotPostponeTheNextReconciliation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, requests, done := time.Now(), make(chan Request), make(chan error)
		var times []time.Duration
		controller := &Controller{
			Name: "test", Workers: 1, Requests: requests,
			Reconcile: func(context.Context, cache.ObjectName) (time.Duration, error) {
				times = append(times, time.Since(began))
				next := began.Add(time.Hour)
				return time.Until(next), errors.New("refused")
			},
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() { done <- controller.Run(ctx, slog.New(slog.DiscardHandler), clock.RealClock{}) }()
		requests <- Request{Key: cache.ObjectName{Name: "a"}}
		time.Sleep(2 * time.Hour)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !slices.Contains(times, time.Hour) || len(times) < 60 {
			t.Errorf("reconciled %d times, not after an hour: %v", len(times), times)
		}
	})
}

// A controller is busy while it reconciles an object or holds a status, and not while a request waits for its time.
func TestBusyWhileReconciling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, proceed, done := make(chan Request), make(chan struct{}), make(chan error)
		controller := &Controller{
			Name: "test", Workers: 1, Requests: requests, Holds: NewHolds(clock.RealClock{}),
			Reconcile: func(context.Context, cache.ObjectName) (time.Duration, error) {
				<-proceed
				return 0, nil
			},
		}
		of := &Context{}
		of.running.Store(&[]*Controller{controller})
		ctx, stop := context.WithCancel(t.Context())
		go func() { done <- controller.Run(ctx, slog.New(slog.DiscardHandler), clock.RealClock{}) }()
		isBusy := func(when, want string) {
			synctest.Wait()
			if busy := strings.Join(of.Busy(), " "); busy != want {
				t.Errorf("%s, it is %q, want %q", when, busy, want)
			}
		}
		isBusy("without a request", "")
		requests <- Request{cache.ObjectName{Name: "a"}, time.Second}
		isBusy("before its time", "")
		time.Sleep(time.Second)
		isBusy("during it", "test (1 in work, 0 waiting, 0 with a status to write)")
		requests <- Request{Key: cache.ObjectName{Name: "b"}}
		proceed <- struct{}{}
		isBusy("during the next", "test (1 in work, 0 waiting, 0 with a status to write)")
		proceed <- struct{}{}
		isBusy("after both", "")
		controller.Holds.Remaining(cache.ObjectName{Name: "a"}, time.Second)
		isBusy("while it holds a status", "test (0 in work, 0 waiting, 1 with a status to write)")
		controller.Holds.End(cache.ObjectName{Name: "a"})
		isBusy("after the hold", "")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Objects that are refused again and again take few lines of the log, however often they are tried.
func TestRepeatedFailuresTakeFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		tries, requests, done := 0, make(chan Request), make(chan error)
		controller := &Controller{Name: "test", Workers: 1, Requests: requests, Reconcile: func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
			tries++
			return 0, fmt.Errorf("create a pod: %w", apierrors.NewForbidden(corev1.Resource("pods"), key.Name, errors.New("exceeded quota")))
		}}
		ctx, stop := context.WithCancel(t.Context())
		go func() { done <- controller.Run(ctx, slog.New(slog.NewTextHandler(&logged, nil)), clock.RealClock{}) }()
		for i := range 300 {
			requests <- Request{Key: cache.ObjectName{Namespace: "ns", Name: fmt.Sprint("web-", i)}}
		}
		time.Sleep(time.Minute)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if lines := strings.Count(logged.String(), "\n"); tries < 3000 || lines != 10 {
			t.Errorf("%d lines for %d tries, want 10:\n%s", lines, tries, logged.String())
		}
	})
}
