package feed_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/feed"
)

// R4: a list whose revision is lower than an earlier one begins an epoch, before the list is
// reported.
func TestR4_ListFromThePast(t *testing.T) {
	s := newServer(pods, namespaces)
	s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
	running(t, s, func(_ *feed.Feed, r *recorder) {
		s.put("pods", metav1.ObjectMeta{UID: "b", Name: "b"})
		synctest.Wait()
		r.take("Pod", "epoch")
		s.change(func() { s.refusal["pods"] = 410; s.hangUp("pods") })
		time.Sleep(50 * time.Millisecond)
		s.change(func() {
			delete(s.refusal, "pods")
			s.revision = 50
			delete(s.objects["pods"], "b")
		})
		time.Sleep(time.Minute)
		// All kinds are listed once more, since their watches may have missed changes.
		check(t, "after the restore", r.take("Pod", "epoch"), "epoch", "replace Pod [a]", "replace Pod [a]")
		check(t, "other kinds", r.take("Namespace"), "scope Namespace 2", "replace Namespace []", "replace Namespace []")

		s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
		synctest.Wait()
		check(t, "in the new epoch", r.take("Pod", "epoch"), "observe Pod a")
	})
}

// R4: the deletion that a restored backup undoes may be the last event of its kind.
func TestR4_ListFromBeforeADeletion(t *testing.T) {
	s := newServer(pods)
	s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
	running(t, s, func(_ *feed.Feed, r *recorder) {
		r.take("Pod", "epoch")
		before := s.revision
		s.change(func() {
			s.revision++
			s.send("pods", event{"DELETED", &metav1.PartialObjectMetadata{TypeMeta: partial, ObjectMeta: metav1.ObjectMeta{
				UID: "a", Name: "a", ResourceVersion: strconv.Itoa(s.revision),
			}}})
		})
		synctest.Wait()
		r.take("Pod", "a", "epoch")
		s.change(func() { s.refusal["pods"] = 503; s.hangUp("pods") })
		time.Sleep(50 * time.Millisecond)
		s.change(func() {
			delete(s.refusal, "pods")
			s.revision = before
		})
		time.Sleep(time.Minute)
		if got := r.take("Pod", "epoch"); len(got) == 0 || got[0] != "epoch" {
			t.Errorf("calls = %v, want an epoch, then a list", got)
		}
	})
}

// R4: the only sign of a backup that is restored with its revisions raised is that the server
// does not know the revisions from before.
func TestR4_RevisionThatTheServerDoesNotKnow(t *testing.T) {
	for name, noStream := range map[string]bool{"list by watch": false, "plain list": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(pods)
			s.noStream = noStream
			s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
			running(t, s, func(_ *feed.Feed, r *recorder) {
				r.take("Pod", "epoch")
				s.change(func() { s.refusal["pods"] = 410; s.hangUp("pods") })
				time.Sleep(50 * time.Millisecond)
				s.change(func() {
					delete(s.refusal, "pods")
					s.revision += 1000
				})
				time.Sleep(time.Minute)
				check(t, "after the gap", r.take("Pod", "epoch"), "epoch", "replace Pod [a]")
			})
		})
	}
}

// R4: a server that fails when it is asked for its list at the watched revision has not shown that it knows that revision.
// One that lists there, or has no such lists, has not begun another history.
func TestR4_ListAtTheWatchedRevisionFails(t *testing.T) {
	for _, test := range []struct {
		name   string
		code   int // of the answer to the list at the watched revision; 0: the list
		words  string
		times  int  // it answers so; 0: always
		begins bool // another epoch
	}{
		{"it answers", 0, "", 0, false},
		{"no such lists", http.StatusBadRequest, "resourceVersionMatch is not supported", 0, false},
		{"its storage fails", http.StatusInternalServerError, "etcdserver: request timed out", 0, true},
		{"it never has time", http.StatusTooManyRequests, "too many requests", 0, true},
		{"it has no time at first", http.StatusTooManyRequests, "too many requests", 2, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			verifying(t, func(t *testing.T, f *front) {
				time.Sleep(time.Minute) // a watch that ends at once shows a server without its revision
				f.seen.take("Pod", "epoch")
				answers := 0
				f.core.change(func() {
					f.core.words = test.words
					f.core.refuses = func(r *http.Request) int {
						query := r.URL.Query()
						switch {
						case !strings.HasSuffix(r.URL.Path, "/pods"):
						case query.Get("resourceVersionMatch") == "Exact":
							if answers++; test.times == 0 || answers <= test.times {
								return test.code
							}
						case query.Get("watch") != "" && query.Get("sendInitialEvents") == "":
							return http.StatusInternalServerError // so that a list follows
						}
						return 0
					}
					f.core.hangUp("pods")
				})
				time.Sleep(20 * time.Second) // until a busy server was asked several times
				f.core.change(func() { f.core.refuses = nil })
				time.Sleep(time.Minute)
				calls := f.seen.take("Pod", "epoch")
				if !slices.Contains(calls, "replace Pod [p]") {
					t.Fatalf("calls = %v, want a list", calls)
				}
				if got := slices.Contains(calls, "epoch"); got != test.begins {
					t.Errorf("calls = %v, want another epoch: %t", calls, test.begins)
				}
			})
		})
	}
}

// A watch that ends and is resumed is no such sign.
func TestR4_InterruptedWatchBeginsNoEpoch(t *testing.T) {
	s := newServer(pods)
	s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
	running(t, s, func(_ *feed.Feed, r *recorder) {
		r.take("Pod", "epoch")
		for range 3 {
			time.Sleep(time.Minute)
			s.change(func() { s.hangUp("pods") })
		}
		time.Sleep(time.Minute)
		s.put("pods", metav1.ObjectMeta{UID: "b", Name: "b"})
		synctest.Wait()
		check(t, "after the interruptions", r.take("epoch"))
	})
}

// R4: a server that was put back in time accepts a watch from a revision in its future, and
// sends nothing. Its revision is read before a watch is resumed.
func TestR4_WatchFromTheFuture(t *testing.T) {
	for name, noStream := range map[string]bool{"list by watch": false, "plain list": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(pods, namespaces)
			s.noStream = noStream
			s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
			running(t, s, func(_ *feed.Feed, r *recorder) {
				s.put("pods", metav1.ObjectMeta{UID: "b", Name: "b"})
				time.Sleep(time.Minute)
				r.take("Pod", "Namespace", "epoch")
				s.change(func() {
					s.revision = 50
					delete(s.objects["pods"], "b")
					s.hangUp("pods")
					s.hangUp("namespaces")
				})
				time.Sleep(time.Minute)
				got := r.take("Pod", "epoch")
				if len(got) < 2 || got[0] != "epoch" || got[len(got)-1] != "replace Pod [a]" {
					t.Errorf("calls = %v, want an epoch, then a list", got)
				}
				if got := r.take("Namespace"); len(got) == 0 {
					t.Error("other kinds were not listed again")
				}
				s.put("pods", metav1.ObjectMeta{UID: "c", Name: "c"})
				synctest.Wait()
				check(t, "in the new epoch", r.take("c"), "observe Pod c")
			})
		})
	}
}

// R4: events and bookmarks count too, once for each series that is out of order.
func TestR4_EventFromThePast(t *testing.T) {
	for _, kind := range []string{"BOOKMARK", "MODIFIED"} {
		t.Run(kind, func(t *testing.T) {
			s := newServer(pods)
			s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
			running(t, s, func(_ *feed.Feed, r *recorder) {
				r.take("Pod", "epoch")
				say := func(revision int) {
					s.change(func() {
						s.send("pods", event{kind, &metav1.PartialObjectMetadata{TypeMeta: partial, ObjectMeta: metav1.ObjectMeta{
							UID: "a", Name: "a", ResourceVersion: strconv.Itoa(revision),
						}}})
					})
					synctest.Wait()
				}
				say(200)
				check(t, "forwards", r.take("epoch"))
				say(150)
				say(140)
				check(t, "backwards", r.take("epoch"), "epoch")
				lists := r.take("replace")
				if listed := len(lists) > 0; listed != (kind == "BOOKMARK") {
					t.Errorf("lists = %v; want another after a bookmark, and none after an event", lists)
				}
				say(201)
				say(199)
				check(t, "backwards again", r.take("epoch"), "epoch")
			})
		})
	}
}

// On a server whose lists and events have unrelated revisions, everything is listed twice at
// most.
func TestR4_ServerThatCannotCount(t *testing.T) {
	s := newServer(pods, namespaces)
	running(t, s, func(_ *feed.Feed, r *recorder) {
		r.take("Namespace")
		for range 10 {
			s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
			time.Sleep(time.Minute)
			s.change(func() {
				s.revision -= 50
				s.hangUp("pods")
			})
			time.Sleep(time.Minute)
			s.change(func() { s.revision += 50 })
		}
		check(t, "another kind", r.take("Namespace"), "replace Namespace []", "replace Namespace []")
	})
}

// R4: backups may be restored any number of times, if not too often. Each time, all kinds are listed again: a watch that is
// resumed would be silent until the new history has passed its revision.
func TestR4_ManyRestores(t *testing.T) {
	s := newServer(pods, namespaces)
	running(t, s, func(_ *feed.Feed, r *recorder) {
		for n := range 5 {
			for range 60 {
				s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
			}
			time.Sleep(time.Hour)
			r.take("Namespace", "epoch")
			s.change(func() {
				s.revision -= 50
				s.hangUp("pods")
				s.hangUp("namespaces")
			})
			time.Sleep(time.Hour)
			if got := r.take("Namespace", "epoch"); !slices.Contains(got, "epoch") || !slices.Contains(got, "replace Namespace []") {
				t.Errorf("restore %d: %v, want an epoch and a list", n, got)
			}
		}
	})
}

// A revision that is not a number cannot be compared.
func TestR4_OpaqueRevisions(t *testing.T) {
	s := newServer(pods)
	running(t, s, func(_ *feed.Feed, r *recorder) {
		for _, revision := range []string{"zzz", "aaa", ""} {
			s.change(func() {
				s.send("pods", event{"MODIFIED", &metav1.PartialObjectMetadata{TypeMeta: partial, ObjectMeta: metav1.ObjectMeta{
					UID: "a", Name: "a", ResourceVersion: revision,
				}}})
			})
			synctest.Wait()
		}
		check(t, "epochs", r.take("epoch"))
	})
}

// R4: the UID of the namespace kube-system shows another server.
func TestR4_AnotherServer(t *testing.T) {
	s := newServer(namespaces, pods)
	s.put("namespaces", metav1.ObjectMeta{UID: "system-1", Name: "kube-system"})
	running(t, s, func(_ *feed.Feed, r *recorder) {
		s.put("namespaces", metav1.ObjectMeta{UID: "system-1", Name: "kube-system"})
		s.put("namespaces", metav1.ObjectMeta{UID: "other", Name: "other"})
		s.put("pods", metav1.ObjectMeta{UID: "p", Name: "kube-system"})
		synctest.Wait()
		check(t, "the same server", r.take("epoch"))
		s.change(func() { delete(s.objects["namespaces"], "system-1") })
		s.put("namespaces", metav1.ObjectMeta{UID: "system-2", Name: "kube-system"})
		synctest.Wait()
		check(t, "another, by an event", r.take("epoch"), "epoch")
		if got := r.take("Pod"); len(got) == 0 || got[len(got)-1] != "replace Pod [p]" {
			t.Errorf("pods = %v, want them listed again", got)
		}
		s.change(func() {
			s.refusal["namespaces"] = 410
			s.hangUp("namespaces")
			s.objects["namespaces"] = nil
		})
		s.put("namespaces", metav1.ObjectMeta{UID: "system-3", Name: "kube-system"})
		time.Sleep(50 * time.Millisecond)
		s.change(func() { delete(s.refusal, "namespaces") })
		time.Sleep(time.Minute)
		check(t, "another, by a list", r.take("epoch"), "epoch")
	})
}
