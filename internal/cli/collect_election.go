package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

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

// replica is what runs in an election.
type replica struct {
	lease       process.Lease
	config      *rest.Config
	role        *process.Role
	controllers metrics.Controllers
	synced      func() // is called at the beginning of each term
}

// run runs the controllers, in an election unless there is none.
func (r replica) run(ctx context.Context, e election) error {
	switch e {
	case warmElection:
		return r.lease.RunWarm(ctx, r.config, r.role, r.controllers, func(ctx context.Context) error { return r.untilSynced(ctx, r.controllers.Lead) })
	case coldElection:
		return r.lease.Run(ctx, r.config, r.role, func(ctx context.Context) error { return r.untilSynced(ctx, r.controllers.Run) })
	case noElection:
	}
	return r.untilSynced(ctx, r.controllers.Run)
}

// ready returns the readiness of a replica that stands by.
func (e election) ready(c metrics.Controllers) func() error {
	if e == warmElection {
		return c.Warm
	}
	return func() error { return nil }
}

// untilSynced runs the controllers, and calls synced when they are synced.
func (r replica) untilSynced(ctx context.Context, run func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return run(ctx) })
	group.Go(func() error {
		if r.controllers.WaitForSync(ctx) == nil {
			r.synced()
		}
		return nil
	})
	return group.Wait()
}
