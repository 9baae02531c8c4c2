package conformance

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// The fate of dependents after a background deletion of their owner.
var background = []Check{
	{"BG-01 the dependent goes, the one with another owner stays, and so does the independent", "R7 R8 R9 R11 S1 L1", Collector, func(w *probe.Space) {
		leaving, staying := w.Create(probe.ReplicationControllers, "leaving"), w.Create(probe.ReplicationControllers, "staying")
		one := w.Create(probe.Pods, "one-owner", probe.OwnedBy(probe.Ref(leaving)))
		two := w.Create(probe.Pods, "two-owners", probe.OwnedBy(probe.Ref(leaving), probe.Ref(staying)))
		none := w.Create(probe.Pods, "independent")
		w.Remove(leaving, probe.Background)
		w.EventuallyGone(leaving, one)
		w.EventuallyOwned(two, probe.Ref(staying))
		w.Stay(two, none, staying)
		w.Remove(staying, probe.Background)
		w.EventuallyGone(two)
		w.Stay(none)
	}},
	{"BG-02 an object whose owner never existed", "R3 R11 L1", Collector, func(w *probe.Space) {
		w.EventuallyGone(
			w.Create(probe.Pods, "dangling", probe.OwnedBy(probe.Nobody(probe.ReplicationControllers))),
			w.Create(probe.Pods, "dangling-twice", probe.OwnedBy(probe.Nobody(probe.ReplicationControllers), probe.Nobody(probe.ClusterRoles))),
		)
	}},
	{"BG-02 an owner of the same name with another UID is another owner", "R1 R3 S5", Collector, func(w *probe.Space) {
		before := w.Create(probe.ConfigMaps, "owner")
		w.Remove(before, probe.Background)
		w.EventuallyGone(before)
		now := w.Create(probe.ConfigMaps, "owner")
		w.EventuallyGone(w.Create(probe.Secrets, "late", probe.OwnedBy(probe.Ref(before))))
		w.Stay(now)
	}},
	{"BG-03 the pods of a replication controller", "R11 L1", Collector, func(w *probe.Space) {
		owner := w.Create(probe.ReplicationControllers, "owner")
		children := w.CreateMany(20, probe.Pods, "pod", probe.OwnedBy(probe.Blocking(owner)))
		w.Remove(owner, probe.Background)
		w.EventuallyGone(owner)
		w.EventuallyGone(children...)
	}},
	{"BG-04 deployment, replica set, pods", "R11 R17 L1", Collector, func(w *probe.Space) {
		deployment := w.Create(probe.Deployments, "deployment")
		set := w.Create(probe.ReplicaSets, "set", probe.OwnedBy(probe.Controlled(deployment)))
		children := w.CreateMany(2, probe.Pods, "pod", probe.OwnedBy(probe.Blocking(set)))
		// Background is the default of this version.
		w.RemoveWith(deployment, metav1.DeleteOptions{})
		w.EventuallyGone(deployment, set)
		w.EventuallyGone(children...)
	}},
	{"BG-05 cron job, job, pods", "R11 L1", Collector, func(w *probe.Space) {
		cron := w.Create(probe.CronJobs, "cron")
		job := w.Create(probe.Jobs, "job", probe.OwnedBy(probe.Controlled(cron)))
		children := w.CreateMany(2, probe.Pods, "pod", probe.OwnedBy(probe.Blocking(job)))
		w.Remove(cron, probe.Background)
		w.EventuallyGone(cron, job)
		w.EventuallyGone(children...)
	}},
	{"BG-06 a dependent that carries the orphan finalizer orphans its own", "R11 R13 S2", Collector, func(w *probe.Space) {
		owner := w.Create(probe.ConfigMaps, "owner")
		middle := w.Create(probe.ConfigMaps, "middle", probe.OwnedBy(probe.Ref(owner)), probe.WithFinalizers(probe.OrphanFinalizer))
		leaf := w.Create(probe.ConfigMaps, "leaf", probe.OwnedBy(probe.Blocking(middle)))
		w.Observed(probe.ConfigMaps)
		w.Remove(owner, probe.Background)
		w.EventuallyGone(owner, middle)
		w.AreOrphans(leaf)
	}},
	{"BG-06 a dependent that carries the foreground finalizer waits for its own", "R11 R14 S3", Collector, func(w *probe.Space) {
		owner := w.Create(probe.ConfigMaps, "owner")
		middle := w.Create(probe.ConfigMaps, "middle", probe.OwnedBy(probe.Ref(owner)), probe.WithFinalizers(probe.ForegroundFinalizer))
		leaf := w.Create(probe.ConfigMaps, "leaf", probe.OwnedBy(probe.Blocking(middle)), probe.Held)
		w.Observed(probe.ConfigMaps)
		w.Remove(owner, probe.Background)
		w.EventuallyGone(owner)
		w.EventuallyLeaving(middle, leaf)
		w.Settle(probe.ConfigMaps)
		w.EventuallyFinalizers(middle, probe.ForegroundFinalizer)
		w.LetGo(leaf)
		w.EventuallyGone(leaf, middle)
	}},
}

// The writes of the collector.
var writes = []Check{
	{"CF-05 detaching removes the references it is about, and leaves the others as they are", "R9 R16 S4 S7", Collector, func(w *probe.Space) {
		solid, leaving, waiting := w.Create(probe.ConfigMaps, "solid"), w.Create(probe.ConfigMaps, "leaving"), w.Create(probe.ConfigMaps, "waiting", probe.Held)
		kept, controller := probe.NotBlocking(solid), probe.Controlled(w.Create(probe.Secrets, "controller"))
		o := w.Create(probe.Pods, "pod", probe.OwnedBy(probe.Nobody(probe.ConfigMaps), kept, probe.Blocking(leaving), controller, probe.Blocking(waiting)), probe.Held)
		w.EventuallyOwned(o, kept, probe.Blocking(leaving), controller, probe.Blocking(waiting))
		w.Remove(waiting, probe.Foreground)
		w.EventuallyOwned(o, kept, probe.Blocking(leaving), controller)
		w.Remove(leaving, probe.Background)
		w.EventuallyOwned(o, kept, controller)
		w.EventuallyFinalizers(o, probe.Hold)
		w.Stay(o)
	}},
}
