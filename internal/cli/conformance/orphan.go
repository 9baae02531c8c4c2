package conformance

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// Orphan deletions.
var orphaned = []Check{
	{"OR-01 dependents stay and lose their owner, the owner goes", "R13 S2 L2", Collector, func(w *probe.Space) {
		owner := w.Create(probe.ReplicationControllers, "owner")
		dependents := w.CreateMany(3, probe.Pods, "pod", probe.OwnedBy(probe.Blocking(owner)))
		w.Observed(probe.ReplicationControllers, probe.Pods)
		w.Remove(owner, probe.Orphan)
		w.EventuallyGone(owner)
		w.AreOrphans(dependents...)
	}},
	{"OR-03 many pods stay", "R13 S2 L2", Collector, func(w *probe.Space) {
		owner := w.Create(probe.ReplicationControllers, "owner")
		dependents := w.CreateMany(60, probe.Pods, "pod", probe.OwnedBy(probe.Blocking(owner)))
		w.Observed(probe.ReplicationControllers, probe.Pods)
		w.Remove(owner, probe.Orphan)
		w.EventuallyGone(owner)
		w.AreOrphans(dependents...)
	}},
	{"OR-05 a deployment leaves its replica set and the pods of that", "R13 S2 L2", Collector, func(w *probe.Space) {
		deployment := w.Create(probe.Deployments, "deployment")
		set := w.Create(probe.ReplicaSets, "set", probe.OwnedBy(probe.Controlled(deployment)))
		children := w.CreateMany(2, probe.Pods, "pod", probe.OwnedBy(probe.Blocking(set)))
		w.Observed(probe.Deployments, probe.ReplicaSets)
		w.Remove(deployment, probe.Orphan)
		w.EventuallyGone(deployment)
		w.AreOrphans(set)
		w.Stay(children...)
		for _, pod := range children {
			w.EventuallyOwned(pod, probe.Blocking(set))
		}
	}},
	{"OR-06 custom resources", "R13 S2 L2", Collector | CustomResources, func(w *probe.Space) {
		gizmos := w.Define("gizmos")
		owner := w.Create(gizmos, "owner")
		dependents := w.CreateMany(3, gizmos, "dependent", probe.OwnedBy(probe.Blocking(owner)))
		w.Observed(gizmos)
		w.Remove(owner, probe.Orphan)
		w.EventuallyGone(owner)
		w.AreOrphans(dependents...)
	}},
}

// orphanedByDefault returns checks of kinds whose default policy is orphan.
func orphanedByDefault() []Check {
	var all []Check
	for _, k := range []probe.Kind{probe.ReplicationControllers, probe.Jobs} {
		all = append(all, Check{"OR-04 orphan is the default: " + k.Name, "R13 R17 S2", Collector, func(w *probe.Space) {
			owner := w.Create(k, "owner")
			dependents := w.CreateMany(3, probe.ConfigMaps, "dependent", probe.OwnedBy(probe.Blocking(owner)))
			w.Observed(k, probe.ConfigMaps)
			w.RemoveWith(owner, metav1.DeleteOptions{})
			w.EventuallyGone(owner)
			w.AreOrphans(dependents...)
		}})
	}
	return all
}

// stressing returns a check for each of the five ways to choose a policy, with ten owners at the
// same time and three dependents for each owner.
func stressing() []Check {
	var all []Check
	for _, way := range []struct {
		name      string
		preset    []string // finalizers of the owners
		options   metav1.DeleteOptions
		survivors bool // the dependents survive
	}{
		{name: "default", survivors: true},
		{name: "preset", preset: []string{probe.OrphanFinalizer}, survivors: true},
		{name: "overridden", preset: []string{probe.OrphanFinalizer}, options: metav1.DeleteOptions{OrphanDependents: new(false)}},
		{name: "orphaned", options: metav1.DeleteOptions{OrphanDependents: new(true)}, survivors: true},
		{name: "policy", options: probe.Policy(probe.Orphan), survivors: true},
	} {
		all = append(all, Check{"OR-02 " + way.name, "R13 R17 S2", Collector, func(w *probe.Space) {
			var owners, dependents []probe.Object
			for i := range 10 {
				owner := w.Create(probe.ReplicationControllers, fmt.Sprint("owner-", i), probe.WithFinalizers(way.preset...))
				owners = append(owners, owner)
				dependents = append(dependents, w.CreateMany(3, probe.Pods, owner.Name, probe.OwnedBy(probe.Ref(owner)))...)
			}
			w.Observed(probe.ReplicationControllers, probe.Pods)
			for _, owner := range owners {
				w.RemoveWith(owner, way.options)
			}
			w.EventuallyGone(owners...)
			if !way.survivors {
				w.EventuallyGone(dependents...)
				return
			}
			w.AreOrphans(dependents...)
		}})
	}
	return all
}

// unseen are checks of dependents that were created just before their owner was deleted: the
// collector may not have received their watch events yet.
var unseen = []Check{
	{"OR-07 dependents of a moment ago are orphaned, too", "R13 R15 S2", Collector, func(w *probe.Space) {
		w.Differs(nothingIsMissed(), func(w *probe.Space) {
			var dependents []probe.Object
			for i := range 10 {
				owner := w.Create(probe.ConfigMaps, fmt.Sprint("owner-", i))
				dependents = append(dependents, w.CreateMany(3, probe.Secrets, owner.Name, probe.OwnedBy(probe.Blocking(owner)))...)
				w.Remove(owner, probe.Orphan)
				w.EventuallyGone(owner)
			}
			w.AreOrphans(dependents...)
		})
	}},
	{"H7 dependents of a moment ago are gone before their owner", "R14 R15 S3", Collector, func(w *probe.Space) {
		w.Differs(nothingIsMissed(), func(w *probe.Space) {
			order := w.Watch(probe.ConfigMaps, probe.Secrets)
			for i := range 10 {
				owner := w.Create(probe.ConfigMaps, fmt.Sprint("owner-", i))
				dependents := w.CreateMany(3, probe.Secrets, owner.Name, probe.OwnedBy(probe.Blocking(owner)))
				w.Remove(owner, probe.Foreground)
				w.EventuallyGone(owner)
				order.GoneBefore(owner, dependents...)
			}
		})
	}},
}
