package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// source is a storage with one watch.
type source struct {
	apistorage.Interface
	events *watch.FakeWatcher
	opened int
}

func (s *source) Watch(context.Context, string, apistorage.ListOptions) (watch.Interface, error) {
	s.opened++
	return s.events, nil
}

// opened opens a watch to which a fate happens.
func opened(t *testing.T, s *source, fate Fate, opts apistorage.ListOptions) watch.Interface {
	t.Helper()
	wrapped := NewInjector(Plan{}, Config{Clock: clock.RealClock{}}).Wrap(storage.Kind{}, s)
	w, err := wrapped.Watch(context.WithValue(t.Context(), exchangeKey{}, &exchange{fate: fate}), "", opts)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func numbered(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}
}

func name(t *testing.T, e watch.Event) string {
	t.Helper()
	object, ok := e.Object.(*corev1.ConfigMap)
	if !ok {
		t.Fatalf("event %v", e)
	}
	return object.Name
}

// All events come, in their order, each of them after a lag of the plan.
func TestLateEventsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{events: watch.NewFake()}
		fate := NewDraws(parsed(t, "seed=5; watch-lag delay=1s-3s")).Next(Request{Verb: "watch"})
		w := opened(t, s, fate, apistorage.ListOptions{})
		const events = 2 * mostHeld
		begun := make([]time.Time, events)
		go func() {
			for i := range events {
				begun[i] = time.Now()
				s.events.Add(numbered(i))
				time.Sleep(20 * time.Millisecond)
			}
			s.events.Stop()
		}()
		var got []string
		lags := map[time.Duration]bool{}
		for event := range w.ResultChan() {
			lag := time.Since(begun[len(got)])
			lags[lag] = true
			if lag < time.Second || lag > 3*time.Second {
				t.Errorf("event %d comes after %v", len(got), lag)
			}
			got = append(got, name(t, event))
		}
		var want []string
		for i := range events {
			want = append(want, fmt.Sprint(i))
		}
		if !slices.Equal(got, want) {
			t.Errorf("the events are %v", got)
		}
		if len(lags) < 10 {
			t.Errorf("all events are as late: %v", lags)
		}
	})
}

// A watch holds a bounded number of events: the others stay with the inner watch, and none is lost.
func TestHeldEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{events: watch.NewFake()}
		w := opened(t, s, NewDraws(parsed(t, "watch-lag delay=1h")).Next(Request{Verb: "watch"}), apistorage.ListOptions{})
		taken := 0
		go func() {
			for i := range mostHeld + 50 {
				s.events.Add(numbered(i))
				taken++
			}
			s.events.Stop()
		}()
		synctest.Wait()
		if taken != mostHeld {
			t.Errorf("%d events are held, want %d", taken, mostHeld)
		}
		n := 0
		for range w.ResultChan() {
			n++
		}
		if n != mostHeld+50 {
			t.Errorf("%d events come", n)
		}
	})
}

// A watch ends at its time, whatever it holds, and so does the inner one.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{events: watch.NewFake()}
		began := time.Now()
		w := opened(t, s, NewDraws(parsed(t, "watch-end delay=10s; watch-lag delay=1m")).Next(Request{Verb: "watch"}), apistorage.ListOptions{})
		s.events.Add(numbered(1))
		for event := range w.ResultChan() {
			t.Errorf("event %v", event)
		}
		if took := time.Since(began); took != 10*time.Second || !s.events.IsStopped() {
			t.Errorf("it ends after %v; the inner watch has ended: %v", took, s.events.IsStopped())
		}
	})
}

// A late watch holds a bounded number of events, of a bounded size; the others wait in the store.
func TestLateWatchHoldsNoMoreThanItsBounds(t *testing.T) {
	for kind, c := range map[string]struct{ bytes, most int }{
		"many":  {0, mostHeld},
		"large": {mostHeldBytes / 10, 10},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events := watch.NewFakeWithChanSize(2*mostHeld, false)
				text := strings.Repeat("x", c.bytes)
				for i := range 2 * mostHeld {
					object := numbered(i)
					object.Data = map[string]string{"text": text}
					events.Add(object)
				}
				w := opened(t, &source{events: events}, NewDraws(parsed(t, "watch-lag delay=1s")).Next(Request{Verb: "watch"}), apistorage.ListOptions{})
				defer w.Stop()
				synctest.Wait()
				if held := 2*mostHeld - len(events.ResultChan()); held != c.most {
					t.Errorf("it holds %d events, want %d", held, c.most)
				}
				for i := range 2 * mostHeld {
					if got := name(t, <-w.ResultChan()); got != fmt.Sprint(i) {
						t.Fatalf("event %d is %s", i, got)
					}
				}
			})
		})
	}
}

// A client that stops its watch, even twice, leaves nothing behind.
func TestStoppedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it fails if a goroutine stays
		s := &source{events: watch.NewFake()}
		w := opened(t, s, NewDraws(parsed(t, "watch-lag delay=1s")).Next(Request{Verb: "watch"}), apistorage.ListOptions{})
		s.events.Add(numbered(1))
		time.Sleep(2 * time.Second) // pass waits for the client
		w.Stop()
		w.Stop()
		synctest.Wait()
		if !s.events.IsStopped() {
			t.Error("the inner watch has not ended")
		}
	})
}

// A watch that has expired has one event, and the store is not asked.
func TestExpiredWatch(t *testing.T) {
	s := &source{events: watch.NewFake()}
	w := opened(t, s, Fate{Expired: true}, apistorage.ListOptions{})
	defer w.Stop()
	event := <-w.ResultChan()
	if event.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) || s.opened != 0 {
		t.Errorf("event %v, %d inner watches", event, s.opened)
	}
	if event, ok := <-w.ResultChan(); ok {
		t.Errorf("a second event %v", event)
	}
}

// A watch of the control plane's own is the inner one.
func TestWatchWithoutFaults(t *testing.T) {
	s := &source{events: watch.NewFake()}
	defer s.events.Stop()
	wrapped := NewInjector(parsed(t, "watch-lag delay=1h"), Config{Clock: clock.RealClock{}}).Wrap(storage.Kind{}, s)
	w, err := wrapped.Watch(t.Context(), "", apistorage.ListOptions{})
	if err != nil || w != watch.Interface(s.events) {
		t.Errorf("it is a %T: %v", w, err)
	}
}
