package feed_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/feed"
)

// R4: a kind of another server, behind an APIService, that is refused after an outage was not compared: whatever the code is,
// its history is doubted, once until it shows something.
func TestR4_RefusedKindsOfOtherServersAreDoubted(t *testing.T) {
	for _, code := range []int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests, http.StatusServiceUnavailable,
	} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			verifying(t, func(t *testing.T, f *front) {
				f.other.change(func() { f.other.refusal["apples"] = code })
				for outage, want := range []int{1, 0, 0} {
					f.outage(t)
					f.verify(t)
					if got := len(f.seen.take("epoch")); got != want {
						t.Errorf("outage %d: %d epochs, want %d", outage, got, want)
					}
				}
			})
		})
	}
}

// R4: a server that refuses the kinds of the core group for ever is verified by a kind that it does not refuse. That may be of
// another server, so the history of the core group is doubted, once until it shows something.
func TestR4_RefusedCoreGroupIsDoubted(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusServiceUnavailable} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			verifying(t, func(t *testing.T, f *front) {
				f.core.change(func() { f.core.refusal["namespaces"], f.core.refusal["pods"] = code, code })
				expect := func(what string, epochs int) {
					t.Helper()
					f.outage(t)
					if _, tries := f.verify(t); tries > 1 {
						t.Errorf("%s: %d tries", what, tries)
					}
					if got := len(f.seen.take("epoch")); got != epochs {
						t.Errorf("%s: %d epochs, want %d", what, got, epochs)
					}
				}
				expect("the first outage", 1)
				expect("another one", 0)
				f.core.put("pods", metav1.ObjectMeta{UID: "p2", Name: "p2", Namespace: "n"})
				synctest.Wait()
				expect("after an event", 1)
				f.core.change(func() { clear(f.core.refusal) })
				expect("when it is not refused any more", 0)
				f.core.change(func() { f.core.revision -= 3 })
				f.outage(t)
				f.verify(t)
				if got := f.seen.take("epoch"); len(got) == 0 {
					t.Error("the server was put back, and no epoch has begun")
				}
			})
		})
	}
}

// R4: while the server refuses all kinds, nothing is verified, and a few of them are tried at a time. One that it does not
// refuse is found, and comes first from then on.
func TestR4_ReadableKindIsFoundAmongRefusedOnes(t *testing.T) {
	const kinds = 14
	served, refusal := []kind{namespaces}, map[string]int{"namespaces": http.StatusForbidden}
	for n := range kinds {
		resource := fmt.Sprintf("k%02ds", n)
		served = append(served, kind{version: "v1", resource: resource, kind: fmt.Sprintf("K%02d", n)})
		refusal[resource] = http.StatusForbidden
	}
	s := newServer(served...)
	for range 100 {
		s.put("namespaces", metav1.ObjectMeta{UID: "n", Name: "n"})
	}
	running(t, s, func(f *feed.Feed, r *recorder) {
		r.take("epoch")
		tries := func() (requests int, err error) {
			s.change(func() { clear(s.requests) })
			err = f.VerifyHistory(context.WithoutCancel(t.Context()))
			s.change(func() {
				for _, count := range s.requests {
					requests += count
				}
			})
			return requests, err
		}
		s.change(func() { s.refusal = refusal })
		for range 5 {
			if requests, err := tries(); err == nil || !strings.Contains(err.Error(), "which it has listed before") || requests != 4 {
				t.Fatalf("all kinds are refused: %d requests, error %v", requests, err)
			}
		}
		s.change(func() { delete(s.refusal, "k07s") })
		found := 0
		for ; found < kinds; found++ {
			if _, err := tries(); err == nil {
				break
			}
		}
		if found > kinds/4+1 {
			t.Errorf("one kind can be read: it is not found in %d tries", found)
		}
		if requests, err := tries(); err != nil || requests != 2 {
			t.Errorf("when it was found: %d requests, want 2; error %v", requests, err)
		}
		if got := r.take("epoch"); len(got) > 0 {
			t.Errorf("nothing has happened: %v", got)
		}
		s.change(func() { s.revision -= 50 })
		_, _ = tries() // an error means that all kinds are listed anew
		if got := r.take("epoch"); len(got) == 0 {
			t.Error("the server was put back, and no epoch has begun")
		}
	})
}

// A 404 for the discovery of the core group, as a load balancer may answer, does not mean that the server has no such kinds:
// their histories would be forgotten (R4).
func TestR4_CoreGroupDoesNotLeave(t *testing.T) {
	s := newServer(pods, deployments)
	s.put("pods", metav1.ObjectMeta{UID: "p", Name: "p"})
	running(t, s, func(f *feed.Feed, r *recorder) {
		r.take("Pod")
		s.change(func() {
			s.refusal["/api"], s.refusal["pods"] = http.StatusNotFound, http.StatusNotFound
			s.hangUp("pods")
		})
		time.Sleep(5 * time.Minute)
		check(t, "while a load balancer answers", r.take("Pod"))
		if !watched(f, podKind) {
			t.Error("pods are not watched any more")
		}
		s.change(func() { clear(s.refusal) })
		time.Sleep(5 * time.Minute)
		s.put("pods", metav1.ObjectMeta{UID: "q", Name: "q"})
		synctest.Wait()
		check(t, "when the server answers", r.take("q"), "observe Pod q")
	})
}

// R4: a server whose revisions are no numbers cannot be compared. Its history is doubted, once until it shows something.
func TestR4_OpaqueRevisionsAreDoubted(t *testing.T) {
	s := newServer(pods, namespaces)
	s.prefix = "v"
	running(t, s, func(f *feed.Feed, r *recorder) {
		r.take("epoch")
		expect := func(what string, epochs int) {
			t.Helper()
			if err := f.VerifyHistory(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if got := len(r.take("epoch")); got != epochs {
				t.Errorf("%s: %d epochs, want %d", what, got, epochs)
			}
		}
		expect("the first outage", 1)
		expect("another one", 0)
		s.put("pods", metav1.ObjectMeta{UID: "p", Name: "p"})
		synctest.Wait()
		expect("after an event", 1)
	})
}

// R4: a backup was restored with its revisions raised, and only the list of a former revision shows that. Another instance that
// starts, or something in front of it, answers just that one: nothing is verified until the server does. A server without such
// lists is verified nevertheless.
func TestR4_RefusedListOfAFormerRevisionShowsNothing(t *testing.T) {
	const noRight = `namespaces is forbidden: User "system:serviceaccount:kube-system:gc" cannot list resource "namespaces"`
	for name, test := range map[string]struct {
		code  int
		words string
		lacks bool // it is the answer of a server without lists of former revisions
	}{
		"nobody is known":        {http.StatusUnauthorized, "Unauthorized", false},
		"nobody has a right":     {http.StatusForbidden, noRight, false},
		"no such kind":           {http.StatusNotFound, "the server could not find the requested resource", false},
		"a busy server":          {http.StatusTooManyRequests, "too many requests", false},
		"the storage is away":    {http.StatusInternalServerError, "etcdserver: request timed out", false},
		"the storage starts":     {http.StatusInternalServerError, "rpc error: code = Unavailable desc = transport is closing", false},
		"the storage is slow":    {http.StatusInternalServerError, "context deadline exceeded", false},
		"a server that starts":   {http.StatusServiceUnavailable, "not ready", false},
		"a page with 400":        {http.StatusBadRequest, "", false},
		"a page with 403":        {http.StatusForbidden, "", false},
		"a page with 404":        {http.StatusNotFound, "", false},
		"a page with 500":        {http.StatusInternalServerError, "", false},
		"no former lists":        {http.StatusBadRequest, "resourceVersionMatch is not supported", true},
		"no valid former lists":  {http.StatusUnprocessableEntity, "resourceVersionMatch: Forbidden", true},
		"former lists that fail": {http.StatusInternalServerError, "rpc error: code = Unimplemented", true},
	} {
		t.Run(name, func(t *testing.T) {
			verifying(t, func(t *testing.T, f *front) {
				former := 0
				f.core.change(func() {
					f.core.revision += 1000
					since := f.core.revision
					f.core.refuses = func(r *http.Request) int {
						if !strings.HasSuffix(r.URL.Path, "/namespaces") {
							return 0
						}
						return answerOf(r, since, since, former)
					}
					former, f.core.words = test.code, test.words
				})
				for range 3 {
					err := f.feed.VerifyHistory(context.WithoutCancel(t.Context()))
					if (err == nil) != test.lacks || err != nil && !strings.Contains(err.Error(), "at an observed revision: ") {
						t.Errorf("VerifyHistory: %v", err)
					}
				}
				if got := f.seen.take("epoch"); len(got) > 0 {
					t.Errorf("nothing is known yet: %v", got)
				}
				f.core.change(func() { former = 0 })
				if err := f.feed.VerifyHistory(context.WithoutCancel(t.Context())); err != nil {
					t.Errorf("when the server answers: %v", err)
				}
				if got := f.seen.take("epoch"); len(got) != 1 {
					t.Errorf("when the server answers: %d epochs, want 1", len(got))
				}
			})
		})
	}
}
