package sections

import (
	"context"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// start measures the start of a control plane with a collector, and its memory when idle.
func start(ctx context.Context, b *Bench) error {
	err := b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		watch := stopwatch.Start()
		if err := p.Collecting(ctx); err != nil {
			return err
		}
		b.started(coppiceUp, p, p.Ready.Seconds()+watch.Seconds())
		return b.idle(ctx, p, coppiceUp)
	})
	if err != nil {
		return err
	}
	return b.onKubernetes(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		c, err := p.StartControllerManager(ctx)
		if err != nil {
			return err
		}
		b.started(kubernetes, p, (p.Ready + c.Ready).Seconds())
		return b.idle(ctx, p, kubernetes)
	})
}

func (b *Bench) started(side string, p *controlplane.Plane, collecting float64) {
	b.add(side, "processes", "", float64(len(p.Processes())))
	b.add(side, "start to ready", "s", p.Ready.Seconds())
	b.add(side, "start to the first object collected", "s", collecting)
}

// idle measures the memory of a plane that has been idle for a while.
func (b *Bench) idle(ctx context.Context, p *controlplane.Plane, side string) error {
	if err := pause(ctx, b.Sizes.Idle); err != nil {
		return err
	}
	all, err := p.Memory()
	if err != nil {
		return err
	}
	b.add(side, "idle memory, RssAnon", "MB", all.Anonymous)
	b.add(side, "idle memory, PSS", "MB", all.Proportional)
	processes := p.Processes()
	if len(processes) == 1 {
		return nil
	}
	for _, process := range processes {
		one, err := process.Memory()
		if err != nil {
			return err
		}
		b.add(side, "of that "+process.Name+", RssAnon", "MB", one.Anonymous)
		b.add(side, "of that "+process.Name+", PSS", "MB", one.Proportional)
	}
	return nil
}
