package feed_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const applePath = "/apis/example.com/v1/namespaces/n/apples/w"

// R4: a server is verified in a time that is bounded by that of its answers, also while a kind hangs or is away, of its own
// or of another server behind an APIService. Then the history of that kind is doubted, unless the server tells it.
func TestR4_SlowServersAreVerifiedInBoundedTime(t *testing.T) {
	for _, takes := range []time.Duration{0, 5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second} {
		for name, test := range map[string]struct {
			broken  func(f *front)
			most    time.Duration // besides three answers for each try
			doubted bool
		}{
			"all kinds answer": {broken: func(*front) {}},
			"pods hang":        {broken: func(f *front) { f.delays["pods"] = hangs }},
			"namespaces hang":  {broken: func(f *front) { f.delays["namespaces"] = hangs }, most: 10 * time.Second},
			"another server hangs": {
				broken: func(f *front) { f.delays["apples"] = hangs }, most: time.Minute, doubted: true,
			},
			"namespaces and another server hang": {
				broken: func(f *front) { f.delays["namespaces"], f.delays["apples"] = hangs, hangs },
				most:   2 * time.Minute, doubted: true,
			},
			"another server is away": {
				broken:  func(f *front) { f.other.change(func() { f.other.refusal["apples"] = http.StatusServiceUnavailable }) },
				doubted: true,
			},
		} {
			t.Run(fmt.Sprint(takes, ", ", name), func(t *testing.T) {
				t.Parallel()
				verifying(t, func(t *testing.T, f *front) {
					f.change(func() { f.delay = takes; test.broken(f) })
					f.outage(t)
					took, tries := f.verify(t)
					if most := time.Duration(tries)*3*takes + test.most; took > most || tries > 2 {
						t.Errorf("it took %s and %d tries, at most %s and 2 are enough", took, tries, most)
					}
					if got := len(f.seen.take("epoch")); got > 1 || got == 1 != test.doubted {
						t.Errorf("%d epochs", got)
					}
				})
			})
		}
	}
}

// R4: while a kind of another server hangs, it is compared and doubted once. It is compared again when it was observed, or
// has answered a request: only then may something be believed.
func TestR4_HangingKindIsDoubtedOnce(t *testing.T) {
	for name, shows := range map[string]func(t *testing.T, f *front){
		"an event": func(_ *testing.T, f *front) {
			f.other.put("apples", metav1.ObjectMeta{UID: "w2", Name: "w2", Namespace: "n"})
		},
		"a read": func(t *testing.T, f *front) {
			f.change(func() { delete(f.delays, "apples") })
			f.read(t, applePath, time.Minute)
			f.change(func() { f.delays["apples"] = hangs })
		},
	} {
		t.Run(name, func(t *testing.T) {
			verifying(t, func(t *testing.T, f *front) {
				f.change(func() { f.delays["apples"] = hangs })
				expect := func(what string, requests, epochs int) {
					t.Helper()
					f.asked("apples")
					f.outage(t)
					took, _ := f.verify(t)
					if got := f.asked("apples"); got != requests || took > time.Duration(requests)*3*time.Second {
						t.Errorf("%s: it took %s and %d requests, want %d", what, took, got, requests)
					}
					if got := len(f.seen.take("epoch")); got != epochs {
						t.Errorf("%s: %d epochs, want %d", what, got, epochs)
					}
				}
				expect("the first outage", 1, 1)
				expect("another one", 0, 0)
				f.read(t, applePath, time.Minute) // hangs
				expect("after a request without an answer", 0, 0)
				shows(t, f)
				synctest.Wait()
				expect("after it was seen", 1, 1)
				expect("another one", 0, 0)
				f.change(func() { delete(f.delays, "apples") })
				shows(t, f)
				f.change(func() { delete(f.delays, "apples") })
				synctest.Wait()
				expect("when it answers", 1, 0)
			})
		})
	}
}

// R4: a slow server that was put back begins an epoch, also if that was while it was verified, and if it has no lists of
// former revisions.
func TestR4_SlowServersThatWerePutBack(t *testing.T) {
	for name, test := range map[string]struct {
		at     int // which of the requests of the verification it answers as another one
		by     int // is added to its revision
		former int // the status of lists of former revisions; 0: it has them
	}{
		"before":                        {at: 1, by: -2},
		"before, with higher revisions": {at: 1, by: 1000},
		"before, without former lists":  {at: 1, by: -2, former: http.StatusBadRequest},
		"during":                        {at: 2, by: -2},
		"during, with higher revisions": {at: 2, by: 1000},
		"during, without former lists":  {at: 2, by: -2, former: http.StatusBadRequest},
		"late, without former lists":    {at: 3, by: -2, former: http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			verifying(t, func(t *testing.T, f *front) {
				requests, since := 0, 0
				f.change(func() { f.delay = 20 * time.Second })
				f.core.change(func() {
					f.core.words = "there are no lists of former revisions"
					f.core.refuses = func(r *http.Request) int {
						if r.URL.Query().Get("limit") != "1" || !strings.HasSuffix(r.URL.Path, "/namespaces") {
							return 0
						}
						if requests++; requests == test.at {
							f.core.revision += test.by
						}
						if test.by > 0 && requests == test.at {
							since = f.core.revision // the former ones are unknown
						}
						return answerOf(r, since, f.core.revision, test.former)
					}
				})
				f.outage(t)
				f.verify(t)
				if got := f.seen.take("epoch"); len(got) == 0 {
					t.Error("no epoch has begun")
				}
			})
		})
	}
}

// R4: a slow server is not compared with the revision of another one behind an APIService, which answers at once.
func TestR4_OtherServersAreNoReference(t *testing.T) {
	for _, takes := range []time.Duration{0, 20 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			verifying(t, func(t *testing.T, f *front) {
				f.change(func() { f.delays["namespaces"], f.delays["pods"] = takes, takes })
				f.core.change(func() { f.core.revision -= 2 })
				f.outage(t)
				f.verify(t)
				if got := f.seen.take("epoch"); len(got) == 0 {
					t.Error("the server was put back, and no epoch has begun")
				}
			})
		})
	}
}
