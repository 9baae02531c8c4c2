package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/coppice-dev/coppice/internal/collect/process"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
)

// election is the value of --leader-elect.
type election string

const (
	noElection election = "false"
	// warmElection lets a replica that stands by watch the server.
	warmElection election = "true"
	// coldElection lets it watch nothing.
	coldElection election = "cold"
)

// add adds the flag, which needs no value.
func (e *election) add(c *cobra.Command) {
	*e = noElection
	flags := c.Flags()
	flags.Var(e, "leader-elect", "work only while holding a Lease; with cold, a replica that stands by watches nothing")
	flags.Lookup("leader-elect").NoOptDefVal = string(warmElection)
	completeWith(c, "leader-elect", string(warmElection), string(coldElection), string(noElection))
}

// String implements pflag.Value.
func (e *election) String() string { return string(*e) }

// Type implements pflag.Value.
func (e *election) Type() string { return "true|cold|false" }

// Set implements pflag.Value.
func (e *election) Set(text string) error {
	switch value := election(text); value {
	case noElection, warmElection, coldElection:
		*e = value
		return nil
	}
	return errors.New("choose true, cold or false")
}

// run runs controllers, in an election unless there is none, and calls synced at the beginning of each term.
func (e election) run(ctx context.Context, l process.Lease, s *server, role *process.Role, c metrics.Controllers, synced func()) error {
	switch e {
	case warmElection:
		return l.RunWarm(ctx, s.config, role, c, func(ctx context.Context) error { return untilSynced(ctx, c, c.Lead, synced) })
	case coldElection:
		return l.Run(ctx, s.config, role, func(ctx context.Context) error { return untilSynced(ctx, c, c.Run, synced) })
	case noElection:
	}
	return untilSynced(ctx, c, c.Run, synced)
}

// ready returns the readiness of a replica that stands by.
func (e election) ready(c metrics.Controllers) func() error {
	if e == warmElection {
		return c.Warm
	}
	return func() error { return nil }
}

// untilSynced runs controllers, and calls synced when they are synced.
func untilSynced(ctx context.Context, c metrics.Controllers, run func(context.Context) error, synced func()) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return run(ctx) })
	group.Go(func() error {
		if c.WaitForSync(ctx) == nil {
			synced()
		}
		return nil
	})
	return group.Wait()
}
