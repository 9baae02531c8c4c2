package conformance

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	foregroundFinalizer = metav1.FinalizerDeleteDependents
	orphanFinalizer     = metav1.FinalizerOrphanDependents
)

func TestForeground(t *testing.T) {
	t.Parallel()
	t.Run("FG-01 a solid owner keeps its dependent, and the waiting owner goes", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		waiting, solid := w.create(replicationControllers, "waiting"), w.create(replicationControllers, "solid")
		pod := w.create(pods, "pod", ownedBy(blocking(waiting), ref(solid)))
		w.remove(waiting, foreground)
		w.eventuallyGone(waiting)
		w.eventuallyOwned(pod, ref(solid))
		w.stay(pod, solid)
	})
	for name, flag := range map[string]*bool{"nil": nil, "false": new(false)} {
		t.Run("FG-02 a reference that does not block holds no owner: "+name, func(t *testing.T) {
			t.Parallel()
			w := shared(t)
			owner := w.create(configMaps, "owner")
			reference := ref(owner)
			reference.BlockOwnerDeletion = flag
			dependent := w.create(configMaps, "dependent", ownedBy(reference), held)
			w.remove(owner, foreground)
			w.eventuallyGone(owner)
			w.eventuallyLeaving(dependent)
			w.eventuallyFinalizers(dependent, hold)
		})
	}
	// The three ways to free an owner that is held.
	for way, free := range map[string]func(w *cluster, owner, dependent object){
		"the dependent goes":           func(w *cluster, _, dependent object) { w.letGo(dependent) },
		"the reference goes":           func(w *cluster, _, dependent object) { w.setOwners(dependent) },
		"the reference blocks no more": func(w *cluster, owner, dependent object) { w.setOwners(dependent, notBlocking(owner)) },
		"the reference says nothing":   func(w *cluster, owner, dependent object) { w.setOwners(dependent, ref(owner)) },
	} {
		t.Run("FG-03 TR-05 TR-06 one blocking dependent holds the owner until "+way, func(t *testing.T) {
			t.Parallel()
			w := shared(t)
			owner := w.create(configMaps, "owner")
			dependent := w.create(configMaps, "held", ownedBy(blocking(owner)), held)
			others := w.createMany(3, configMaps, "free", ownedBy(blocking(owner)))
			w.remove(owner, foreground)
			w.eventuallyGone(others...)
			w.eventuallyLeaving(dependent)
			w.settle(configMaps)
			if got := w.must(owner).Finalizers; len(got) != 1 || got[0] != foregroundFinalizer {
				t.Errorf("finalizers of the owner while it is held: %v", got)
			}
			free(w, owner, dependent)
			w.eventuallyGone(owner)
			if way != "the dependent goes" {
				w.eventuallyFinalizers(dependent, hold)
			}
		})
	}
	t.Run("FG-04 TR-03 a second foreground deletion of an object that hangs on another finalizer", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		pod := w.create(pods, "pod", held)
		for range 2 {
			w.remove(pod, foreground)
			w.eventuallyFinalizers(pod, hold)
		}
		w.letGo(pod)
		w.eventuallyGone(pod)
	})
	t.Run("FG-05 the owner is there until the last pod is gone", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		owner := w.create(replicationControllers, "owner")
		dependents := w.createMany(20, pods, "pod", ownedBy(blocking(owner)))
		order := w.watch(replicationControllers, pods)
		w.remove(owner, foreground)
		w.eventuallyGone(owner)
		order.goneBefore(owner, dependents...)
	})
	t.Run("FG-06 half of the dependents have a second owner", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		leaving, staying := w.create(replicationControllers, "leaving"), w.create(replicationControllers, "staying")
		doomed := w.createMany(10, pods, "one-owner", ownedBy(blocking(leaving)))
		kept := w.createMany(10, pods, "two-owners", ownedBy(blocking(leaving), ref(staying)))
		w.remove(leaving, foreground)
		w.eventuallyGone(leaving)
		w.eventuallyGone(doomed...)
		for _, pod := range kept {
			w.eventuallyOwned(pod, ref(staying))
		}
		w.stay(append(kept, staying)...)
	})
	t.Run("FG-07 foreground goes down a tree, background is for the leaves", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		root := w.create(configMaps, "root")
		branch := w.create(configMaps, "branch", ownedBy(blocking(root)), held)
		leaf := w.create(configMaps, "leaf", ownedBy(blocking(branch)), held)
		w.remove(root, foreground)
		w.eventuallyLeaving(leaf)
		w.settle(configMaps)
		// A leaf without dependents is deleted in the background: no finalizer is added.
		w.eventuallyFinalizers(leaf, hold)
		if got := w.must(branch).Finalizers; len(got) != 2 {
			t.Errorf("finalizers of the branch above a leaf that hangs: %v, want %s too", got, foregroundFinalizer)
		}
		w.letGo(leaf)
		w.eventuallyGone(leaf)
		w.eventuallyFinalizers(branch, hold)
		w.must(root)
		w.letGo(branch)
		w.eventuallyGone(branch, root)
	})
	t.Run("FG-07 the whole tree is gone before its root", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		root := w.create(configMaps, "root")
		var tree []object
		for i := range 3 {
			branch := w.create(configMaps, fmt.Sprint("branch-", i), ownedBy(blocking(root)))
			tree = append(tree, branch)
			tree = append(tree, w.createMany(3, secrets, fmt.Sprint("leaf-", i), ownedBy(blocking(branch)))...)
		}
		order := w.watch(configMaps, secrets)
		w.remove(root, foreground)
		w.eventuallyGone(root)
		order.goneBefore(root, tree...)
	})
}

// notBlocking refers to an owner that does not have to wait.
func notBlocking(owner object) metav1.OwnerReference {
	r := ref(owner)
	r.BlockOwnerDeletion = new(false)
	return r
}
