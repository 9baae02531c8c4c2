package conformance

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBackground(t *testing.T) {
	t.Parallel()
	t.Run("BG-01 the dependent goes, the one with another owner stays, and so does the independent", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		leaving, staying := w.create(replicationControllers, "leaving"), w.create(replicationControllers, "staying")
		one := w.create(pods, "one-owner", ownedBy(ref(leaving)))
		two := w.create(pods, "two-owners", ownedBy(ref(leaving), ref(staying)))
		none := w.create(pods, "independent")
		w.remove(leaving, background)
		w.eventuallyGone(leaving, one)
		w.eventuallyOwned(two, ref(staying))
		w.stay(two, none, staying)
		w.remove(staying, background)
		w.eventuallyGone(two)
		w.stay(none)
	})
	t.Run("BG-02 an object whose owner never existed", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		w.eventuallyGone(
			w.create(pods, "dangling", ownedBy(nobody(replicationControllers))),
			w.create(pods, "dangling-twice", ownedBy(nobody(replicationControllers), nobody(clusterRoles))),
		)
	})
	t.Run("BG-02 an owner of the same name with another UID is another owner", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		before := w.create(configMaps, "owner")
		w.remove(before, background)
		w.eventuallyGone(before)
		now := w.create(configMaps, "owner")
		w.eventuallyGone(w.create(secrets, "late", ownedBy(ref(before))))
		w.stay(now)
	})
	t.Run("BG-03 the pods of a replication controller", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		owner := w.create(replicationControllers, "owner")
		children := w.createMany(20, pods, "pod", ownedBy(blocking(owner)))
		w.remove(owner, background)
		w.eventuallyGone(owner)
		w.eventuallyGone(children...)
	})
	t.Run("BG-04 deployment, replica set, pods", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		deployment := w.create(deployments, "deployment")
		set := w.create(replicaSets, "set", ownedBy(controlled(deployment)))
		children := w.createMany(2, pods, "pod", ownedBy(blocking(set)))
		// Background is the default of the version.
		w.removeWith(deployment, metav1.DeleteOptions{})
		w.eventuallyGone(deployment, set)
		w.eventuallyGone(children...)
	})
	t.Run("BG-05 cron job, job, pods", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		cron := w.create(cronJobs, "cron")
		job := w.create(jobs, "job", ownedBy(controlled(cron)))
		children := w.createMany(2, pods, "pod", ownedBy(blocking(job)))
		w.remove(cron, background)
		w.eventuallyGone(cron, job)
		w.eventuallyGone(children...)
	})
	t.Run("BG-06 a dependent that carries the orphan finalizer orphans its own", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		owner := w.create(configMaps, "owner")
		middle := w.create(configMaps, "middle", ownedBy(ref(owner)), withFinalizers(orphanFinalizer))
		leaf := w.create(configMaps, "leaf", ownedBy(blocking(middle)))
		w.remove(owner, background)
		w.eventuallyGone(owner, middle)
		w.areOrphans(leaf)
	})
	t.Run("BG-06 a dependent that carries the foreground finalizer waits for its own", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		owner := w.create(configMaps, "owner")
		middle := w.create(configMaps, "middle", ownedBy(ref(owner)), withFinalizers(foregroundFinalizer))
		leaf := w.create(configMaps, "leaf", ownedBy(blocking(middle)), held)
		w.remove(owner, background)
		w.eventuallyGone(owner)
		w.eventuallyLeaving(middle, leaf)
		w.settle(configMaps)
		w.eventuallyFinalizers(middle, foregroundFinalizer)
		w.letGo(leaf)
		w.eventuallyGone(leaf, middle)
	})
}
