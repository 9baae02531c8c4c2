package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/system"
)

const (
	// creators is the number of clients that create objects concurrently.
	creators = 16
	// defaultPercent is GOGC's default.
	defaultPercent = 100
)

// BenchmarkRuntime measures the background deletion of an owner with b.N dependents of 512 bytes, on
// one control plane in this process: with the runtime's defaults, and with each setting of
// tuneRuntime. cpu-µs/op is the processor time of the process for each dependent; create-µs/op is
// the time of its creation before.
//
//	go test ./cmd/coppice -run '^$' -bench Runtime -benchtime 5000x
func BenchmarkRuntime(b *testing.B) {
	client := controlPlane(b)
	procs, run := runtime.GOMAXPROCS(0), 0
	for _, setting := range []struct {
		name    string
		procs   int
		adapted bool
	}{{"defaults", procs, false}, {"GOMAXPROCS", procs + diskWaiters, false}, {"GOGC", procs, true}, {"tuned", procs + diskWaiters, true}} {
		b.Run(setting.name, func(b *testing.B) {
			run++
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(setting.procs))
			defer debug.SetGCPercent(debug.SetGCPercent(defaultPercent))
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			if setting.adapted {
				go adaptUntil(ctx, &heap{maxGarbage: maxGarbage, least: leastPercent})
			}
			runtime.GC()
			c := newCascade(ctx, b, client, fmt.Sprintf("run-%d-%d", run, b.N))
			began := time.Now()
			c.create(ctx, b, b.N)
			created := time.Since(began)
			before := processorTime(b)
			b.ResetTimer()
			c.delete(ctx, b, b.N)
			b.StopTimer()
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(created.Microseconds())/float64(b.N), "create-µs/op")
		})
	}
}

// cascade is a namespace with an owner in it.
type cascade struct {
	objects typedcorev1.ConfigMapInterface
	owner   metav1.OwnerReference
}

func newCascade(ctx context.Context, b *testing.B, client kubernetes.Interface, namespace string) cascade {
	b.Helper()
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	objects := client.CoreV1().ConfigMaps(namespace)
	owner, err := objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return cascade{objects, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
}

// create creates n dependents.
func (c cascade) create(ctx context.Context, b *testing.B, n int) {
	b.Helper()
	var group errgroup.Group
	group.SetLimit(creators)
	for i := range n {
		group.Go(func() error {
			_, err := c.objects.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("dependent-", i), OwnerReferences: []metav1.OwnerReference{c.owner}},
				Data:       map[string]string{"payload": strings.Repeat("x", 512)},
			}, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// delete deletes the owner, and waits until its n dependents are gone.
func (c cascade) delete(ctx context.Context, b *testing.B, n int) {
	b.Helper()
	list, err := c.objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	events, err := c.objects.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		b.Fatal(err)
	}
	defer events.Stop()
	background := metav1.DeletePropagationBackground
	if err := c.objects.Delete(ctx, c.owner.Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		b.Fatal(err)
	}
	for gone := 0; gone < n+1; { // the owner, too
		event, open := <-events.ResultChan()
		if !open {
			b.Fatalf("the watch ended with %d of %d objects gone", gone, n+1)
		}
		if event.Type == watch.Deleted {
			gone++
		}
	}
}

// BenchmarkReturnedMemory reports the anonymous memory of this process after the start of a control
// plane, in MB of 2^20 bytes, before and after the process returns the memory of the start.
func BenchmarkReturnedMemory(b *testing.B) {
	controlPlane(b)
	h := &heap{maxGarbage: maxGarbage, least: leastPercent}
	for release := false; !release; {
		time.Sleep(tuneInterval)
		_, release = h.adapted(readMetric(liveMetric), readMetric(allocatedMetric))
	}
	before := anonymousMB(b)
	debug.FreeOSMemory() // once: there is nothing to repeat
	b.ReportMetric(before, "MB-before")
	b.ReportMetric(anonymousMB(b), "MB-after")
}

// controlPlane starts a control plane with its data on disk, until the benchmark ends.
func controlPlane(b *testing.B) kubernetes.Interface {
	b.Helper()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan system.Plane, 1), make(chan error, 1)
	dir := b.TempDir()
	go func() { ended <- system.Run(ctx, system.Options{DataDir: dir}, func(p system.Plane) { ready <- p }) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	select {
	case p := <-ready:
		p.Config.QPS = -1
		client, err := kubernetes.NewForConfig(p.Config)
		if err != nil {
			b.Fatal(err)
		}
		return client
	case err := <-ended:
		ended <- nil
		b.Fatal(err)
	}
	return nil
}

func adaptUntil(ctx context.Context, h *heap) {
	for ticks := time.NewTicker(tuneInterval); ctx.Err() == nil; {
		h.adapt()
		select {
		case <-ticks.C:
		case <-ctx.Done():
		}
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func anonymousMB(b *testing.B) float64 {
	b.Helper()
	self, err := procfs.Self()
	if err != nil {
		b.Fatal(err)
	}
	status, err := self.NewStatus()
	if err != nil {
		b.Fatal(err)
	}
	return float64(status.RssAnon) / (1 << 20)
}
