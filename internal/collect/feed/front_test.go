package feed_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// hangs is a delay without an end.
const hangs = 1000 * time.Hour

// apples are a kind that comes before those of the core group in the order of names.
var apples = kind{group: "example.com", version: "v1", resource: "apples", kind: "Apple"}

// front is a server of which the apples are another one, whose revisions are higher. Its answers take some time.
type front struct {
	core, other *fakeServer
	reach       *pace.Reach
	config      *rest.Config
	feed        *feed.Feed
	seen        *recorder

	mu       sync.Mutex
	delay    time.Duration            // guarded by mu, and so is all below
	delays   map[string]time.Duration // by resource, instead of delay
	requests map[string]int           // by resource
}

// verifying starts a feed of a front in a bubble of fake time, and stops it at the end of the test.
func verifying(t *testing.T, test func(t *testing.T, f *front)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &front{
			core: newServer(namespaces, pods, apples), other: newServer(apples), seen: &recorder{},
			reach:  pace.NewReach(slog.New(slog.DiscardHandler), clock.RealClock{}),
			delays: make(map[string]time.Duration), requests: make(map[string]int),
		}
		f.core.put("namespaces", metav1.ObjectMeta{UID: "n", Name: "n"})
		f.core.put("pods", metav1.ObjectMeta{UID: "p", Name: "p", Namespace: "n"})
		for range 1000 {
			f.other.put("apples", metav1.ObjectMeta{UID: "w", Name: "w", Namespace: "n"})
		}
		f.config = &rest.Config{Host: "http://server", QPS: -1, Transport: f.reach.Wrap(f)}
		served, err := discovery.NewDiscoveryClientForConfig(f.config)
		if err != nil {
			t.Fatal(err)
		}
		client, err := feed.NewClient(f.config)
		if err != nil {
			t.Fatal(err)
		}
		f.feed = feed.New(&sparing{Discovery: served}, client, feed.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			f.feed.Run(ctx, f.seen)
		}()
		if err := f.feed.WaitForInitialSync(ctx); err != nil {
			t.Errorf("initial sync: %v", err)
		}
		synctest.Wait()
		f.seen.take("epoch")
		test(t, f)
		cancel()
		<-stopped
		time.Sleep(time.Minute) // until client-go has given up to cancel requests
	})
}

// RoundTrip implements http.RoundTripper.
func (f *front) RoundTrip(r *http.Request) (*http.Response, error) {
	segments := strings.Split(r.URL.Path, "/")
	resource := segments[len(segments)-1]
	if slices.Contains(segments, apples.resource) {
		resource = apples.resource
	}
	f.mu.Lock()
	takes, isSet := f.delays[resource]
	if !isSet {
		takes = f.delay
	}
	f.requests[resource]++
	f.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if resource == apples.resource {
		return f.other.RoundTrip(r)
	}
	return f.core.RoundTrip(r)
}

func (f *front) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// asked returns the number of requests for a resource since the last call.
func (f *front) asked(resource string) (count int) {
	f.change(func() { count = f.requests[resource]; delete(f.requests, resource) })
	return count
}

// read sends a request for a resource, and gives up after a time.
func (f *front) read(t *testing.T, path string, timeout time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := f.config.Transport.RoundTrip(request); err == nil {
		_ = response.Body.Close()
	}
}

// outage makes an outage: a request ends without an answer.
func (f *front) outage(t *testing.T) {
	t.Helper()
	f.change(func() { f.delays["lost"] = hangs })
	f.read(t, "/api/v1/lost", time.Second)
}

// verify waits until the server is verified. It returns how long that took, and how many tries.
func (f *front) verify(t *testing.T) (took time.Duration, tries int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	began := time.Now()
	err := f.reach.Await(ctx, func(ctx context.Context) error {
		tries++
		return f.feed.VerifyHistory(ctx)
	})
	took = time.Since(began)
	if err != nil {
		t.Errorf("after %s and %d tries: %v", took, tries, err)
	}
	return took, tries
}

// answerOf returns the status of the answer to a list; 0 if it is the list. Its server knows the revisions from since to
// its own, and answers requests for lists of former revisions with a status if that is not 0.
func answerOf(r *http.Request, since, now, former int) int {
	query := r.URL.Query()
	at, err := strconv.Atoi(query.Get("resourceVersion"))
	switch {
	case query.Get("resourceVersionMatch") != "Exact":
		return 0
	case err != nil || former != 0:
		return former
	case at < since:
		return http.StatusGone
	case at > now:
		return http.StatusGatewayTimeout
	}
	return 0
}
