package conformance

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Objects change between two requests. The test acts just before a request of the collector is
// sent.
func TestConflictsAreDecidedAgain(t *testing.T) {
	t.Run("CF-01 an object of which nothing is known but a claim: one read, one deletion", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		gone := probe.Nobody(probe.ConfigMaps)
		gone.Name = "never-there" // settle makes objects whose owner is called nobody
		o := w.Create(probe.Secrets, "object", probe.OwnedBy(gone))
		w.EventuallyGone(o)
		w.Settle(probe.Secrets)
		if got := tap.count(match{verbs: "get", kind: probe.ConfigMaps, name: gone.Name}); got != 1 {
			t.Errorf("%d reads of the owner", got)
		}
		if got := tap.count(about(o, "get")); got != 0 {
			t.Errorf("%d reads of the object before it was deleted", got)
		}
		if got := tap.count(about(o, "delete")); got != 1 {
			t.Errorf("%d deletions of the object", got)
		}
	})
	t.Run("CF-02 an object that goes before it is deleted", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		owner := w.Create(probe.ConfigMaps, "owner")
		o := w.Create(probe.Secrets, "object", probe.OwnedBy(probe.Ref(owner)))
		w.Settle(probe.ConfigMaps, probe.Secrets)
		tap.before(about(o, "delete"), func() { w.Remove(o, probe.Background) })
		w.Remove(owner, probe.Background)
		w.EventuallyGone(o)
		w.Settle(probe.Secrets)
		if got := tap.count(about(o, "delete")); got != 1 {
			t.Errorf("%d deletions of an object that was gone at the first", got)
		}
	})
	t.Run("CF-03 a blocking dependent that goes before it is deleted", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		owner := w.Create(probe.ConfigMaps, "owner")
		o := w.Create(probe.Secrets, "object", probe.OwnedBy(probe.Blocking(owner)))
		w.Settle(probe.ConfigMaps, probe.Secrets)
		tap.before(about(o, "delete"), func() { w.Remove(o, probe.Background) })
		w.Remove(owner, probe.Foreground)
		w.EventuallyGone(o, owner)
	})
	t.Run("CF-04 an object that changes, but not its owners, is deleted on new conditions", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		owner := w.Create(probe.ConfigMaps, "owner")
		o := w.Create(probe.Secrets, "object", probe.OwnedBy(probe.Ref(owner)))
		w.Settle(probe.ConfigMaps, probe.Secrets)
		tap.before(about(o, "delete"), func() { w.Patch(o, map[string]any{"labels": map[string]string{"changed": "yes"}}) })
		w.Remove(owner, probe.Background)
		w.EventuallyGone(o)
		deletes := tap.calls(about(o, "delete"))
		if len(deletes) < 2 {
			t.Errorf("%d deletions, and the first was to conflict", len(deletes))
		}
		for _, c := range deletes {
			var options metav1.DeleteOptions // as JSON or as protobuf
			if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(c.body, nil, &options); err != nil {
				t.Fatal(err)
			}
			if p := options.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil {
				t.Errorf("a deletion without conditions: %v", &options)
			}
		}
	})
	t.Run("CF-04 an object that is adopted just before it is deleted stays", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		owner, adopter := w.Create(probe.ConfigMaps, "owner"), w.Create(probe.ConfigMaps, "adopter")
		o := w.Create(probe.Secrets, "object", probe.OwnedBy(probe.Ref(owner)))
		w.Settle(probe.ConfigMaps, probe.Secrets)
		tap.before(about(o, "delete"), func() { w.SetOwners(o, probe.Ref(owner), probe.Ref(adopter)) })
		w.Remove(owner, probe.Background)
		w.EventuallyOwned(o, probe.Ref(adopter))
		w.Stay(o)
	})
}

// The hazards that depend on a short moment, each observed on upstream.
func TestObjectsThatChangeBeforeARequestStay(t *testing.T) {
	t.Run("H1 the orphan finalizer of an owner that was recreated under its name stays", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		owner := w.Create(probe.ConfigMaps, "owner")
		before := w.Create(probe.Secrets, "before", probe.OwnedBy(probe.Blocking(owner)))
		w.Settle(probe.ConfigMaps, probe.Secrets)
		resume := tap.stall(probe.Secrets)
		made := make(chan []probe.Object, 1)
		tap.before(about(owner, "patch"), func() {
			w.LetGo(owner)
			again := w.Create(probe.ConfigMaps, "owner")
			made <- []probe.Object{again, w.Create(probe.Secrets, "after", probe.OwnedBy(probe.Blocking(again)))}
			w.Remove(again, probe.Orphan)
		})
		w.Remove(owner, probe.Orphan)
		w.Settle(probe.ConfigMaps)
		resume()
		w.EventuallyGone(owner)
		var anew []probe.Object
		eventually.Agrees(t, func() string {
			select {
			case anew = <-made:
				return ""
			default:
				return "the hazard was not met: no write to the owner"
			}
		})
		w.EventuallyGone(anew[0])
		w.AreOrphans(before, anew[1])
	})
	t.Run("H2 a dependent that was recreated under its name keeps its owners", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		gizmos := w.Define("gizmos")
		w.collect(tap)
		owner, live := w.Create(probe.ConfigMaps, "owner"), w.Create(probe.ConfigMaps, "live")
		dependent := w.Create(gizmos, "dependent", probe.OwnedBy(probe.Blocking(owner)))
		w.Settle(probe.ConfigMaps, gizmos)
		made := make(chan probe.Object, 1)
		tap.before(about(dependent, "patch"), func() {
			w.Remove(dependent, probe.Background)
			made <- w.Create(gizmos, "dependent", probe.OwnedBy(probe.Ref(live)))
		})
		w.Remove(owner, probe.Orphan)
		w.EventuallyGone(owner) // not before the dependent was tried
		again := <-made
		w.EventuallyOwned(again, probe.Ref(live))
		w.Stay(again)
	})
	t.Run("H3a a reference that was removed by hand stays removed", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		first := w.Create(probe.ConfigMaps, "first", probe.Held)
		second := w.Create(probe.ConfigMaps, "second", probe.OwnedBy(probe.Blocking(first)), probe.Held)
		w.SetOwners(first, probe.Blocking(second))
		w.Settle(probe.ConfigMaps)
		tap.before(about(second, "patch"), func() { w.SetOwners(second) })
		w.Remove(first, probe.Foreground)
		w.Remove(second, probe.Foreground)
		// Nothing blocks first any longer. Whether first still blocks second depends on whether
		// its reference was unblocked before the other one was removed.
		w.EventuallyFinalizers(first, probe.Hold)
		w.EventuallyOwned(second)
		w.LetGo(first)
		w.EventuallyFinalizers(second, probe.Hold)
		w.EventuallyOwned(second)
	})
	t.Run("H3b an adoption is not erased", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		gizmos := w.Define("gizmos")
		w.collect(tap)
		held, doomed, adopter := w.Create(gizmos, "held"), w.Create(gizmos, "doomed"), w.Create(gizmos, "adopter")
		o := w.Create(gizmos, "object", probe.OwnedBy(probe.Ref(held), probe.Ref(doomed)))
		w.Settle(gizmos)
		tap.before(about(o, "patch"), func() { w.SetOwners(o, probe.Ref(held), probe.Ref(doomed), probe.Ref(adopter)) })
		w.Remove(doomed, probe.Background)
		w.EventuallyOwned(o, probe.Ref(held), probe.Ref(adopter))
		w.Remove(held, probe.Background)
		w.EventuallyOwned(o, probe.Ref(adopter))
		w.Stay(o)
	})
	t.Run("H5 an adoption between two attempts to delete", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		owner, adopter := w.Create(probe.ConfigMaps, "owner"), w.Create(probe.ConfigMaps, "adopter")
		o := w.Create(probe.Secrets, "object", probe.OwnedBy(probe.Ref(owner)))
		w.Settle(probe.ConfigMaps, probe.Secrets)
		tap.before(about(o, "delete"), func() {
			w.Patch(o, map[string]any{"labels": map[string]string{"changed": "yes"}})
			tap.before(about(o, "delete"), func() { w.SetOwners(o, probe.Ref(owner), probe.Ref(adopter)) })
		})
		w.Remove(owner, probe.Background)
		w.EventuallyOwned(o, probe.Ref(adopter))
		w.Stay(o)
		if got := tap.count(about(o, "delete")); got < 2 {
			t.Errorf("the hazard was not met: %d deletions", got)
		}
	})
	for verb, policy := range map[string]metav1.DeletionPropagation{"delete": probe.Background, "patch": probe.Orphan} {
		t.Run("R12 an answer that is lost: "+verb, func(t *testing.T) {
			w, tap := quiet(t), &tap{}
			w.collect(tap)
			owner := w.Create(probe.ConfigMaps, "owner")
			o := w.Create(probe.Secrets, "object", probe.OwnedBy(probe.Ref(owner)))
			w.Settle(probe.ConfigMaps, probe.Secrets)
			tap.lose(about(o, verb))
			w.Remove(owner, policy)
			w.EventuallyGone(owner)
			if policy == probe.Background {
				w.EventuallyGone(o)
				return
			}
			w.AreOrphans(o)
		})
	}
}
