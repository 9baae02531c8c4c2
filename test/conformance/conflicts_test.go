package conformance

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// What is written where.
func TestWrites(t *testing.T) {
	t.Parallel()
	t.Run("CF-05 detaching removes the references it is about, and leaves the others as they are", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		solid, leaving, waiting := w.create(configMaps, "solid"), w.create(configMaps, "leaving"), w.create(configMaps, "waiting", held)
		kept, controller := notBlocking(solid), controlled(w.create(secrets, "controller"))
		o := w.create(pods, "pod", ownedBy(nobody(configMaps), kept, blocking(leaving), controller, blocking(waiting)), held)
		w.eventuallyOwned(o, kept, blocking(leaving), controller, blocking(waiting))
		w.remove(waiting, foreground)
		w.eventuallyOwned(o, kept, blocking(leaving), controller)
		w.remove(leaving, background)
		w.eventuallyOwned(o, kept, controller)
		w.eventuallyFinalizers(o, hold)
		w.stay(o)
	})
}

// Objects change between two requests. The test acts just before a request of the collector is
// sent.
func TestConflicts(t *testing.T) {
	t.Run("CF-01 an object of which nothing is known but a claim: one read, one deletion", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		gone := nobody(configMaps)
		gone.Name = "never-there" // settle makes objects whose owner is called nobody
		o := w.create(secrets, "object", ownedBy(gone))
		w.eventuallyGone(o)
		w.settle(secrets)
		if got := tap.count(match{verbs: "get", kind: configMaps, name: gone.Name}); got != 1 {
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
		owner := w.create(configMaps, "owner")
		o := w.create(secrets, "object", ownedBy(ref(owner)))
		w.settle(configMaps, secrets)
		tap.before(about(o, "delete"), func() { w.remove(o, background) })
		w.remove(owner, background)
		w.eventuallyGone(o)
		w.settle(secrets)
		if got := tap.count(about(o, "delete")); got != 1 {
			t.Errorf("%d deletions of an object that was gone at the first", got)
		}
	})
	t.Run("CF-03 a blocking dependent that goes before it is deleted", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		owner := w.create(configMaps, "owner")
		o := w.create(secrets, "object", ownedBy(blocking(owner)))
		w.settle(configMaps, secrets)
		tap.before(about(o, "delete"), func() { w.remove(o, background) })
		w.remove(owner, foreground)
		w.eventuallyGone(o, owner)
	})
	t.Run("CF-04 an object that changes, but not its owners, is deleted on new conditions", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		owner := w.create(configMaps, "owner")
		o := w.create(secrets, "object", ownedBy(ref(owner)))
		w.settle(configMaps, secrets)
		tap.before(about(o, "delete"), func() { w.patch(o, map[string]any{"labels": map[string]string{"changed": "yes"}}) })
		w.remove(owner, background)
		w.eventuallyGone(o)
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
		owner, adopter := w.create(configMaps, "owner"), w.create(configMaps, "adopter")
		o := w.create(secrets, "object", ownedBy(ref(owner)))
		w.settle(configMaps, secrets)
		tap.before(about(o, "delete"), func() { w.setOwners(o, ref(owner), ref(adopter)) })
		w.remove(owner, background)
		w.eventuallyOwned(o, ref(adopter))
		w.stay(o)
	})
}

// The hazards that depend on a short moment, each observed on upstream.
func TestHazardsOfAMoment(t *testing.T) {
	t.Run("H1 the orphan finalizer of an owner that was recreated under its name stays", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		owner := w.create(configMaps, "owner")
		before := w.create(secrets, "before", ownedBy(blocking(owner)))
		w.settle(configMaps, secrets)
		resume := tap.stall(secrets)
		made := make(chan []object, 1)
		tap.before(about(owner, "patch"), func() {
			w.letGo(owner)
			again := w.create(configMaps, "owner")
			made <- []object{again, w.create(secrets, "after", ownedBy(blocking(again)))}
			w.remove(again, orphan)
		})
		w.remove(owner, orphan)
		w.settle(configMaps)
		resume()
		w.eventuallyGone(owner)
		var anew []object
		eventually.Agrees(t, func() string {
			select {
			case anew = <-made:
				return ""
			default:
				return "the hazard was not met: no write to the owner"
			}
		})
		w.eventuallyGone(anew[0])
		w.areOrphans(before, anew[1])
	})
	t.Run("H2 a dependent that was recreated under its name keeps its owners", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		gizmos := w.define("gizmos")
		w.collect(tap)
		owner, live := w.create(configMaps, "owner"), w.create(configMaps, "live")
		dependent := w.create(gizmos, "dependent", ownedBy(blocking(owner)))
		w.settle(configMaps, gizmos)
		made := make(chan object, 1)
		tap.before(about(dependent, "patch"), func() {
			w.remove(dependent, background)
			made <- w.create(gizmos, "dependent", ownedBy(ref(live)))
		})
		w.remove(owner, orphan)
		w.eventuallyGone(owner) // not before the dependent was tried
		again := <-made
		w.eventuallyOwned(again, ref(live))
		w.stay(again)
	})
	t.Run("H3a a reference that was removed by hand stays removed", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		first := w.create(configMaps, "first", held)
		second := w.create(configMaps, "second", ownedBy(blocking(first)), held)
		w.setOwners(first, blocking(second))
		w.settle(configMaps)
		tap.before(about(second, "patch"), func() { w.setOwners(second) })
		w.remove(first, foreground)
		w.remove(second, foreground)
		// Nothing blocks first any longer. Whether first still blocks second depends on whether
		// its reference was unblocked before the other one was removed.
		w.eventuallyFinalizers(first, hold)
		w.eventuallyOwned(second)
		w.letGo(first)
		w.eventuallyFinalizers(second, hold)
		w.eventuallyOwned(second)
	})
	t.Run("H3b an adoption is not erased", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		gizmos := w.define("gizmos")
		w.collect(tap)
		held, doomed, adopter := w.create(gizmos, "held"), w.create(gizmos, "doomed"), w.create(gizmos, "adopter")
		o := w.create(gizmos, "object", ownedBy(ref(held), ref(doomed)))
		w.settle(gizmos)
		tap.before(about(o, "patch"), func() { w.setOwners(o, ref(held), ref(doomed), ref(adopter)) })
		w.remove(doomed, background)
		w.eventuallyOwned(o, ref(held), ref(adopter))
		w.remove(held, background)
		w.eventuallyOwned(o, ref(adopter))
		w.stay(o)
	})
	t.Run("H5 an adoption between two attempts to delete", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		owner, adopter := w.create(configMaps, "owner"), w.create(configMaps, "adopter")
		o := w.create(secrets, "object", ownedBy(ref(owner)))
		w.settle(configMaps, secrets)
		tap.before(about(o, "delete"), func() {
			w.patch(o, map[string]any{"labels": map[string]string{"changed": "yes"}})
			tap.before(about(o, "delete"), func() { w.setOwners(o, ref(owner), ref(adopter)) })
		})
		w.remove(owner, background)
		w.eventuallyOwned(o, ref(adopter))
		w.stay(o)
		if got := tap.count(about(o, "delete")); got < 2 {
			t.Errorf("the hazard was not met: %d deletions", got)
		}
	})
	for verb, policy := range map[string]metav1.DeletionPropagation{"delete": background, "patch": orphan} {
		t.Run("R12 an answer that is lost: "+verb, func(t *testing.T) {
			w, tap := quiet(t), &tap{}
			w.collect(tap)
			owner := w.create(configMaps, "owner")
			o := w.create(secrets, "object", ownedBy(ref(owner)))
			w.settle(configMaps, secrets)
			tap.lose(about(o, verb))
			w.remove(owner, policy)
			w.eventuallyGone(owner)
			if policy == background {
				w.eventuallyGone(o)
				return
			}
			w.areOrphans(o)
		})
	}
}
