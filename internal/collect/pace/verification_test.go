package pace_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// slow is a server that answers the requests for a path after a time, with a status; and at once if it has none.
type slow map[string]reply

type reply struct {
	takes  time.Duration
	status int
}

// RoundTrip implements http.RoundTripper.
func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s[r.URL.Path].takes):
		return &http.Response{StatusCode: max(s[r.URL.Path].status, http.StatusOK), Body: http.NoBody}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// reads sends a GET.
func reads(ctx context.Context, t *testing.T, through http.RoundTripper, path string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := through.RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
	}
	return err
}

// verifications returns how often reach verifies the server, with requests for the paths one after the other. All but the
// last may fail.
func verifications(t *testing.T, reach *pace.Reach, through http.RoundTripper, paths ...string) (count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	err := reach.Await(ctx, func(ctx context.Context) (err error) {
		if count++; count > 10 {
			cancel()
		}
		for _, path := range paths {
			err = reads(ctx, t, through, path)
		}
		return err
	})
	if err != nil {
		t.Errorf("after %d verifications, %v", count, err)
	}
	return count
}

const namespaces, pods, cars = "/api/v1/namespaces", "/api/v1/pods", "/apis/zoo.example.com/v1/namespaces/n/cars/red"

// R4: a server that takes some time for each answer is verified by the first try, or by the second one if no answer before
// has shown that it is slow; also while others send requests.
func TestR4_SlowServersAreVerified(t *testing.T) {
	for _, seconds := range []time.Duration{1, 5, 10, 20, 40, 59} {
		for _, isKnown := range []bool{false, true} {
			t.Run(fmt.Sprint(seconds, isKnown), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					reach, takes := newReach(), seconds*time.Second
					broken := reach.Wrap(&transport{})
					through := reach.Wrap(slow{namespaces: {takes: takes}, pods: {takes: takes}, cars: {takes: takes}})
					if err := reads(t.Context(), t, broken, pods); err != nil {
						t.Fatal(err)
					}
					if isKnown {
						if err := reads(t.Context(), t, through, pods); err != nil {
							t.Fatal(err)
						}
					}
					hidden, cancel := context.WithTimeout(t.Context(), time.Second/2)
					defer cancel()
					_ = reads(hidden, t, through, cars) // an outage
					for range 20 {
						time.Sleep(3700 * time.Millisecond)
						go func() { _ = reads(t.Context(), t, through, pods) }()
					}
					most := 2
					if isKnown {
						most = 1
					}
					if got := verifications(t, reach, through, namespaces, pods); got < 1 || got > most {
						t.Errorf("verified %d times, at most %d are enough", got, most)
					}
					if err := deletes(pace.WithCondition(t.Context(), func() error { return nil }), t, reach.Wrap(&transport{})); err != nil {
						t.Errorf("the next write: %v", err)
					}
				})
			})
		}
	}
}

// R4: the last answer of a verification does not cover a silence after it, nor its own if it took much longer than all
// answers before: a proxy may have kept it while the server was put back.
func TestR4_SilencesThatAVerificationDoesNotCover(t *testing.T) {
	for name, test := range map[string]struct {
		requests []time.Duration // of the first verification
		silence  time.Duration   // after them
		want     int
	}{
		"none":                      {[]time.Duration{time.Second, time.Second}, 0, 1},
		"after the last answer":     {[]time.Duration{time.Second, time.Second}, 4 * time.Second, 2},
		"an answer that took long":  {[]time.Duration{time.Second, 30 * time.Second}, 0, 2},
		"an answer that took twice": {[]time.Duration{15 * time.Second, 30 * time.Second}, 0, 1},
		"before the last answer":    {[]time.Duration{30 * time.Second, time.Second}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reach := newReach()
				server := slow{cars: {takes: time.Hour}}
				through := reach.Wrap(server)
				hidden, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_ = reads(hidden, t, through, cars)
				got := 0
				limited, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				err := reach.Await(limited, func(ctx context.Context) error {
					if got++; got > 10 {
						stop()
					}
					for _, takes := range test.requests {
						server[namespaces] = reply{takes: takes}
						if err := reads(ctx, t, through, namespaces); err != nil || got > 1 {
							return err
						}
					}
					server[pods] = reply{takes: test.silence}
					return reads(t.Context(), t, through, pods)
				})
				if err != nil || got != test.want {
					t.Errorf("verified %d times, want %d; error %v", got, test.want, err)
				}
			})
		})
	}
}

// R4: once a server was verified, its slow answers from before do not make it a slow one.
func TestR4_SlowAnswersFromBeforeAVerificationDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reach, server := newReach(), slow{cars: {takes: time.Hour}}
		through := reach.Wrap(server)
		for _, test := range []struct {
			takes time.Duration
			want  int
		}{{30 * time.Second, 2}, {time.Second, 1}, {30 * time.Second, 2}} {
			hidden, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = reads(hidden, t, through, cars)
			cancel()
			server[namespaces] = reply{takes: test.takes}
			if got := verifications(t, reach, through, namespaces); got != test.want {
				t.Errorf("answers take %s: verified %d times, want %d", test.takes, got, test.want)
			}
		}
	})
}

// R4: a kind that hangs makes one outage, and not one for each of its requests. Silences, requests that have waited for a
// short time, and the same after an answer count again, and so do other kinds.
func TestR4_HangingKindsAreOneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reach := newReach()
		blue := strings.Replace(cars, "red", "blue", 1)
		server := slow{cars: {takes: time.Hour}, blue: {takes: time.Hour}}
		through := reach.Wrap(server)
		hangs := func(path string, timeout time.Duration) int {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for ctx.Err() == nil { // others are answered
					time.Sleep(700 * time.Millisecond)
					_ = reads(t.Context(), t, through, namespaces)
				}
			}()
			_ = reads(ctx, t, through, path)
			<-ended
			return verifications(t, reach, through, namespaces)
		}
		expect := func(what string, got, want int) {
			t.Helper()
			if got != want {
				t.Errorf("%s: verified %d times, want %d", what, got, want)
			}
		}
		expect("the first request", hangs(cars, time.Minute), 1)
		expect("the second one", hangs(cars, time.Minute), 0)
		expect("another object", hangs(blue, time.Minute), 0)
		expect("a short wait", hangs(cars, time.Second), 1)
		server[pods] = server[cars]
		expect("another kind", hangs(pods, time.Minute), 1)
		server[cars] = reply{status: http.StatusGatewayTimeout}
		_ = reads(t.Context(), t, through, cars)
		server[cars] = server[pods]
		expect("an error of the server is no answer", hangs(cars, time.Minute), 0)
		delete(server, cars)
		_ = reads(t.Context(), t, through, cars)
		server[cars] = server[pods]
		expect("after an answer", hangs(cars, time.Minute), 1)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = reads(ctx, t, through, cars)
		expect("silence", verifications(t, reach, through, namespaces), 1)
	})
}

// A request of a verification that fails makes no further outage: its result counts.
func TestR4_FailuresOfAVerificationAreNoOutages(t *testing.T) {
	for name, broken := range map[string]reply{
		"no answer from the storage": {status: http.StatusServiceUnavailable},
		"no answer":                  {takes: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reach := newReach()
				through := reach.Wrap(slow{pods: {status: http.StatusServiceUnavailable}, namespaces: broken})
				if err := reads(t.Context(), t, through, pods); err != nil {
					t.Fatal(err)
				}
				got := 0
				bounded, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				err := reach.Await(bounded, func(ctx context.Context) error {
					if got++; got > 3 {
						stop()
					}
					limited, cancel := context.WithTimeout(ctx, 2*time.Second)
					defer cancel()
					_ = reads(limited, t, through, namespaces)
					return reads(ctx, t, through, "/api/v1/configmaps")
				})
				if err != nil || got != 1 {
					t.Errorf("verified %d times; error %v", got, err)
				}
			})
		})
	}
}

// The function that verifies the server learns how often a kind has answered, whatever the path of the request.
func TestAnswersAreCountedByKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reach := newReach()
		through := reach.Wrap(slow{"/api/v1/events": {status: http.StatusServiceUnavailable}, "/apis/apps/v1/deployments": {status: http.StatusInternalServerError}})
		for _, path := range []string{
			"/api/v1/pods", "/api/v1/namespaces/n/pods", "/prefix/api/v1/namespaces/n/pods/p/status", "/api/v1/namespaces", "/api/v1/namespaces/n",
			"/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/n/deployments/d", "/prefix/apis/apps/v1beta1/deployments",
			"/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version", "/api/v1/events",
		} {
			if err := reads(t.Context(), t, through, path); err != nil {
				t.Fatal(err)
			}
		}
		err := reach.Await(t.Context(), func(ctx context.Context) error {
			for kind, want := range map[[2]string]int{
				{"", "pods"}: 3, {"", "namespaces"}: 2, {"apps", "deployments"}: 2, {"", "deployments"}: 0, {"apps", ""}: 0, {"", ""}: 0, {"", "events"}: 0,
			} {
				if got := pace.Answers(ctx, kind[0], kind[1]); got != want {
					t.Errorf("%v: %d answers, want %d", kind, got, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := pace.Answers(t.Context(), "", "pods"); got != 0 {
			t.Errorf("without a verification: %d answers", got)
		}
	})
}
