package collector_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/testing/wireserver"
)

// Every bubble of fake time starts at the same time, so the last error may lie in the future,
// and the wait for it would be long.
func TestMain(m *testing.M) {
	if what := os.Getenv(serveVariable); what != "" {
		serve(what)
		return
	}
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	m.Run()
}

// kinds are the resources of the servers, beside namespaces.
func kinds() []wireserver.Resource {
	return []wireserver.Resource{
		{Name: "configmaps", Kind: "ConfigMap"},
		{Name: "secrets", Kind: "Secret"},
		{Name: "services", Kind: "Service"},
		{Group: "apps", Name: "replicasets", Kind: "ReplicaSet"},
	}
}

// family makes an owner with a number of dependents.
func family(s *wireserver.Server, owner types.UID, dependents int) {
	s.Put("configmaps", wireserver.Owned("owner-"+string(owner), owner))
	for i := range dependents {
		name := string(owner) + "-" + strconv.Itoa(i)
		s.Put("secrets", wireserver.Owned(name, types.UID(name), owner))
	}
}

// pooled runs a pool in a bubble of fake time, and stops it at the end of the test.
func pooled(t *testing.T, options collector.PoolOptions, servers map[string]*wireserver.Server, test func(p *collector.Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := collector.NewPool(options)
		for name, s := range servers {
			if err := p.Add(name, s.Config()); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run = %v", err)
			}
		}()
		test(p)
		// The bubble fails the test when a goroutine is left.
	})
}

// advance advances the fake clock, and waits until the bubble is idle.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// isAsleep reports whether a cluster sleeps.
func isAsleep(p *collector.Pool, name string) bool {
	return !p.Cluster(name).Status().AsleepSince.IsZero()
}

// asleep waits for a cluster to sleep.
func asleep(t *testing.T, p *collector.Pool, name string) {
	t.Helper()
	for range 100 {
		if isAsleep(p, name) {
			return
		}
		advance(2 * time.Second)
	}
	t.Fatalf("%s does not sleep: %+v", name, p.Cluster(name).Status())
}

func secrets(t *testing.T, what string, s *wireserver.Server, want ...types.UID) {
	t.Helper()
	if got := s.UIDs("secrets"); !slices.Equal(got, want) {
		t.Errorf("%s: there are %v, want %v", what, got, want)
	}
}

// Two clusters have the same UIDs, like a cluster that was restored from a backup of the other. Changes in one
// do not affect the other.
func TestR1_ClustersNeverMeet(t *testing.T) {
	a, b := wireserver.New(kinds()...), wireserver.New(kinds()...)
	for _, s := range []*wireserver.Server{a, b} {
		family(s, "web", 2)
	}
	a.Remove("configmaps", "web") // before the collector starts: a live read is the evidence
	pooled(t, collector.PoolOptions{}, map[string]*wireserver.Server{"a": a, "b": b}, func(p *collector.Pool) {
		advance(5 * time.Second)
		secrets(t, "a, without the owner", a)
		secrets(t, "b, with the owner", b, "web-0", "web-1")
		for name, want := range map[string]int{"a": 2, "b": 0} {
			if records := p.Cluster(name).Records(); len(records) != want {
				t.Errorf("%s has the records %+v, want %d", name, records, want)
			}
		}
		family(a, "web", 2) // again, with the UIDs that were absent
		b.Remove("configmaps", "web")
		advance(5 * time.Second)
		secrets(t, "b, whose owner was deleted", b)
		secrets(t, "a, where it is there again", a, "web-0", "web-1")
		if d := b.Requests().Deletes; d != 2 {
			t.Errorf("%d deletions of 2 objects in b", d)
		}
	})
}

// An idle cluster closes its watches. The next probe detects a deletion in the meantime, and the watch delivers
// it as an event, without a list.
func TestR3_SleepLosesNoDeletion(t *testing.T) {
	s := wireserver.New(kinds()...)
	family(s, "web", 3)
	family(s, "db", 1)
	pooled(t, collector.PoolOptions{}, map[string]*wireserver.Server{"c": s}, func(p *collector.Pool) {
		advance(time.Second)
		if got := s.Requests(); got.Lists != 5 || got.Watches != 5 || !p.Cluster("c").Synced() {
			t.Errorf("at the start: %+v", got)
		}
		asleep(t, p, "c")
		s.Requests()
		advance(time.Minute)
		if got := s.Requests(); got.Probes != 30 || got != (wireserver.Requests{Probes: got.Probes}) {
			t.Errorf("in a minute of sleep: %+v, want 30 probes", got)
		}
		s.Remove("configmaps", "web")
		secrets(t, "before the probe", s, "db-0", "web-0", "web-1", "web-2")
		advance(3 * time.Second)
		secrets(t, "after the probe", s, "db-0")
		if got := s.Requests(); got.Lists != 0 || got.Gets != 0 || got.Watches != 5 || got.Deletes != 3 {
			t.Errorf("to collect 3 objects: %+v", got)
		}
		if n := p.Cluster("c").Status().Stats.Epochs; n != 0 {
			t.Errorf("%d epochs have begun", n)
		}
		asleep(t, p, "c")
		for _, r := range p.Cluster("c").Records() {
			if r.Owners[0].Evidence != "deleted event" {
				t.Errorf("%s was deleted, the evidence is %s", r.Object.Name, r.Owners[0].Evidence)
			}
		}
	})
}

// The server has forgotten what happened while the cluster slept. It is listed; that is no evidence, so the
// owner is read live.
func TestR3_SleepBeyondTheHistory(t *testing.T) {
	s := wireserver.New(kinds()...)
	family(s, "web", 2)
	family(s, "db", 2)
	pooled(t, collector.PoolOptions{}, map[string]*wireserver.Server{"c": s}, func(p *collector.Pool) {
		asleep(t, p, "c")
		s.Requests()
		s.Remove("configmaps", "web")
		s.Compact()
		advance(time.Minute)
		secrets(t, "after the probe", s, "db-0", "db-1")
		// Each list begins an epoch, in which no deletion is known to have been asked for: it may be repeated.
		if got := s.Requests(); got.Lists == 0 || got.Gets == 0 || got.Deletes < 2 {
			t.Errorf("%+v, want lists, a live read, and 2 deletions", got)
		}
		asleep(t, p, "c")
	})
}

// A backup is restored while the cluster sleeps. Its revision is lower, and absent objects exist again: a new
// epoch begins, and old evidence causes no deletion.
func TestR4_SleepThroughARestore(t *testing.T) {
	s := wireserver.New(kinds()...)
	family(s, "web", 2)
	restore := s.Backup()
	s.Remove("configmaps", "web")
	pooled(t, collector.PoolOptions{}, map[string]*wireserver.Server{"c": s}, func(p *collector.Pool) {
		asleep(t, p, "c")
		secrets(t, "before the restore", s)
		s.Requests()
		restore()
		advance(time.Minute)
		secrets(t, "after the restore", s, "web-0", "web-1")
		if got := s.Requests(); got.Deletes != 0 || got.Lists < 5 {
			t.Errorf("%+v, want lists of everything and no deletion", got)
		}
		if n := p.Cluster("c").Status().Stats.Epochs; n == 0 {
			t.Error("no epoch has begun")
		}
		s.Remove("configmaps", "web")
		advance(5 * time.Second)
		secrets(t, "after the deletion", s)
	})
}

// While a cluster sleeps, another server takes the place of its server. Its revision is higher, and watches would
// continue; but its namespace kube-system is another one.
func TestR4_SleepAndWakeToAnotherServer(t *testing.T) {
	s, other := wireserver.New(kinds()...), wireserver.New(kinds()...)
	family(s, "web", 1)
	system := wireserver.Owned("kube-system", "other")
	system.Namespace = ""
	other.Remove("namespaces", "kube-system")
	other.Put("namespaces", system)
	family(other, "there", 2)
	family(other, "gone", 2)
	other.Remove("configmaps", "gone")
	pooled(t, collector.PoolOptions{}, map[string]*wireserver.Server{"c": s}, func(p *collector.Pool) {
		asleep(t, p, "c")
		s.Become(other)
		advance(10 * time.Second)
		if n := p.Cluster("c").Status().Stats.Epochs; n == 0 {
			t.Error("no epoch has begun")
		}
		secrets(t, "of the other server", s, "there-0", "there-1")
		if wrong := s.Wrong(); len(wrong) > 0 {
			t.Errorf("%v were deleted", wrong)
		}
	})
}

// Where a resource has revisions of its own, as one that another server serves, a probe would not show its changes:
// the watches stay open.
func TestRevisionsThatAreNotSharedKeepAwake(t *testing.T) {
	s := wireserver.New(append(kinds(), wireserver.Resource{Group: "example.com", Name: "widgets", Kind: "Widget", Offset: 1000})...)
	family(s, "web", 1)
	pooled(t, collector.PoolOptions{}, map[string]*wireserver.Server{"c": s}, func(p *collector.Pool) {
		advance(10 * time.Minute)
		if isAsleep(p, "c") {
			t.Error("it sleeps")
		}
		s.Remove("configmaps", "web")
		synctest.Wait()
		secrets(t, "at once", s)
	})
}

// A cluster that was woken for nothing sleeps again after seconds; one that had work, after IdleAfter. A host that
// knows of a write need not wait for the probe.
func TestClusterWokenForNothingSleepsAgain(t *testing.T) {
	s := wireserver.New(kinds()...)
	family(s, "web", 1)
	options := collector.PoolOptions{IdleAfter: 10 * time.Minute, ProbeInterval: time.Minute}
	pooled(t, options, map[string]*wireserver.Server{"c": s}, func(p *collector.Pool) {
		for range 30 {
			advance(time.Minute)
		}
		if !isAsleep(p, "c") {
			t.Fatal("it does not sleep")
		}
		s.Tick()
		for seconds := 0; isAsleep(p, "c"); seconds++ {
			if seconds > 60 {
				t.Fatal("it sleeps, although something was written")
			}
			advance(time.Second)
		}
		advance(15 * time.Second)
		if !isAsleep(p, "c") {
			t.Error("it does not sleep again, although nothing was there to do")
		}
		s.Remove("configmaps", "web")
		if !p.Wake("c") || p.Wake("unknown") {
			t.Error("Wake does not say whether there is such a cluster")
		}
		advance(time.Second)
		secrets(t, "after Wake", s)
		advance(5 * time.Minute)
		if isAsleep(p, "c") {
			t.Error("it sleeps after 5 minutes, want 10 after it had work")
		}
	})
}

// One cluster cannot be reached. The others are collected; it is, too, when it comes back, also out of its sleep.
func TestOneClusterDownDelaysNoOther(t *testing.T) {
	down, up := wireserver.New(kinds()...), wireserver.New(kinds()...)
	down.SetDown(true)
	for _, s := range []*wireserver.Server{down, up} {
		family(s, "web", 1)
	}
	pooled(t, collector.PoolOptions{}, map[string]*wireserver.Server{"down": down, "up": up}, func(p *collector.Pool) {
		advance(time.Second)
		up.Remove("configmaps", "web")
		synctest.Wait()
		secrets(t, "up", up)
		if err := p.Cluster("down").Ready(); !errors.Is(err, collector.ErrNotSynced) {
			t.Errorf("the cluster that is down: %v", err)
		}
		down.SetDown(false)
		asleep(t, p, "down")
		down.SetDown(true)
		advance(time.Minute)
		if s := p.Cluster("down").Status(); s.AsleepSince.IsZero() || s.ProbeError == "" {
			t.Errorf("asleep since %v, probe: %q, want an error", s.AsleepSince, s.ProbeError)
		}
		down.Remove("configmaps", "web")
		down.SetDown(false)
		advance(3 * time.Second)
		secrets(t, "down, when it is there again", down)
	})
}

// Clusters come and go while the pool runs.
func TestAddAndRemove(t *testing.T) {
	a, b := wireserver.New(kinds()...), wireserver.New(kinds()...)
	for _, s := range []*wireserver.Server{a, b} {
		family(s, "web", 1)
	}
	pooled(t, collector.PoolOptions{}, map[string]*wireserver.Server{"a": a}, func(p *collector.Pool) {
		asleep(t, p, "a")
		if err := p.Add("a", a.Config()); !errors.Is(err, collector.ErrClusterExists) {
			t.Errorf("Add of a name in use = %v", err)
		}
		if err := p.Add("b", b.Config()); err != nil {
			t.Fatal(err)
		}
		if got := p.Clusters(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the clusters are %v", got)
		}
		advance(time.Second)
		if !p.Remove("a") || p.Remove("a") || p.Cluster("a") != nil {
			t.Error("Remove does not say whether there was one, or it is still there")
		}
		a.Requests()
		for _, s := range []*wireserver.Server{a, b} {
			s.Remove("configmaps", "web")
		}
		advance(time.Minute)
		secrets(t, "removed", a, "web-0")
		secrets(t, "added", b)
		if got := a.Requests(); got != (wireserver.Requests{}) {
			t.Errorf("requests of a cluster that was removed: %+v", got)
		}
		if err := p.Run(t.Context()); !errors.Is(err, collector.ErrAlreadyStarted) {
			t.Errorf("a second Run = %v", err)
		}
	})
}

// A cluster that sleeps costs three goroutines at most; here, where there are no connections, one.
func TestSleepingClustersCostThreeGoroutines(t *testing.T) {
	const clusters = 25
	servers := map[string]*wireserver.Server{}
	for i := range clusters {
		servers["c"+strconv.Itoa(i)] = wireserver.New(kinds()...)
	}
	pooled(t, collector.PoolOptions{}, servers, func(p *collector.Pool) {
		for name := range servers {
			asleep(t, p, name)
		}
		buffer := make([]byte, 8<<20)
		stacks := string(buffer[:runtime.Stack(buffer, true)])
		ours := strings.Count(stacks, "collector.(*Collector).runSleeping(")
		others := 0
		for stack := range strings.SplitSeq(stacks, "\n\n") {
			for _, sign := range []string{"client-go", "net/http", "wireserver", "coppice/internal/collect/feed", "coppice/internal/collect/queue", "coppice/internal/collect/collector"} {
				if strings.Contains(stack, sign) && !strings.Contains(stack, "runSleeping") {
					others++
					t.Log(stack)
					break
				}
			}
		}
		if ours != clusters || others > 0 {
			t.Errorf("%d clusters that sleep have %d goroutines, and %d others", clusters, ours, others)
		}
	})
}
