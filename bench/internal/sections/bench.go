// Package sections measures: each Section is a group of figures that one run takes on the same
// servers, on both sides if there are two.
//
// In each run a section starts fresh servers, on loopback and on empty directories, syncing to disk,
// and stops them. It adds the measured values to its Bench, by figure and side.
package sections

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/report"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
	"github.com/coppice-dev/coppice/bench/realserver"
)

// The sides that are compared.
const (
	coppiceUp      = "coppice"
	kubernetes     = "upstream"
	serverAlone    = "kube-apiserver without a collector"
	asItComes      = "upstream, as it comes"
	limitsLifted   = "upstream, limits lifted"
	coppiceCollect = "coppice collect on kube-apiserver"
	collectAlone   = "coppice collect"
	crowdServer    = "the synthetic server"
	kwok           = "kwok, limits lifted"
)

// Section is a group of figures.
type Section struct {
	report.Section
	// MostRuns limits the number of runs of a slow section; 0 means no limit.
	MostRuns int
	Measure  func(context.Context, *Bench) error
}

// Bench is one run of one section.
type Bench struct {
	Coppice string // the binary
	// Kubernetes returns etcd, kube-apiserver, kube-controller-manager, and the programs that are asked for. It builds
	// those that were never built.
	Kubernetes func(...realserver.Binary) (realserver.Binaries, error)
	Stages     func() ([]string, error) // the paths of kwok's own
	Repository string                   // the directory of the main module
	Profiles   string                   // a directory for CPU profiles, or empty
	Sizes      Sizes
	Section    string
	Run, Runs  int // the first run is 0

	// Values are the measured values.
	Values []report.Value

	names int
}

func (b *Bench) add(side, figure, unit string, value float64) {
	b.Values = append(b.Values, report.Value{Section: b.Section, Run: b.Run, Figure: figure, Side: side, Unit: unit, Value: value})
}

// name returns a name that the run has not used yet.
func (b *Bench) name(prefix string) string {
	b.names++
	return fmt.Sprintf("%s-%d", prefix, b.names)
}

type measurement func(context.Context, *controlplane.Plane) error

// onCoppice measures on coppice up.
func (b *Bench) onCoppice(ctx context.Context, measure measurement, flags ...string) (err error) {
	p, err := controlplane.StartCoppice(ctx, b.Coppice, flags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	return measure(ctx, p)
}

// onKubernetes measures on etcd and kube-apiserver, beside which it can start kube-controller-manager and the other programs.
func (b *Bench) onKubernetes(ctx context.Context, measure measurement, others ...realserver.Binary) (err error) {
	binaries, err := b.Kubernetes(others...)
	if err != nil {
		return err
	}
	p, err := controlplane.StartKubernetes(ctx, binaries)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	return measure(ctx, p)
}

// onBoth measures on coppice up, and then on etcd and kube-apiserver.
func (b *Bench) onBoth(ctx context.Context, measure func(ctx context.Context, p *controlplane.Plane, side string) error) error {
	err := b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		// Its controllers must not create objects during the measurement.
		if err := populated(ctx, p, metav1.NamespaceDefault); err != nil {
			return err
		}
		return measure(ctx, p, coppiceUp)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", coppiceUp, err)
	}
	err = b.onKubernetes(ctx, func(ctx context.Context, p *controlplane.Plane) error { return measure(ctx, p, kubernetes) })
	if err != nil {
		return fmt.Errorf("%s: %w", kubernetes, err)
	}
	return nil
}

// collector is one of the collectors that run in turn on one kube-apiserver.
type collector struct {
	side string
	// slow collectors get fewer objects.
	slow  bool
	start func(context.Context, *controlplane.Plane) (*controlplane.Collector, error)
}

func (b *Bench) collectors() []collector {
	upstream := func(flags ...string) func(context.Context, *controlplane.Plane) (*controlplane.Collector, error) {
		return func(ctx context.Context, p *controlplane.Plane) (*controlplane.Collector, error) {
			return p.StartControllerManager(ctx, append([]string{"--controllers=garbage-collector-controller"}, flags...)...)
		}
	}
	return []collector{
		{side: asItComes, slow: true, start: upstream()},
		{side: limitsLifted, start: upstream(lifted()...)},
		{side: coppiceCollect, start: func(ctx context.Context, p *controlplane.Plane) (*controlplane.Collector, error) {
			return p.StartCollect(ctx, b.Coppice)
		}},
	}
}

// lifted returns the flags that lift the rate limits of kube-controller-manager, whose collector
// sends 20 requests a second by default.
func lifted() []string { return append(requestsLifted(), "--concurrent-gc-syncs=50") }

// requestsLifted returns the flags that lift the limits of requests per second of any program of upstream. The numbers are
// those of kwokctl create cluster --disable-qps-limits.
func requestsLifted() []string { return []string{"--kube-api-qps=5000", "--kube-api-burst=10000"} }

// eachCollector measures each collector in turn on one kube-apiserver.
func (b *Bench) eachCollector(ctx context.Context, p *controlplane.Plane, measure func(context.Context, collector, *controlplane.Collector) error) error {
	for _, c := range b.collectors() {
		running, err := c.start(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", c.side, err)
		}
		if err := errors.Join(measure(ctx, c, running), running.Stop()); err != nil {
			return fmt.Errorf("%s: %w", c.side, err)
		}
	}
	return nil
}

// work measures n operations: their rate per second, and the processor time that the plane spent
// on each.
func (b *Bench) work(ctx context.Context, p *controlplane.Plane, w work, do func() error) (rate float64, err error) {
	profiled := b.profile(ctx, p, w.side+" "+w.what)
	before, err := p.ProcessorTime()
	if err != nil {
		return 0, err
	}
	watch := stopwatch.Start()
	if err := do(); err != nil {
		return 0, fmt.Errorf("%s: %w", w.what, err)
	}
	rate = watch.Rate(w.n)
	after, err := p.ProcessorTime()
	if err != nil {
		return 0, err
	}
	b.add(w.side, w.what, w.unit+"/s", rate)
	b.add(w.side, w.what+", processor time of each", "ms", float64((after-before).Microseconds())/1000/float64(w.n))
	return rate, profiled()
}

// compare adds the ratio of each rate and processor time of this run that both sides have: more than one if side is faster, or
// takes more time. A figure with several values has as many ratios.
func (b *Bench) compare(side, other string) {
	var figures []string
	for _, v := range b.Values {
		if v.Side == side && (v.Unit == "ms" || strings.HasSuffix(v.Unit, "/s")) && !slices.Contains(figures, v.Figure) {
			figures = append(figures, v.Figure)
		}
	}
	for _, figure := range figures {
		mine, theirs := b.values(side, figure), b.values(other, figure)
		for i := range min(len(mine), len(theirs)) {
			b.add(side, figure+", compared with "+other, "times", mine[i]/theirs[i])
		}
	}
}

// values returns the values of a figure of one side, in the order in which they were measured.
func (b *Bench) values(side, figure string) []float64 {
	var all []float64
	for _, v := range b.Values {
		if v.Side == side && v.Figure == figure {
			all = append(all, v.Value)
		}
	}
	return all
}

// work names a measurement and its number of operations.
type work struct {
	side, what, unit string
	n                int
}

// profileSeconds is the length of a profile.
const profileSeconds = 3

// profile starts a CPU profile of the server if a directory for it was given, and returns a
// function that waits for its end.
func (b *Bench) profile(ctx context.Context, p *controlplane.Plane, what string) (wait func() error) {
	if b.Profiles == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		data, err := p.Client.Discovery().RESTClient().Get().AbsPath("/debug/pprof/profile").
			Param("seconds", strconv.Itoa(profileSeconds)).SetHeader("Accept", "*/*").DoRaw(ctx)
		if err == nil {
			err = os.WriteFile(filepath.Join(b.Profiles, fileName(b.Section+" "+what)+".pprof"), data, 0o600)
		}
		done <- err
	}()
	return func() error { return <-done }
}

// profileHeap writes a profile of the server's heap, as it is after a collection, if a directory for
// it was given.
func (b *Bench) profileHeap(ctx context.Context, p *controlplane.Plane, what string) error {
	if b.Profiles == "" {
		return nil
	}
	data, err := p.Heap(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.Profiles, fileName(b.Section+" "+what)+".heap"), data, 0o600)
}

// fileName replaces characters that do not belong in a file name.
func fileName(text string) string {
	name := []rune(text)
	for i, r := range name {
		if r == ' ' || r == ',' || r == '/' {
			name[i] = '-'
		}
	}
	return string(name)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
