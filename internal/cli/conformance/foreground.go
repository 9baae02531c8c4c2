package conformance

import (
	"fmt"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// Foreground deletions.
var foreground = []Check{
	{"FG-01 a solid owner keeps its dependent, and the waiting owner goes", "R9 R14 L2", Collector, func(w *probe.Space) {
		waiting, solid := w.Create(probe.ReplicationControllers, "waiting"), w.Create(probe.ReplicationControllers, "solid")
		pod := w.Create(probe.Pods, "pod", probe.OwnedBy(probe.Blocking(waiting), probe.Ref(solid)))
		w.Remove(waiting, probe.Foreground)
		w.EventuallyGone(waiting)
		w.EventuallyOwned(pod, probe.Ref(solid))
		w.Stay(pod, solid)
	}},
	{"FG-04 TR-03 a second foreground deletion of an object that hangs on another finalizer", "R14 R16 S7", Collector, func(w *probe.Space) {
		pod := w.Create(probe.Pods, "pod", probe.Held)
		for range 2 {
			w.Remove(pod, probe.Foreground)
			w.EventuallyFinalizers(pod, probe.Hold)
		}
		w.LetGo(pod)
		w.EventuallyGone(pod)
	}},
	{"FG-05 the owner is there until the last pod is gone", "R14 S3", Collector, func(w *probe.Space) {
		owner := w.Create(probe.ReplicationControllers, "owner")
		dependents := w.CreateMany(20, probe.Pods, "pod", probe.OwnedBy(probe.Blocking(owner)))
		w.Observed(probe.ReplicationControllers, probe.Pods)
		order := w.Watch(probe.ReplicationControllers, probe.Pods)
		w.Remove(owner, probe.Foreground)
		w.EventuallyGone(owner)
		order.GoneBefore(owner, dependents...)
	}},
	{"FG-06 half of the dependents have a second owner", "R9 R14 S1", Collector, func(w *probe.Space) {
		leaving, staying := w.Create(probe.ReplicationControllers, "leaving"), w.Create(probe.ReplicationControllers, "staying")
		doomed := w.CreateMany(10, probe.Pods, "one-owner", probe.OwnedBy(probe.Blocking(leaving)))
		kept := w.CreateMany(10, probe.Pods, "two-owners", probe.OwnedBy(probe.Blocking(leaving), probe.Ref(staying)))
		w.Remove(leaving, probe.Foreground)
		w.EventuallyGone(leaving)
		w.EventuallyGone(doomed...)
		for _, pod := range kept {
			w.EventuallyOwned(pod, probe.Ref(staying))
		}
		w.Stay(append(kept, staying)...)
	}},
	{"FG-07 foreground goes down a tree, background is for the leaves", "R10 R14", Collector, func(w *probe.Space) {
		root := w.Create(probe.ConfigMaps, "root")
		branch := w.Create(probe.ConfigMaps, "branch", probe.OwnedBy(probe.Blocking(root)), probe.Held)
		leaf := w.Create(probe.ConfigMaps, "leaf", probe.OwnedBy(probe.Blocking(branch)), probe.Held)
		w.Observed(probe.ConfigMaps)
		w.Remove(root, probe.Foreground)
		w.EventuallyLeaving(leaf)
		w.Settle(probe.ConfigMaps)
		// The collector deletes a leaf without dependents in the background: it gets no finalizer.
		w.EventuallyFinalizers(leaf, probe.Hold)
		if got := w.Must(branch).Finalizers; len(got) != 2 {
			w.T.Errorf("finalizers of the branch above a leaf that hangs: %v, want %s too", got, probe.ForegroundFinalizer)
		}
		w.LetGo(leaf)
		w.EventuallyGone(leaf)
		w.EventuallyFinalizers(branch, probe.Hold)
		w.Must(root)
		w.LetGo(branch)
		w.EventuallyGone(branch, root)
	}},
	{"FG-07 the whole tree is gone before its root", "R10 R14 S3", Collector, func(w *probe.Space) {
		root := w.Create(probe.ConfigMaps, "root")
		var tree []probe.Object
		for i := range 3 {
			branch := w.Create(probe.ConfigMaps, fmt.Sprint("branch-", i), probe.OwnedBy(probe.Blocking(root)))
			tree = append(tree, branch)
			tree = append(tree, w.CreateMany(3, probe.Secrets, fmt.Sprint("leaf-", i), probe.OwnedBy(probe.Blocking(branch)))...)
		}
		w.Observed(probe.ConfigMaps, probe.Secrets)
		order := w.Watch(probe.ConfigMaps, probe.Secrets)
		w.Remove(root, probe.Foreground)
		w.EventuallyGone(root)
		order.GoneBefore(root, tree...)
	}},
}

// notBlocking returns a check for each value of a reference that does not block.
func notBlocking() []Check {
	var all []Check
	for name, flag := range map[string]*bool{"nil": nil, "false": new(false)} {
		all = append(all, Check{"FG-02 a reference that does not block holds no owner: " + name, "R14 L2", Collector, func(w *probe.Space) {
			owner := w.Create(probe.ConfigMaps, "owner")
			reference := probe.Ref(owner)
			reference.BlockOwnerDeletion = flag
			dependent := w.Create(probe.ConfigMaps, "dependent", probe.OwnedBy(reference), probe.Held)
			w.Remove(owner, probe.Foreground)
			w.EventuallyGone(owner)
			w.EventuallyLeaving(dependent)
			w.EventuallyFinalizers(dependent, probe.Hold)
		}})
	}
	return all
}

// ways returns a check for each way to release a waiting owner.
func ways() []Check {
	var all []Check
	for way, free := range map[string]func(w *probe.Space, owner, dependent probe.Object){
		"the dependent goes":           func(w *probe.Space, _, dependent probe.Object) { w.LetGo(dependent) },
		"the reference goes":           func(w *probe.Space, _, dependent probe.Object) { w.SetOwners(dependent) },
		"the reference blocks no more": func(w *probe.Space, owner, dependent probe.Object) { w.SetOwners(dependent, probe.NotBlocking(owner)) },
		"the reference says nothing":   func(w *probe.Space, owner, dependent probe.Object) { w.SetOwners(dependent, probe.Ref(owner)) },
	} {
		all = append(all, Check{"FG-03 TR-05 TR-06 one blocking dependent holds the owner until " + way, "R14 S3 L2", Collector, func(w *probe.Space) {
			owner := w.Create(probe.ConfigMaps, "owner")
			dependent := w.Create(probe.ConfigMaps, "held", probe.OwnedBy(probe.Blocking(owner)), probe.Held)
			unheld := w.CreateMany(3, probe.ConfigMaps, "free", probe.OwnedBy(probe.Blocking(owner)))
			w.Observed(probe.ConfigMaps)
			w.Remove(owner, probe.Foreground)
			w.EventuallyGone(unheld...)
			w.EventuallyLeaving(dependent)
			w.Settle(probe.ConfigMaps)
			if got := w.Must(owner).Finalizers; len(got) != 1 || got[0] != probe.ForegroundFinalizer {
				w.T.Errorf("finalizers of the owner while it is held: %v", got)
			}
			free(w, owner, dependent)
			w.EventuallyGone(owner)
			if way != "the dependent goes" {
				w.EventuallyFinalizers(dependent, probe.Hold)
			}
		}})
	}
	return all
}
