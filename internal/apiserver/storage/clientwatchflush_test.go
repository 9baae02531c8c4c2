package storage

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"
)

// flushes is a response that counts its events and flushes, and ends the request after the last event.
type flushes struct {
	http.ResponseWriter

	events, flushes, last int
	flushed               func() // called with each flush
	end                   context.CancelFunc
}

// Write implements http.ResponseWriter. k8s.io/apiserver writes an event at once.
func (f *flushes) Write(event []byte) (int, error) {
	f.events++
	return len(event), nil
}

// Flush implements http.Flusher.
func (f *flushes) Flush() {
	f.flushes++
	if f.flushed != nil {
		f.flushed()
	}
	if f.events == f.last {
		f.end()
	}
}

// serve serves a watch with k8s.io/apiserver until the response has some events.
func (f *flushes) serve(ctx context.Context, events watch.Interface, last int) {
	ctx, f.end = context.WithCancel(ctx)
	defer f.end()
	f.last = last
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, scheme.Scheme.PrioritizedVersionsAllGroups()[0])
	server := &handlers.WatchServer{
		Watching: events, Scope: &handlers.RequestScope{}, MediaType: info.MediaType, Framer: info.StreamSerializer.Framer,
		Encoder: encoder, EmbeddedEncoder: encoder, TimeoutFactory: noTimeout{},
	}
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	server.HandleHTTP(f, request)
}

type noTimeout struct{}

// TimeoutCh implements handlers.TimeoutFactory.
func (noTimeout) TimeoutCh() (<-chan time.Time, func() bool) { return nil, func() bool { return true } }

// The events of a burst are flushed in batches, if a flush takes longer than passing on ten events.
func TestBurstIsFlushedInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const changes = 300
		source := &revisions{size: 100, changes: changes + 1}
		events, err := watchFor(t.Context(), apistorage.ListOptions{ResourceVersion: "1"}, new(atomic.Int64), source.watch)
		must(t, err)
		response := &flushes{ResponseWriter: httptest.NewRecorder(), flushed: synctest.Wait}
		response.serve(t.Context(), events, changes)
		if most := changes/batch + 1; response.events != changes || response.flushes > most {
			t.Errorf("%d events are flushed %d times, want %d events and at most %d flushes", response.events, response.flushes, changes, most)
		}
		events.Stop()
		synctest.Wait()
	})
}

// An event is flushed when no other follows.
func TestSingleEventIsFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := watch.NewFake()
		events, err := watchFor(t.Context(), apistorage.ListOptions{ResourceVersion: "1"}, new(atomic.Int64), func(context.Context, apistorage.ListOptions) (watch.Interface, error) {
			return source, nil
		})
		must(t, err)
		response := &flushes{ResponseWriter: httptest.NewRecorder()}
		go response.serve(t.Context(), events, 3)
		for revision := 2; revision <= 3; revision++ {
			source.Modify(configMap("a", revision))
			synctest.Wait()
			if response.events != revision-1 || response.flushes != revision { // one of them flushes the header
				t.Errorf("%d events have had %d flushes after event %d", response.events, response.flushes, revision-1)
			}
		}
		events.Stop()
		synctest.Wait()
	})
}

// A client that takes an event while the events before it are dropped lists again.
func TestClientThatMayHaveMissedEventsListsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		sent, inChannel int
		want            bool
	}{
		"nothing was taken": {3, 3, false},
		"one was taken":     {3, 2, true},
		"all were taken":    {3, 0, true},
	} {
		w := newClientWatch(t.Context(), true, new(atomic.Int64))
		for revision := range c.sent {
			w.hold(watch.Event{Type: watch.Modified, Object: configMap("a", revision+1)})
			w.noteSent()
		}
		for range c.inChannel {
			w.results <- watch.Event{Type: watch.Modified, Object: configMap("a", 1)}
		}
		w.drain()
		close(w.results)
		event, ok := <-w.results
		if ok != c.want || ok && !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
			t.Errorf("%s: the watch ends with %q (more: %t), want an error: %t", name, event.Type, ok, c.want)
		}
	}
}

// BenchmarkWatchOfBurst prints the flushes of an event when events come faster than the client takes them.
func BenchmarkWatchOfBurst(b *testing.B) {
	events, err := watchFor(b.Context(), apistorage.ListOptions{ResourceVersion: "1"}, new(atomic.Int64), func(_ context.Context, opts apistorage.ListOptions) (watch.Interface, error) {
		after, err := strconv.Atoi(opts.ResourceVersion)
		changes := make(chan watch.Event, mostEvents)
		source := watch.NewProxyWatcher(changes)
		go func() {
			for revision := after + 1; revision <= b.N+1; revision++ {
				select {
				case changes <- watch.Event{Type: watch.Modified, Object: configMap("a", revision)}:
				case <-source.StopChan():
					return
				}
			}
		}()
		return source, err
	})
	if err != nil {
		b.Fatal(err)
	}
	response := &flushes{ResponseWriter: httptest.NewRecorder()}
	response.serve(b.Context(), events, b.N)
	b.ReportMetric(float64(response.flushes)/float64(b.N), "flushes/op")
	events.Stop()
}
