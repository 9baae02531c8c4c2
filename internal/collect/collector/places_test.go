package collector_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// hangingKind is a kind whose requests hang, or one of several.
func hangingKind(i int) ownership.Kind {
	return ownership.Kind{Group: "example.com", Kind: fmt.Sprint("Hanging", i)}
}

// hanging returns references to different owners of such a kind.
func hanging(kind int, name string, n int) []ownership.Reference {
	var owners []ownership.Reference
	for i := range n {
		one := fmt.Sprint(kind, "-", name, "-", i)
		owners = append(owners, ownership.Reference{APIVersion: "example.com/v1", Kind: hangingKind(kind).Kind, Name: one, UID: ownership.UID(one)})
	}
	return owners
}

// garbage creates objects that have nothing to do with the hanging kinds: all but the last one with one owner.
func garbage(s *apimodel.Server, n int) {
	for i := range n {
		s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: fmt.Sprint("other-", i), Owners: []ownership.Reference{absent(fmt.Sprint(i))}})
	}
	var many []ownership.Reference
	for i := range manyOwners {
		many = append(many, absent(fmt.Sprint("many-", i)))
	}
	s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: "many", Owners: many})
}

// L5: hundreds of objects wait for requests of kinds that hang: reads of their owners, of which each has one or many, or
// their own deletions. That delays nothing else by more than some seconds, also if there are fewer workers than such kinds,
// neither objects with one owner, nor objects with many. When the kinds answer, all are decided on.
func TestL5_RequestsThatHangDelayOnlyTheirKind(t *testing.T) {
	const others = 500
	for name, test := range map[string]struct {
		objects, workers, kinds, owners, dependents int // dependents: of each owner
		verb                                        string
	}{
		"one owner each":               {200, 64, 1, 1, 1, "get"},
		"one owner for three":          {200, 64, 2, 1, 3, "get"},
		"many owners each":             {200, 64, 1, manyOwners, 1, "get"},
		"many kinds":                   {1000, 64, 20, 1, 1, "get"},
		"very many kinds":              {3000, 64, 100, 1, 1, "get"},
		"many kinds, with many owners": {200, 64, 20, manyOwners, 1, "get"},
		"fewer workers than kinds":     {200, 4, 8, 1, 1, "get"},
		"one worker":                   {200, 1, 1, 1, 1, "get"},
		"deletions":                    {200, 64, 2, 1, 1, "delete"},
		"deletions, with few workers":  {200, 4, 8, 1, 1, "delete"},
	} {
		t.Run(name, func(t *testing.T) {
			config := collector.Config{Workers: test.workers, Batch: 1000, Limiter: pace.New(32, 256, clock.RealClock{}.Now)}
			running(t, config, func(s *apimodel.Server, _ *collector.Collector) {
				answers := make(chan struct{})
				for kind := range test.kinds {
					s.Serve(hangingKind(kind), ownership.Namespaced)
					s.Inject(apimodel.Fault{Verb: test.verb, Kind: hangingKind(kind), Wait: answers})
				}
				for i := range test.objects {
					kind, of := i%test.kinds, podKind
					owners := hanging(kind, fmt.Sprint(i/test.kinds/test.dependents), test.owners)
					if test.verb == "delete" {
						of, owners = hangingKind(kind), []ownership.Reference{absent(fmt.Sprint("owner-", i))}
					}
					s.Create(ownership.Object{Kind: of, Namespace: space, Name: fmt.Sprint("hanging-", i), Owners: owners})
				}
				synctest.Wait()
				garbage(s, others)
				// Workers may wait once for each kind, before that is known to hang.
				time.Sleep(time.Duration(3+test.kinds) * pace.Patience)
				synctest.Wait()
				if got := s.Len(); got != test.objects {
					t.Errorf("%d objects are left besides the %d that wait", got-test.objects, test.objects)
				}
				close(answers)
				time.Sleep(10 * time.Minute)
				if got := s.Len(); got > 0 {
					t.Errorf("%d objects are left although all owners are absent", got)
				}
			})
		})
	}
}

// L5: a kind whose requests have no answer until they are given up gets few of them, and they keep no worker.
func TestL5_KindWithoutAnswersGetsFewRequests(t *testing.T) {
	const objects, timeout, minutes = 200, time.Minute, 30
	running(t, collector.Config{Workers: 4}, func(s *apimodel.Server, _ *collector.Collector) {
		s.Serve(hangingKind(0), ownership.Namespaced)
		s.Inject(apimodel.Fault{Verb: "delete", Kind: hangingKind(0), Err: context.DeadlineExceeded})
		s.Before(func(r apimodel.Request) {
			if r.Verb == "delete" && r.Ref.Kind == hangingKind(0) {
				time.Sleep(timeout)
			}
		})
		for i := range objects {
			s.Create(ownership.Object{Kind: hangingKind(0), Namespace: space, Name: fmt.Sprint(i), Owners: []ownership.Reference{absent(fmt.Sprint(i))}})
		}
		time.Sleep(minutes * timeout)
		for range 2 { // also when the kind is known to hang
			garbage(s, 50)
			time.Sleep(pace.Patience / 2)
			if got := s.Len(); got != objects {
				t.Errorf("%d other objects are left", got-objects)
			}
		}
		sent := 0
		for _, r := range s.Requests() {
			if r.Verb == "delete" && r.Ref.Kind == hangingKind(0) {
				sent++
			}
		}
		if most := 20 + 2*minutes; sent < minutes || sent > most {
			t.Errorf("%d requests for the kind in %d minutes, want at most %d", sent, minutes, most)
		}
		s.Heal()
		s.Before(func(apimodel.Request) {})
		time.Sleep(time.Hour) // the longest back-off
		if got := s.Len(); got > 0 {
			t.Errorf("%d objects are left although the kind answers", got)
		}
	})
}

// L5: a kind whose answers always take longer than the collector's patience costs no request too many: neither the objects
// that wait, nor their owners, are read again and again.
func TestL5_SlowKindCostsNoMoreRequests(t *testing.T) {
	for _, objects := range []int{50, 200} {
		config := collector.Config{Batch: 1000, Limiter: pace.New(32, 256, clock.RealClock{}.Now)}
		running(t, config, func(s *apimodel.Server, _ *collector.Collector) {
			s.Serve(hangingKind(0), ownership.Namespaced)
			s.Before(func(r apimodel.Request) {
				if r.Verb == "get" && r.Ref.Kind == hangingKind(0) {
					time.Sleep(pace.Patience + 100*time.Millisecond)
				} else {
					time.Sleep(time.Millisecond)
				}
			})
			for i := range objects {
				s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: fmt.Sprint("p-", i), Owners: hanging(0, fmt.Sprint(i), manyOwners)})
			}
			time.Sleep(time.Duration(objects) * time.Minute)
			own, owners := 0, 0
			for _, r := range s.Requests() {
				switch {
				case r.Verb == "get" && r.Ref.Kind == hangingKind(0):
					owners++
				case r.Verb == "get":
					own++
				}
			}
			if left := s.Len(); left > 0 || owners != objects*manyOwners || own > 3*objects {
				t.Errorf("%d of %d objects are left after %d reads of owners and %d of objects", left, objects, owners, own)
			}
		})
	}
}

// L5: a kind that hung, and answers again, is as fast as before: its objects do not wait for each other.
func TestL5_KindThatAnswersAgainIsFast(t *testing.T) {
	const objects = 1000
	running(t, collector.Config{}, func(s *apimodel.Server, c *collector.Collector) {
		s.Serve(hangingKind(0), ownership.Namespaced)
		answers := make(chan struct{})
		s.Inject(apimodel.Fault{Verb: "delete", Kind: hangingKind(0), Wait: answers})
		s.Before(func(apimodel.Request) { time.Sleep(10 * time.Millisecond) })
		for i := range objects {
			s.Create(ownership.Object{Kind: hangingKind(0), Namespace: space, Name: fmt.Sprint(i), Owners: []ownership.Reference{absent(fmt.Sprint(i))}})
		}
		time.Sleep(time.Minute)
		if _, unfinished := c.Work(); len(unfinished) == 0 {
			t.Error("nothing is said of the objects that wait")
		}
		close(answers)
		time.Sleep(3 * time.Second)
		if left := s.Len(); left > 0 {
			t.Errorf("%d objects are left 3 seconds after the first answer", left)
		}
		if _, unfinished := c.Work(); len(unfinished) > 0 {
			t.Errorf("unfinished: %q", unfinished)
		}
	})
}

// L5: objects of a slow kind that fail are tried again after their back-off, not as soon as there is a place for them.
func TestL5_FailuresOfASlowKindKeepTheirBackOff(t *testing.T) {
	const objects = 60
	tries := func(took time.Duration) (n int) {
		config := collector.Config{Batch: 1000, Limiter: pace.New(32, 256, clock.RealClock{}.Now)}
		running(t, config, func(s *apimodel.Server, _ *collector.Collector) {
			s.Serve(hangingKind(0), ownership.Namespaced)
			s.Inject(apimodel.Fault{Verb: "delete", Kind: hangingKind(0), Err: apierrors.NewInternalError(errors.New("conversion failed"))})
			s.Before(func(apimodel.Request) { time.Sleep(took) })
			for i := range objects {
				s.Create(ownership.Object{Kind: hangingKind(0), Namespace: space, Name: fmt.Sprint(i), Owners: []ownership.Reference{absent(fmt.Sprint(i))}})
			}
			time.Sleep(time.Hour)
			before := s.Count("delete")
			time.Sleep(time.Hour)
			n = s.Count("delete") - before
		})
		return n
	}
	quick := tries(pace.Patience / 2)
	if slow := tries(2 * pace.Patience); slow > quick+quick/4 || slow < quick/4 {
		t.Errorf("%d DELETEs of %d objects in an hour, want about as many as of a quick kind, %d", slow, objects, quick)
	}
}

// L5: namespaces take turns for the places of a slow kind, too.
func TestL5_NamespacesTakeTurnsForASlowKind(t *testing.T) {
	const objects, others = 2000, 3
	config := collector.Config{Limiter: pace.New(32, 256, clock.RealClock{}.Now)}
	running(t, config, func(s *apimodel.Server, c *collector.Collector) {
		s.Before(func(r apimodel.Request) {
			if r.Verb == "delete" {
				time.Sleep(2 * pace.Patience)
			}
		})
		for i := range objects {
			s.Create(ownership.Object{Kind: podKind, Namespace: "crowd", Name: fmt.Sprint("crowd-", i), Owners: []ownership.Reference{absent(fmt.Sprint(i))}})
		}
		time.Sleep(10 * pace.Patience)
		for i := range others {
			s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: fmt.Sprint("other-", i), Owners: []ownership.Reference{absent(fmt.Sprint(i))}})
		}
		time.Sleep(10*pace.Patience + pace.Patience/2) // between two answers
		synctest.Wait()
		if got, all := c.Backlog("crowd"), c.Status().Queue.Length; got < objects/2 || got > objects || all < got {
			t.Errorf("%d objects of the namespace wait, and %d in all; %d were created", got, all, objects)
		}
		for i := range others {
			if _, isThere := s.Lookup(podRef(fmt.Sprint("other-", i))); isThere {
				t.Errorf("other-%d waits for the objects of another namespace", i)
			}
		}
		if s.Len() < objects/2 {
			t.Errorf("only %d objects are left: nothing had to wait", s.Len())
		}
	})
}

// L5: the owner of many dependents of a slow kind looks at each of them once or twice, however few places there are.
func TestL5_OrphansOfASlowKindAreVisitedOnce(t *testing.T) {
	const dependents = 500
	var looks atomic.Int64
	config := collector.Config{Await: func(ctx context.Context) error { looks.Add(1); return ctx.Err() }}
	running(t, config, func(s *apimodel.Server, _ *collector.Collector) {
		crowd(s, dependents)
		synctest.Wait()
		s.Before(func(r apimodel.Request) {
			if r.Verb == "patch owners" {
				time.Sleep(2 * pace.Patience)
			}
		})
		before := looks.Load()
		s.Remove(setRef("web"), orphan)
		time.Sleep(time.Hour)
		if _, isThere := s.Lookup(setRef("web")); isThere {
			t.Error("the owner is still there")
		}
		if got := looks.Load() - before; got > 4*dependents {
			t.Errorf("%d looks at %d dependents", got, dependents)
		}
	})
}

// L5: the writes to the dependents of many owners that are being orphaned hang. They delay nothing else, and take no more
// requests than other decisions about such a kind.
func TestL5_OrphansOfAKindThatHangs(t *testing.T) {
	const owners, dependents, others = 20, 100, 500
	config := collector.Config{Batch: 1000, Limiter: pace.New(32, 256, clock.RealClock{}.Now)}
	running(t, config, func(s *apimodel.Server, _ *collector.Collector) {
		s.Serve(hangingKind(0), ownership.Namespaced)
		answers := make(chan struct{})
		s.Inject(apimodel.Fault{Verb: "patch owners", Kind: hangingKind(0), Wait: answers})
		for i := range owners {
			web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: fmt.Sprint("web-", i)})
			for n := range dependents {
				s.Create(ownership.Object{Kind: hangingKind(0), Namespace: space, Name: fmt.Sprint("part-", i, "-", n), Owners: []ownership.Reference{ownedBy(web)}})
			}
		}
		synctest.Wait()
		for i := range owners {
			s.Remove(setRef(fmt.Sprint("web-", i)), orphan)
		}
		synctest.Wait()
		garbage(s, others)
		time.Sleep(4 * pace.Patience)
		if got := s.Len(); got != owners*(1+dependents) {
			t.Errorf("%d objects are left besides the %d that wait", got-owners*(1+dependents), owners*(1+dependents))
		}
		close(answers)
		time.Sleep(10 * time.Minute)
		if got := s.Len(); got != owners*dependents {
			t.Errorf("%d objects are left, want the %d orphans", got, owners*dependents)
		}
	})
}

// L5: an object of another namespace does not wait until all orphans of a slow kind are detached.
func TestL5_OrphansTakeTurnsForASlowKind(t *testing.T) {
	const owners, dependents = 20, 200
	config := collector.Config{Batch: 1000, Limiter: pace.New(32, 256, clock.RealClock{}.Now)}
	running(t, config, func(s *apimodel.Server, _ *collector.Collector) {
		s.Before(func(r apimodel.Request) {
			if r.Ref.Kind == podKind {
				time.Sleep(2 * pace.Patience)
			}
		})
		for i := range owners {
			web := s.Create(ownership.Object{Kind: setKind, Namespace: "crowd", Name: fmt.Sprint("web-", i)})
			for n := range dependents {
				s.Create(ownership.Object{Kind: podKind, Namespace: "crowd", Name: fmt.Sprint("part-", i, "-", n), Owners: []ownership.Reference{ownedBy(web)}})
			}
		}
		synctest.Wait()
		for i := range owners {
			s.Remove(client.Ref{Kind: setKind, Namespace: "crowd", Name: fmt.Sprint("web-", i)}, orphan)
		}
		time.Sleep(10 * pace.Patience)
		s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: "other", Owners: []ownership.Reference{absent("gone")}})
		// The decisions let others have their places soon, and 4000 requests take longer.
		time.Sleep(200 * pace.Patience)
		if _, isThere := s.Lookup(podRef("other")); isThere {
			t.Error("the object of another namespace still waits")
		}
		if _, isThere := s.Lookup(client.Ref{Kind: setKind, Namespace: "crowd", Name: fmt.Sprint("web-", owners-1)}); !isThere {
			t.Error("all orphans were detached meanwhile: nothing had to wait")
		}
		time.Sleep(time.Hour)
		if got := s.Len(); got != owners*dependents {
			t.Errorf("%d objects are left, want the %d orphans", got, owners*dependents)
		}
	})
}

// L5: the owners of many dependents of a slow kind make progress beside other decisions about that kind, and these do, too,
// although dependents change all the time. The dependents that cannot be detached hold up no others.
func TestL5_OrphansOfASlowKindThatFail(t *testing.T) {
	const owners, dependents, failing, others = 20, 90, 75, 50
	for name, failure := range map[string]error{
		"failures": apierrors.NewInternalError(errors.New("conversion failed")),
		"refusals": webhookerrors.ToStatusErr("keep.example.com", &metav1.Status{Code: http.StatusForbidden, Message: "kept"}),
	} {
		t.Run(name, func(t *testing.T) {
			config := collector.Config{Batch: 1000, Limiter: pace.New(32, 256, clock.RealClock{}.Now)}
			running(t, config, func(s *apimodel.Server, _ *collector.Collector) {
				s.Before(func(r apimodel.Request) {
					if r.Ref.Kind == podKind {
						time.Sleep(2 * pace.Patience)
					}
				})
				for i := range owners {
					web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: fmt.Sprint("web-", i)})
					for n := range dependents {
						part := s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: fmt.Sprint("part-", i, "-", n), Owners: []ownership.Reference{ownedBy(web)}})
						if n < failing {
							s.Inject(apimodel.Fault{Verb: "patch owners", Ref: client.RefOf(part), Err: failure})
						}
					}
				}
				synctest.Wait()
				for i := range owners {
					s.Remove(setRef(fmt.Sprint("web-", i)), orphan)
				}
				created := 0
				fill := func() { // others are always there
					for ; s.Len() < owners*(1+dependents)+others; created++ {
						s.Create(ownership.Object{Kind: podKind, Namespace: "crowd", Name: fmt.Sprint(created), Owners: []ownership.Reference{absent(fmt.Sprint(created))}})
					}
				}
				for range 900 { // each second
					fill()
					for i := range owners {
						s.Update(podRef(fmt.Sprint("part-", i, "-", 0)), func(*ownership.Object) {})
					}
					time.Sleep(pace.Patience)
				}
				owned := 0
				for i := range owners * dependents {
					part, _ := s.Lookup(podRef(fmt.Sprint("part-", i/dependents, "-", i%dependents)))
					owned += len(part.Owners)
				}
				if owned != owners*failing {
					t.Errorf("%d dependents have their owner, want the %d that cannot be detached", owned, owners*failing)
				}
				// There is time for 7200 requests, and a visit of an owner sends some.
				if created < 800 {
					t.Errorf("only %d other objects were created, because they were not deleted", created)
				}
				s.Heal()
				time.Sleep(time.Hour)
				if got := s.Len(); got != owners*dependents {
					t.Errorf("%d objects are left, want the %d orphans", got, owners*dependents)
				}
			})
		})
	}
}

// L5: a dependent that could not be detached once is tried again after a while, although its owner also waits for a kind that
// gives no answer.
func TestL5_FailedOrphansDoNotWaitForAKindWithoutAnswers(t *testing.T) {
	const owners, silent = 20, 5
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		s.Serve(hangingKind(0), ownership.Namespaced)
		s.Inject(apimodel.Fault{Verb: "patch owners", Kind: hangingKind(0), Err: context.DeadlineExceeded})
		s.Before(func(r apimodel.Request) {
			if r.Ref.Kind == hangingKind(0) {
				time.Sleep(time.Minute)
			}
		})
		part := func(i int) client.Ref { return podRef(fmt.Sprint("part-", i)) }
		for i := range owners {
			web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: fmt.Sprint("web-", i)})
			owned := []ownership.Reference{ownedBy(web)}
			s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: part(i).Name, Owners: owned})
			for n := range silent {
				s.Create(ownership.Object{Kind: hangingKind(0), Namespace: space, Name: fmt.Sprint("silent-", i, "-", n), Owners: owned})
			}
		}
		synctest.Wait()
		for i := range owners {
			s.Remove(setRef(fmt.Sprint("web-", i)), orphan)
			s.Inject(apimodel.Fault{Verb: "patch owners", Ref: part(i), Err: apierrors.NewInternalError(errors.New("conversion failed")), Times: 3})
		}
		time.Sleep(20 * time.Minute)
		for i := range owners {
			if o, _ := s.Lookup(part(i)); len(o.Owners) > 0 {
				t.Errorf("%s is attached", part(i))
			}
		}
		s.Heal()
		s.Before(func(apimodel.Request) {})
		time.Sleep(10 * time.Minute)
		if got := s.Len(); got != owners*(1+silent) {
			t.Errorf("%d objects are left, want the %d orphans", got, owners*(1+silent))
		}
	})
}
