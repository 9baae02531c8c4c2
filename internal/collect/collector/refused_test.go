package collector_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

var policyKind = ownership.Kind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}

const deniedByPolicy = "ValidatingAdmissionPolicy 'keep' with binding 'keep-all' denied request: it is kept"

func forbidden(pod, text string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod, errors.New(text))
}

// keeping creates a set with two pods that block its foreground deletion, and deletes it; the deletion of the pod "kept"
// is refused.
func keeping(s *apimodel.Server, refusal error) {
	s.Serve(policyKind, ownership.Cluster)
	s.Create(ownership.Object{Kind: policyKind, Name: "keep", UID: "policy"})
	web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "web", UID: "web"})
	for _, name := range []string{"kept", "other"} {
		s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: name, UID: ownership.UID(name), Owners: []ownership.Reference{blocking(ownedBy(web))}})
	}
	synctest.Wait()
	s.Inject(apimodel.Fault{Verb: "delete", Ref: podRef("kept"), Err: refusal})
	s.Remove(setRef("web"), foreground)
	synctest.Wait()
}

// mustRefuse compares the refused objects, without times and counts.
func mustRefuse(t *testing.T, c *collector.Collector, want ...report.RefusedObject) {
	t.Helper()
	got := c.Status().Refused
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(report.RefusedObject{}, "Since", "Last", "Count"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("refused objects (-want +got):\n%s", diff)
	}
	for _, o := range got {
		if o.Since.IsZero() || o.Last.Before(o.Since) || o.Count < 1 {
			t.Errorf("%s is refused since %v, last at %v, %d times", o.Name, o.Since, o.Last, o.Count)
		}
	}
}

var keptPod = report.RefusedObject{
	Kind: "Pod", Namespace: space, Name: "kept", UID: "kept", Action: report.ActionDelete,
	By: "policy", Refuser: "keep", Binding: "keep-all", Message: "it is kept",
}

// R31: the status has the refusal, one Event reports it on the object and on the owner that waits for it, and the
// object is tried again with back-off, and at once when it has changed.
func TestR31_RefusalsAreReported(t *testing.T) {
	events := &eventLog{}
	running(t, collector.Config{Events: events}, func(s *apimodel.Server, c *collector.Collector) {
		keeping(s, forbidden("kept", deniedByPolicy))
		if _, there := s.Lookup(podRef("other")); there {
			t.Error("an object that nobody refuses waits")
		}
		const minutes = 10
		time.Sleep(minutes * time.Minute)
		synctest.Wait()
		mustRefuse(t, c, keptPod)
		tries := countDeletes(s, "kept")
		if got := c.Status().Refused[0].Count; got != tries {
			t.Errorf("%d refusals are counted, want %d", got, tries)
		}
		if quickly := 14; tries < minutes || tries > quickly+minutes*6/5+1 {
			t.Errorf("%d DELETEs in %d minutes", tries, minutes)
		}
		counts := []report.RefusedCount{{Kind: "Pod", By: "policy", Objects: 1}}
		if diff := cmp.Diff(counts, c.Status().RefusedCounts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		events.mustSay(t, "Pod shop/kept GarbageCollectionRefused: the garbage collector cannot delete it: "+deniedByPolicy,
			"ReplicaSet.apps shop/web GarbageCollectionRefused: its deletion waits for Pod shop/kept: the garbage collector cannot delete it: "+deniedByPolicy)

		s.Update(podRef("kept"), addFinalizer("example.com/a"))
		synctest.Wait()
		if got := countDeletes(s, "kept"); got != tries+1 {
			t.Errorf("%d DELETEs after the object has changed, want 1", got-tries)
		}
		s.Heal()
		s.Update(podRef("kept"), removeFinalizer("example.com/a"))
		time.Sleep(time.Second)
		synctest.Wait()
		mustRefuse(t, c)
		if _, there := s.Lookup(setRef("web")); there {
			t.Error("the owner is there after the last refusal")
		}
	})
}

// R31: the story of the deletion has the refusal while it lasts, and afterwards.
func TestR31_StoriesHaveRefusals(t *testing.T) {
	stories := storybook.New()
	running(t, collector.Config{Stories: stories}, func(s *apimodel.Server, _ *collector.Collector) {
		keeping(s, forbidden("kept", deniedByPolicy))
		time.Sleep(time.Minute)
		synctest.Wait()
		summary, during := refusalIn(t, stories, "kept")
		const waits = "Pod shop/kept, refused by ValidatingAdmissionPolicy keep"
		if during.Ended != nil || during.Refuser != "keep" || during.Binding != "keep-all" || during.Message != "it is kept" || during.Count < 2 || summary.WaitsFor != waits {
			t.Errorf("%+v: %+v", summary, during)
		}
		s.Heal()
		s.Update(podRef("kept"), addFinalizer("example.com/a"))
		synctest.Wait()
		s.Update(podRef("kept"), removeFinalizer("example.com/a"))
		time.Sleep(time.Minute)
		synctest.Wait()
		summary, after := refusalIn(t, stories, "kept")
		if after.Ended == nil || after.Message != "it is kept" || after.Count != during.Count || !summary.Done || summary.Gone != 3 {
			t.Errorf("%+v: %+v", summary, after)
		}
	})
}

// R31: an object that stays in the end is no longer refused: it has lost the reference to the owner that is gone.
func TestR31_StoryEndsWithAnObjectThatStays(t *testing.T) {
	stories := storybook.New()
	running(t, collector.Config{Stories: stories}, func(s *apimodel.Server, _ *collector.Collector) {
		keeping(s, forbidden("kept", deniedByPolicy))
		time.Sleep(time.Minute)
		s.Update(podRef("kept"), func(o *ownership.Object) { o.Owners = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		summary, refusal := refusalIn(t, stories, "kept")
		if refusal.Ended == nil || !summary.Done || summary.Kept != 1 || summary.Gone != 2 {
			t.Errorf("%+v: %+v", summary, refusal)
		}
	})
}

// refusalIn returns the only story, and the refusal of one of its objects.
func refusalIn(t *testing.T, stories *storybook.Book, name string) (story.Summary, story.Refusal) {
	t.Helper()
	all := stories.List(nil, time.Now())
	if len(all) != 1 {
		t.Fatalf("stories: %+v", all)
	}
	s, objects, _, _ := stories.Story(all[0].ID, 0, nil, time.Now())
	at := slices.IndexFunc(objects, func(o story.Object) bool { return o.Name == name })
	if at < 0 || objects[at].Refusal == nil {
		t.Fatalf("objects: %+v", objects)
	}
	return s, *objects[at].Refusal
}

// R31: a change of a policy ends the back-off, also if the server applies it a moment later; policies that change all
// the time do not.
func TestR31_ChangesOfRefusersEndBackoff(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, c *collector.Collector) {
		keeping(s, forbidden("kept", deniedByPolicy))
		time.Sleep(time.Hour)
		synctest.Wait()
		before := countDeletes(s, "kept")
		for range 500 {
			s.Update(client.Ref{Kind: policyKind, Name: "keep"}, addFinalizer("example.com/a"))
			s.Update(client.Ref{Kind: policyKind, Name: "keep"}, removeFinalizer("example.com/a"))
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if got := countDeletes(s, "kept") - before; got < 1 || got > 10 {
			t.Errorf("%d DELETEs while a policy has changed a thousand times", got)
		}
		time.Sleep(time.Hour)
		s.Remove(client.Ref{Kind: policyKind, Name: "keep"}, background)
		time.Sleep(time.Second)
		s.Heal()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		mustRefuse(t, c)
		if _, there := s.Lookup(podRef("kept")); there {
			t.Error("the object is there after the policy was deleted")
		}
	})
}

// R31: a refused object is at rest, although it is tried again: at once if only a user can end the refusal, and after
// two seconds if it may end by itself, or if a refuser has changed and the server may not know that yet.
func TestR31_RefusedObjectsAreAtRest(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, c *collector.Collector) {
		isAtRest := func(want bool, when string) {
			t.Helper()
			synctest.Wait()
			if _, unfinished := c.Work(); (len(unfinished) == 0) != want {
				t.Errorf("%s: unfinished work: %q", when, unfinished)
			}
		}
		keeping(s, forbidden("kept", deniedByPolicy))
		isAtRest(false, "the policy is new")
		time.Sleep(10 * time.Second)
		isAtRest(true, "the policy goes on to refuse the deletion")
		s.Inject(apimodel.Fault{Verb: "delete", Ref: podRef("next"), Err: forbidden("next", deniedByPolicy)})
		s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: "next", UID: "next", Owners: []ownership.Reference{{APIVersion: "v1", Kind: "Pod", Name: "none", UID: "none"}}})
		isAtRest(true, "it refuses another one")
		s.Update(client.Ref{Kind: policyKind, Name: "keep"}, addFinalizer("example.com/a"))
		isAtRest(false, "the policy has just changed")
		time.Sleep(10 * time.Second)
		isAtRest(true, "the policy has changed a while ago")

		s.Heal()
		s.Inject(apimodel.Fault{Verb: "delete", Ref: podRef("kept"), Err: apierrors.NewInternalError(errors.New("index out of range"))})
		time.Sleep(time.Minute)
		isAtRest(true, "the server has failed for a minute")
		s.Inject(apimodel.Fault{Verb: "delete", Ref: podRef("late"), Err: apierrors.NewInternalError(errors.New("index out of range"))})
		s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: "late", UID: "late", Owners: []ownership.Reference{{APIVersion: "v1", Kind: "Pod", Name: "none", UID: "none"}}})
		isAtRest(false, "the server has just failed")
		time.Sleep(time.Minute)
		isAtRest(true, "the server goes on to fail")
	})
}

// R31: an owner is at rest when nothing holds it but the refusal to remove its finalizer.
func TestR31_OwnerThatKeepsItsFinalizerIsAtRest(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, c *collector.Collector) {
		s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "web", UID: "web"})
		s.Inject(apimodel.Fault{Verb: "patch finalizers", Ref: setRef("web"), Err: forbidden("web", deniedByPolicy)})
		synctest.Wait()
		s.Remove(setRef("web"), orphan)
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, unfinished := c.Work(); len(unfinished) > 0 || len(c.Status().Refused) != 1 {
			t.Errorf("unfinished work: %q; refused: %+v", unfinished, c.Status().Refused)
		}
	})
}

// R31: an owner is at rest when a dependent that it is to be detached from may not be changed, but not while another
// one only failed.
func TestR31_OwnersOfRefusedDependentsAreAtRest(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, c *collector.Collector) {
		web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "web", UID: "web"})
		for name, err := range map[string]error{"kept": forbidden("kept", deniedByPolicy), "late": apierrors.NewServiceUnavailable("later")} {
			s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: name, UID: ownership.UID(name), Owners: []ownership.Reference{ownedBy(web)}})
			s.Inject(apimodel.Fault{Verb: "patch owners", Ref: podRef(name), Err: err})
		}
		synctest.Wait()
		s.Remove(setRef("web"), orphan)
		synctest.Wait()
		if _, unfinished := c.Work(); len(unfinished) == 0 {
			t.Error("a dependent is to be detached, and the owner is at rest")
		}
		s.Heal()
		s.Inject(apimodel.Fault{Verb: "patch owners", Ref: podRef("kept"), Err: forbidden("kept", deniedByPolicy)})
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, unfinished := c.Work(); len(unfinished) > 0 {
			t.Errorf("unfinished work: %q", unfinished)
		}
	})
}

// R31: an answer of a webhook is no proof about the object, whatever its code: the object is not called gone (R3), and
// is not read again and again as after a conflict.
func TestR31_WebhooksChooseCodes(t *testing.T) {
	for reason, code := range map[metav1.StatusReason]int32{metav1.StatusReasonNotFound: 404, metav1.StatusReasonConflict: 409, metav1.StatusReasonTooManyRequests: 429} {
		running(t, collector.Config{}, func(s *apimodel.Server, c *collector.Collector) {
			keeping(s, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: code, Reason: reason, Details: &metav1.StatusDetails{Kind: "pods", Name: "kept", RetryAfterSeconds: 1 << 20},
				Message: `admission webhook "keep.example.com" denied the request: no`,
			}})
			want := keptPod
			want.By, want.Refuser, want.Binding, want.Message = "webhook", "keep.example.com", "", "no"
			mustRefuse(t, c, want)
			if stats := c.Stats(); stats.Conflicts != 0 || stats.Gets != 0 {
				t.Errorf("%s: %+v", reason, stats)
			}
			s.Heal()
			time.Sleep(time.Minute)
			synctest.Wait()
			if _, there := s.Lookup(podRef("kept")); there {
				t.Errorf("%s: the object is not tried again", reason)
			}
		})
	}
}

// R31: there is no Event about a webhook that is away for seconds.
func TestR31_ShortFailuresAreNoEvents(t *testing.T) {
	events := &eventLog{}
	running(t, collector.Config{Events: events}, func(s *apimodel.Server, c *collector.Collector) {
		keeping(s, apierrors.NewInternalError(errors.New(`failed calling webhook "keep.example.com": failed to call webhook: no endpoints available for service "keep"`)))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		want := keptPod
		want.By, want.Refuser, want.Binding, want.Message = "unreachable-webhook", "keep.example.com", "", `failed to call webhook: no endpoints available for service "keep"`
		mustRefuse(t, c, want)
		events.mustSay(t)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		events.mustSay(t, "Pod shop/kept GarbageCollectionRefused", "ReplicaSet.apps shop/web GarbageCollectionRefused")
	})
}

// R31: a dependent that cannot be detached is reported, and on the owner that keeps its finalizer for it (R13).
func TestR31_RefusedDetachmentHoldsTheOwner(t *testing.T) {
	events := &eventLog{}
	w := newFixtureWith(t, collector.Config{Events: events})
	web := w.set("web")
	w.pod("kept", ownedBy(web))
	w.settle()
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "kept", nil)
	w.Inject(apimodel.Fault{Verb: "patch owners", Ref: podRef("kept"), Err: invalid})
	w.Remove(setRef("web"), orphan)
	w.drain()
	w.drain()
	want := keptPod
	want.Action, want.By, want.Refuser, want.Binding, want.Message = report.ActionOrphan, "server", "", "", invalid.Error()
	mustRefuse(t, w.c, want)
	w.Update(podRef("kept"), addFinalizer("example.com/a"))
	w.drain()
	mustRefuse(t, w.c, want)
	events.mustSay(t, "Pod shop/kept GarbageCollectionRefused: the garbage collector cannot detach it from its owners",
		"ReplicaSet.apps shop/web GarbageCollectionRefused: its deletion waits for Pod shop/kept")
	w.mustExist(setRef("web"))
	w.Heal()
	w.settle()
	mustRefuse(t, w.c)
	w.mustBeGone(setRef("web"))
}

// R31: an object that changes all the time is tried less and less often.
func TestR31_ChangingObjectsAreTriedSeldom(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, c *collector.Collector) {
		keeping(s, forbidden("kept", deniedByPolicy))
		time.Sleep(time.Hour)
		before := countDeletes(s, "kept")
		const changes = 1200
		for n := range changes {
			change := addFinalizer("example.com/a")
			if n%2 == 1 {
				change = removeFinalizer("example.com/a")
			}
			s.Update(podRef("kept"), change)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if got := countDeletes(s, "kept") - before; got < 2 || got > 20 {
			t.Errorf("%d DELETEs while the object has changed %d times in two minutes", got, changes)
		}
		s.Heal()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		mustRefuse(t, c)
	})
}

// R31: a refusal is forgotten when the object is to stay, or is gone.
func TestR31_RefusalsAreForgotten(t *testing.T) {
	w := newFixture(t)
	w.pod("kept", absent("a"))
	w.pod("gone", absent("b"))
	for _, name := range []string{"kept", "gone"} {
		w.Inject(apimodel.Fault{Verb: "delete", Ref: podRef(name), Err: forbidden(name, deniedByPolicy)})
	}
	w.drain()
	if got := len(w.c.Status().Refused); got != 2 {
		t.Fatalf("%d refused objects, want 2", got)
	}
	w.Update(podRef("kept"), removeOwner("never-a"))
	w.Remove(podRef("gone"), background)
	w.drain()
	mustRefuse(t, w.c)
}
