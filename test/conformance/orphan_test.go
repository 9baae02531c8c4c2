package conformance

import (
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOrphan(t *testing.T) {
	t.Parallel()
	t.Run("OR-01 dependents stay and lose their owner, the owner goes", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		owner := w.create(replicationControllers, "owner")
		dependents := w.createMany(3, pods, "pod", ownedBy(blocking(owner)))
		w.remove(owner, orphan)
		w.eventuallyGone(owner)
		w.areOrphans(dependents...)
	})
	t.Run("OR-03 many pods stay", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		owner := w.create(replicationControllers, "owner")
		dependents := w.createMany(60, pods, "pod", ownedBy(blocking(owner)))
		w.remove(owner, orphan)
		w.eventuallyGone(owner)
		w.areOrphans(dependents...)
	})
	for _, k := range []kind{replicationControllers, jobs} {
		t.Run("OR-04 orphan is the default: "+k.name, func(t *testing.T) {
			t.Parallel()
			w := shared(t)
			owner := w.create(k, "owner")
			dependents := w.createMany(3, configMaps, "dependent", ownedBy(blocking(owner)))
			w.removeWith(owner, metav1.DeleteOptions{})
			w.eventuallyGone(owner)
			w.areOrphans(dependents...)
		})
	}
	t.Run("OR-05 a deployment leaves its replica set and the pods of that", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		deployment := w.create(deployments, "deployment")
		set := w.create(replicaSets, "set", ownedBy(controlled(deployment)))
		children := w.createMany(2, pods, "pod", ownedBy(blocking(set)))
		w.remove(deployment, orphan)
		w.eventuallyGone(deployment)
		w.areOrphans(set)
		w.stay(children...)
		for _, pod := range children {
			w.eventuallyOwned(pod, blocking(set))
		}
	})
	t.Run("OR-06 custom resources", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		gizmos := w.define("gizmos")
		owner := w.create(gizmos, "owner")
		dependents := w.createMany(3, gizmos, "dependent", ownedBy(blocking(owner)))
		w.remove(owner, orphan)
		w.eventuallyGone(owner)
		w.areOrphans(dependents...)
	})
}

// areOrphans asserts that objects stay and have no owner references.
func (w *cluster) areOrphans(dependents ...object) {
	w.t.Helper()
	w.stay(dependents...)
	for _, d := range dependents {
		if owners := w.must(d).OwnerReferences; len(owners) > 0 {
			w.t.Errorf("%s was orphaned and has owners: %v", d, owners)
		}
	}
}

// OR-02: five ways to specify what happens to the dependents, ten owners each, three dependents
// for each owner, all at the same time.
func TestStressing(t *testing.T) {
	t.Parallel()
	w := shared(t)
	type way struct {
		name      string
		preset    []string // finalizers of the owners
		options   metav1.DeleteOptions
		survivors int // of the dependents of each owner
	}
	ways := []way{
		{name: "default", survivors: 3},
		{name: "preset", preset: []string{orphanFinalizer}, survivors: 3},
		{name: "overridden", preset: []string{orphanFinalizer}, options: metav1.DeleteOptions{OrphanDependents: new(false)}},
		{name: "orphaned", options: metav1.DeleteOptions{OrphanDependents: new(true)}, survivors: 3},
		{name: "policy", options: metav1.DeleteOptions{PropagationPolicy: new(orphan)}, survivors: 3},
	}
	type group struct {
		way
		space             *cluster
		owners, dependent []object
	}
	groups := make([]*group, len(ways))
	for i, way := range ways {
		groups[i] = &group{way: way, space: w.another()}
	}
	t.Run("each", func(t *testing.T) {
		for _, g := range groups {
			t.Run("OR-02 "+g.name, func(t *testing.T) {
				t.Parallel()
				record(t)
				w := g.space
				for i := range 10 {
					owner := w.create(replicationControllers, fmt.Sprint("owner-", i), withFinalizers(g.preset...))
					g.owners = append(g.owners, owner)
					g.dependent = append(g.dependent, w.createMany(3, pods, owner.name, ownedBy(ref(owner)))...)
				}
				for _, owner := range g.owners {
					w.removeWith(owner, g.options)
				}
				w.eventuallyGone(g.owners...)
				if g.survivors == 0 {
					w.eventuallyGone(g.dependent...)
					return
				}
				w.areOrphans(g.dependent...)
			})
		}
	})
}

// What must not be lost when something fails (OR-07 of the matrix, and more).
func TestOrphanUnderDifficulties(t *testing.T) {
	t.Run("OR-07 a dependent that was not observed yet", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		w.settle(secrets)
		resume := tap.stall(secrets)
		owner := w.create(configMaps, "owner")
		dependents := w.createMany(3, secrets, "dependent", ownedBy(blocking(owner)))
		w.remove(owner, orphan)
		// Whether the owner is held meanwhile, or its dependents are found in another way, is up
		// to the collector.
		w.settle(configMaps)
		resume()
		w.eventuallyGone(owner)
		w.areOrphans(dependents...)
	})
	t.Run("OR-07 a kind that cannot be read holds the owner", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		owner := w.create(configMaps, "owner")
		dependents := w.createMany(3, secrets, "dependent", ownedBy(blocking(owner)))
		answer := tap.refuse(reads(secrets), http.StatusInternalServerError, metav1.StatusReasonInternalError)
		w.collect(tap)
		w.remove(owner, orphan)
		w.settle(configMaps)
		w.eventuallyFinalizers(owner, orphanFinalizer)
		answer()
		w.eventuallyGone(owner)
		w.areOrphans(dependents...)
	})
	for status, reason := range map[int]metav1.StatusReason{
		http.StatusConflict:            metav1.StatusReasonConflict,
		http.StatusForbidden:           metav1.StatusReasonForbidden,
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
	} {
		t.Run("CF-07 a dependent that cannot be detached keeps the finalizer: "+string(reason), func(t *testing.T) {
			w, tap := quiet(t), &tap{}
			owner := w.create(configMaps, "owner")
			stubborn := w.create(secrets, "stubborn", ownedBy(blocking(owner)))
			easy := w.create(secrets, "easy", ownedBy(blocking(owner)))
			answer := tap.refuse(about(stubborn, "patch"), status, reason)
			w.collect(tap)
			w.remove(owner, orphan)
			w.eventuallyOwned(easy)
			w.settle(configMaps)
			w.eventuallyFinalizers(owner, orphanFinalizer)
			answer()
			w.eventuallyGone(owner)
			w.areOrphans(stubborn, easy)
		})
	}
}
