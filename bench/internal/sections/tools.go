package sections

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"syscall"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// tools measures the commands that tell of deletions, from their start to their end: the time, and the most
// resident memory of their process. They read the whole cluster or, where a collector of ours runs, ask that.
// The object has few dependents, so what is measured is the reading.
func (b *Bench) tools(ctx context.Context, p *controlplane.Plane, side, namespace, object string) error {
	for _, command := range [][]string{{"preview", "delete"}, {"explain"}, {"graph"}} {
		arguments := append(command, object, "--namespace", namespace, "--kubeconfig", p.Kubeconfig())
		if err := b.tool(ctx, side, "coppice "+command[0]+", all read anew", arguments); err != nil {
			return err
		}
		if side != coppiceUp {
			continue
		}
		if err := b.tool(ctx, side, "coppice "+command[0]+", asked of the collector", slices.Concat(arguments, []string{"--address", p.Config.Host})); err != nil {
			return err
		}
	}
	return nil
}

// tool measures one command.
func (b *Bench) tool(ctx context.Context, side, what string, arguments []string) error {
	c := exec.CommandContext(ctx, b.Coppice, arguments...)
	watch := stopwatch.Start()
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("coppice %v: %w: %.500s", arguments, err, out)
	}
	b.add(side, b.with(what), "s", watch.Seconds())
	if usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
		b.add(side, b.with(what+", most resident memory"), "MB", float64(usage.Maxrss)*1024/1e6)
	}
	return nil
}
