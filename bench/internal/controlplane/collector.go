package controlplane

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// Collector is a garbage collector in a process of its own.
type Collector struct {
	// Ready is the time from its start until it had collected an object.
	Ready time.Duration

	end func() error
}

// Stop ends the process. Calls after the first one do nothing.
func (c *Collector) Stop() error { return c.end() }

// StartControllerManager starts kube-controller-manager with the given flags on a plane started
// by StartKubernetes, and waits until it collects.
func (p *Plane) StartControllerManager(ctx context.Context, flags ...string) (*Collector, error) {
	s, ok := p.server.(kubeAPIServer)
	if !ok {
		return nil, errors.New("kube-controller-manager runs on kube-apiserver only")
	}
	watch := stopwatch.Start()
	stop, err := s.StartControllerManager(flags...)
	if err != nil {
		return nil, err
	}
	return p.collecting(ctx, watch, stop)
}

// StartCollect starts coppice collect on the plane and waits until it collects.
func (p *Plane) StartCollect(ctx context.Context, binary string) (*Collector, error) {
	watch := stopwatch.Start()
	run, err := startProgram(binary, "collect", "--kubeconfig", p.server.kubeconfig(), "--bind-address=0", "--log-level=error")
	if err != nil {
		return nil, err
	}
	p.programs = append(p.programs, run)
	return p.collecting(ctx, watch, run.stop)
}

func (p *Plane) collecting(ctx context.Context, watch stopwatch.Stopwatch, stop func() error) (*Collector, error) {
	c := &Collector{end: sync.OnceValue(stop)}
	p.collectors = append(p.collectors, c)
	if err := p.Collecting(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	c.Ready = watch.Elapsed()
	return c, nil
}
