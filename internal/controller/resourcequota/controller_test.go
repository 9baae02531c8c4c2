package resourcequota

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

// charging is a controller that does not run, with a quota of two pods that admission charges.
type charging struct {
	*Controller

	t      *testing.T
	clock  *clocktesting.FakeClock
	client *fake.Clientset
	events cache.ResourceEventHandler
	quota  *corev1.ResourceQuota
}

func newCharging(t *testing.T) *charging {
	t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "two", UID: "1"},
		Spec:       corev1.ResourceQuotaSpec{Hard: amounts(t, map[string]string{"pods": "2"})},
	}
	_, _, metadata := newTestMonitors(t)
	c := &charging{t: t, client: fake.NewClientset(quota), clock: clocktesting.NewFakeClock(time.Now()), quota: quota}
	core := informers.NewSharedInformerFactory(c.client, 0).Core().V1()
	var err error
	c.Controller, err = New(Config{
		Client: c.client, Metadata: metadata, Clock: c.clock, Log: slog.New(slog.DiscardHandler),
		Pods: core.Pods().Informer(), Services: core.Services().Informer(), Claims: core.PersistentVolumeClaims().Informer(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go c.Pods.RunWithContext(ctx)
	go func() { // the queue, which asks at the times that the test chooses
		for {
			select {
			case <-c.requests:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		c.monitors.started.Wait()
	})
	if !cache.WaitForCacheSync(ctx.Done(), c.Pods.HasSynced) {
		t.Fatal("the cache of pods is not synced")
	}
	c.events = c.handler(ctx)
	c.observe(quota, func() { c.events.OnAdd(quota, false) })
	known := make(chan struct{})
	demand := c.monitors.known
	c.monitors.known = func(ctx context.Context, key cache.ObjectName) {
		demand(ctx, key)
		close(known)
	}
	if _, err := c.reconcile(ctx, cache.MetaObjectToName(quota)); err != nil {
		t.Fatal(err)
	}
	<-known // so no demand comes later than the test expects
	return c
}

// observe makes the controller's cache have the quota, and tells it of the event.
func (c *charging) observe(quota *corev1.ResourceQuota, event func()) {
	c.t.Helper()
	if err := c.informer.GetIndexer().Add(quota); err != nil {
		c.t.Fatal(err)
	}
	c.quota = quota
	event()
}

// uses makes the controller observe that the status says how many pods are used.
func (c *charging) uses(pods string) {
	c.t.Helper()
	charged := c.quota.DeepCopy()
	charged.Status = corev1.ResourceQuotaStatus{Hard: charged.Spec.Hard, Used: amounts(c.t, map[string]string{"pods": pods})}
	if _, err := c.client.CoreV1().ResourceQuotas("ns").UpdateStatus(c.t.Context(), charged, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	before := c.quota
	c.observe(charged, func() { c.events.OnUpdate(before, charged) })
}

// reconciles reconciles the quota, and fails unless that asks to be repeated after a time and leaves a number of pods.
func (c *charging) reconciles(requeueAfter time.Duration, pods string) {
	c.t.Helper()
	if got, err := c.reconcile(c.t.Context(), cache.MetaObjectToName(c.quota)); err != nil || got != requeueAfter {
		c.t.Errorf("reconcile again after %s, want %s; %v", got, requeueAfter, err)
	}
	now, err := c.client.CoreV1().ResourceQuotas("ns").Get(c.t.Context(), "two", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if used := now.Status.Used["pods"]; used.String() != pods {
		c.t.Errorf("used: %s pods, want %s", used.String(), pods)
	}
}

// A charge whose object is not in the cache yet is not taken away as long as others are charged, except when something
// was freed. When nothing is charged any more, it is.
func TestChargesInFlightStay(t *testing.T) {
	c := newCharging(t)
	c.reconciles(resyncPeriod, "0")
	c.uses("1")
	c.clock.Step(4 * time.Second)
	c.uses("2")
	c.clock.Step(time.Second) // the first charge is settled, the second is not
	c.reconciles(4*time.Second, "2")
	c.clock.Step(4 * time.Second)
	c.reconciles(resyncPeriod, "0")

	c.uses("2")
	c.freed(t.Context(), corev1.Resource("pods"), "ns", func(*corev1.ResourceQuota) bool { return true })
	c.reconciles(resyncPeriod, "0")
}

// A quota that is charged all the time is counted at each resync, as by upstream's controller.
func TestQuotaIsCountedAtResync(t *testing.T) {
	c := newCharging(t)
	c.reconciles(resyncPeriod, "0")
	for range resyncPeriod/time.Second/2 - 1 {
		c.clock.Step(2 * time.Second)
		c.uses("1")
		c.uses("2")
	}
	c.reconciles(settlePeriod, "2")
	c.clock.Step(2 * time.Second)
	c.uses("1")
	c.reconciles(resyncPeriod, "0")
}

// A pod that admission has not charged, because it did not have the quota yet, and a pod that appears in the cache long
// after its charge: each is counted once no more pods appear, although the status has not changed since the last count.
func TestObjectsThatAppearLateAreCounted(t *testing.T) {
	c := newCharging(t)
	c.reconciles(resyncPeriod, "0")
	for want, name := range []string{"a", "b"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		if err := c.Pods.GetIndexer().Add(pod); err != nil {
			t.Fatal(err)
		}
		c.clock.Step(time.Minute)
		c.added(t.Context(), corev1.Resource("pods"), "ns")
		c.reconciles(settlePeriod, strconv.Itoa(want))
		c.clock.Step(settlePeriod)
		c.reconciles(resyncPeriod, strconv.Itoa(want+1))
		c.uses(strconv.Itoa(want + 1)) // the controller's own write
		c.clock.Step(settlePeriod)
		c.reconciles(resyncPeriod, strconv.Itoa(want+1))
	}
}
