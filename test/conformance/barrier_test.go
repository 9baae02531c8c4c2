package conformance

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/coppice-dev/coppice"
	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
	gc "github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// The owners that a benchmark of the barrier deletes at once, and their dependents.
const (
	crowdOwners     = 1000
	crowdDependents = 3 // of each
	crowdSpaces     = 100
	crowdClients    = 32
)

// BenchmarkBarrier measures the cost of proving that no dependent was missed (R15): the same
// crowd of owners is deleted with the proof and without it, in turns. It reports medians, and the
// ratio of each pair:
//
//	go test -run '^$' -bench Barrier -benchtime 3x ./test/conformance
func BenchmarkBarrier(b *testing.B) {
	for _, policy := range []metav1.DeletionPropagation{probe.Foreground, probe.Orphan} {
		b.Run(string(policy), func(b *testing.B) {
			w := quiet(b)
			spaces := []*probe.Space{w.Space}
			for len(spaces) < crowdSpaces {
				spaces = append(spaces, w.Another())
			}
			var with, without, ratios, work, requests []float64
			turn := 0
			for b.Loop() {
				// Neither is always the first.
				var on, off cost
				if turn++; turn%2 == 0 {
					on = deleteCrowd(b, w, spaces, policy, true, turn)
					off = deleteCrowd(b, w, spaces, policy, false, turn)
				} else {
					off = deleteCrowd(b, w, spaces, policy, false, turn)
					on = deleteCrowd(b, w, spaces, policy, true, turn)
				}
				with, without = append(with, on.seconds), append(without, off.seconds)
				ratios = append(ratios, on.seconds/off.seconds)
				work = append(work, on.work/off.work)
				requests = append(requests, on.requests-off.requests)
			}
			b.ReportMetric(0, "ns/op") // meaningless: most of it is the creation of the objects
			b.ReportMetric(median(with), "s-with")
			b.ReportMetric(median(without), "s-without")
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(median(work), "cpu-ratio")
			b.ReportMetric(median(requests), "requests/owner")
		})
	}
}

// cost holds the costs of a deletion.
type cost struct {
	seconds  float64
	work     float64 // CPU seconds of this process: of the server too, where that is ours
	requests float64 // of the collector, for each owner
}

// deleteCrowd makes a crowd, deletes the owners, and measures until all are gone.
func deleteCrowd(b *testing.B, w *cluster, spaces []*probe.Space, policy metav1.DeletionPropagation, barrier bool, turn int) cost {
	b.Helper()
	tap := &tap{whole: true}
	stop := w.collectWith(tap, withBarrier(barrier))
	defer stop()
	owners := makeCrowd(b, spaces, fmt.Sprintf("%d-%t", turn, barrier))
	w.Settle(probe.ConfigMaps, probe.Secrets)
	gone := watchOwners(b, w)
	defer gone.Stop()
	finished := make(chan error, 1)
	go func() { finished <- awaitRemoval(gone, owners) }()

	before := tap.count(match{}) - tap.count(match{verbs: "watch"})
	began, worked := time.Now(), cpuSeconds(b)
	all(b, len(owners), func(ctx context.Context, i int) error {
		return w.Objects(owners[i]).Delete(ctx, owners[i].Name, metav1.DeleteOptions{PropagationPolicy: &policy})
	})
	if err := <-finished; err != nil {
		b.Fatal(err)
	}
	took, worked := time.Since(began), cpuSeconds(b)-worked
	after := tap.count(match{}) - tap.count(match{verbs: "watch"})
	for _, s := range spaces {
		s.Forget() // to clean up one by one takes long
		// What was orphaned.
		_ = s.Server.Metadata.Resource(probe.Secrets.GroupVersionResource).Namespace(s.Name).DeleteCollection(b.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	return cost{took.Seconds(), worked, float64(after-before) / float64(len(owners))}
}

// withBarrier makes a collector with or without the proof. No option of the public API turns it
// off, so the collector is assembled here, the same way in both cases.
func withBarrier(on bool) controllers {
	return func(config *rest.Config, log *slog.Logger) (runner, error) {
		config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf // as coppice.New has it
		discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return nil, err
		}
		metadataClient, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		observed := feed.New(discoveryClient, metadataClient, feed.Config{Ignore: coppice.DefaultIgnore(), Logger: log})
		api, err := client.New(config, observed)
		if err != nil {
			return nil, err
		}
		barrier := gc.Off
		if on {
			barrier = gc.On
		}
		return &bareCollector{feed: observed, collector: gc.New(api, gc.Config{Barrier: barrier, Logger: log, Limiter: pace.New(32, 256, time.Now)})}, nil
	}
}

// bareCollector is a feed and a collector.
type bareCollector struct {
	feed      *feed.Feed
	collector *gc.Collector
	synced    atomic.Bool
}

// Run collects until ctx ends.
func (c *bareCollector) Run(ctx context.Context) error {
	var observing sync.WaitGroup
	defer observing.Wait()
	observing.Go(func() { c.feed.Run(ctx, c.collector.Sink()) })
	if c.feed.WaitForInitialSync(ctx) == nil {
		c.synced.Store(true)
		c.collector.Run(ctx)
	}
	return nil
}

// Synced reports whether it is collecting.
func (c *bareCollector) Synced() bool { return c.synced.Load() }

// watchOwners watches all config maps from now on. A server ends the watch of a client that falls
// behind, which happens if the two share two processors: then the watch is resumed.
func watchOwners(b *testing.B, w *cluster) watch.Interface {
	b.Helper()
	all := w.Server.Metadata.Resource(probe.ConfigMaps.GroupVersionResource)
	now, err := all.List(b.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	open := func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return all.Watch(ctx, options)
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(b.Context(), now.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: open})
	if err != nil {
		b.Fatal(err)
	}
	return watcher
}

// cpuSeconds returns the CPU time that this process has used so far.
func cpuSeconds(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// makeCrowd makes owners with their dependents in all namespaces.
func makeCrowd(b *testing.B, spaces []*probe.Space, name string) []probe.Object {
	b.Helper()
	owners := make([]probe.Object, crowdOwners)
	all(b, len(owners), func(_ context.Context, i int) error {
		w := spaces[i%len(spaces)]
		owner, err := w.TryCreate(probe.ConfigMaps, fmt.Sprintf("owner-%s-%d", name, i))
		if err != nil {
			return err
		}
		owners[i] = owner
		for j := range crowdDependents {
			if _, err := w.TryCreate(probe.Secrets, fmt.Sprintf("dependent-%s-%d-%d", name, i, j), probe.OwnedBy(probe.Blocking(owner))); err != nil {
				return err
			}
		}
		return nil
	})
	return owners
}

// all calls a function n times, many of them concurrently.
func all(b *testing.B, n int, do func(ctx context.Context, i int) error) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(crowdClients)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// awaitRemoval reads events until all objects are gone.
func awaitRemoval(events watch.Interface, objects []probe.Object) error {
	left := make(map[types.UID]bool, len(objects))
	for _, o := range objects {
		left[o.UID] = true
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for len(left) > 0 {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended with %d owners left", len(left))
			}
			if o, ok := event.Object.(*metav1.PartialObjectMetadata); ok && event.Type == watch.Deleted {
				delete(left, o.UID)
			}
		case <-late.C:
			return fmt.Errorf("%d owners are left after %s", len(left), patience)
		}
	}
	return nil
}

func median(values []float64) float64 {
	return slices.SortedFunc(slices.Values(values), cmp.Compare[float64])[len(values)/2]
}
