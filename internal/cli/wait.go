package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
)

// waitFlags are the flags of coppice wait.
type waitFlags struct {
	cluster clusterFlags
	address string
	output  string
	timeout time.Duration
}

func waitFormats() []string { return []string{"text", "json", "yaml"} }

func newWait(s Streams) *cobra.Command {
	var f waitFlags
	c := &cobra.Command{
		Use:   "wait TYPE/NAME ... | TYPE NAME ... | STORY",
		Short: "Wait until a deletion is over, with everything that goes because of it",
		Long: `Waits until the named objects are gone, and the objects that go because of them: their
dependents, the contents of a namespace, and the instances of a CustomResourceDefinition.
"kubectl wait --for=delete" waits for the named objects only.

The command works on any cluster, and changes nothing. It prints the objects that it waits for,
with the causes as "coppice explain" has them, to stderr, and the result to stdout. With -o
json, both are lines on stdout, and with -o yaml documents. Causes are printed again only if
they have changed.

Objects that stay by rule are named, and the command does not wait for them: orphaned objects,
objects with another owner, and protected objects. An object that is created under the same
name does not count. If a named object is gone already, the command waits for the dependents
that still name it as their owner, and for the objects that a collector has recorded. An object
that is not being deleted is an error.

STORY is the ID of a deletion that a collector has recorded: "coppice stories" lists them.

The exit code is 0 if everything is gone, 6 if it is proved that an object does not go until
somebody acts, and 7 at the --timeout. It is 2 for an invalid command line, and 1 for another
error, such as credentials that have expired, or Ctrl-C.`,
		Example: `  # Delete a namespace, and wait for all of its contents
  coppice kubectl delete namespace shop --wait=false
  coppice wait namespace/shop --timeout 5m

  # In a pipeline: the ReplicaSets and pods of a Deployment, too
  coppice wait -n shop deployment/web -o json --timeout 2m

  # A deletion that a collector has recorded
  coppice wait 3f9a1c52-6d0e-4a57-9a37-0f5b6f1f4c11`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return runWait(c.Context(), f, args, s) },
	}
	f.cluster.add(c)
	flags := c.Flags()
	flags.StringVar(&f.address, "address", "", orReadUsage)
	flags.StringVarP(&f.output, "output", "o", "text", "format: "+strings.Join(waitFormats(), ", "))
	addTimeout(c, &f.timeout)
	completeWith(c, "output", waitFormats()...)
	return c
}

// addTimeout adds the flag for the time of a wait.
func addTimeout(c *cobra.Command, timeout *time.Duration) {
	c.Flags().DurationVar(timeout, "timeout", 0, "time after which the wait ends, such as 5m; 0 for none")
	completeWith(c, "timeout")
}

func runWait(ctx context.Context, f waitFlags, args []string, s Streams) error {
	var q ask.Ending
	switch {
	case !slices.Contains(waitFormats(), f.output):
		return usageError{fmt.Errorf("--output %q is unknown: choose one of %s", f.output, strings.Join(waitFormats(), ", "))}
	case len(args) == 0:
		return usageError{errors.New("name the deleted objects as TYPE/NAME, or the ID of a deletion")}
	case f.timeout < 0:
		return usageError{fmt.Errorf("--timeout %s is negative", f.timeout)}
	case len(args) == 1 && !strings.Contains(args[0], "/"):
		q.Story = args[0]
	case f.cluster.allNamespaces:
		return usageError{errors.New("a name needs a namespace: leave out --all-namespaces")}
	default:
		q.Args = args
	}
	sources, err := f.cluster.sources(f.address, nil)
	if err != nil {
		return err
	}
	return waitFor(ctx, sources, q, f.timeout, &waitPrinter{format: f.output, s: s})
}

// waitFor waits until a deletion is over, and prints its states. The error has the exit code of the end.
func waitFor(ctx context.Context, sources *ask.Sources, q ask.Ending, timeout time.Duration, p *waitPrinter) error {
	ctx, cancel := withTimeout(ctx, timeout)
	defer cancel()
	report, err := sources.Wait(ctx, q, p.progress)
	if err == nil {
		err = p.result(report)
	}
	return endOf(ctx, report, err, timeout)
}

// withTimeout returns a context that ends after a timeout; 0 stands for none.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

// endOf returns the error for the end of a wait, with its exit code.
func endOf(ctx context.Context, r cascade.Report, err error, timeout time.Duration) error {
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("interrupted, objects left: %d; the deletion goes on", r.Left)
	case err != nil:
		return err
	case r.State == cascade.Stuck:
		return verdictError{fmt.Errorf("objects that do not go until somebody acts, or wait for these: %d", r.Left), ExitStuck}
	case r.State == cascade.TimedOut:
		return verdictError{fmt.Errorf("timed out after %s, objects left: %d", timeout, r.Left), ExitTimedOut}
	}
	return nil
}

// waitPrinter prints the states of a deletion: as text, the progress goes to stderr.
type waitPrinter struct {
	format string
	s      Streams

	outline string // of the last state
}

// progress prints a state, unless its outline equals the last one.
func (p *waitPrinter) progress(r cascade.Report) error {
	outline := r.Outline()
	if outline == p.outline || r.Left == 0 && len(r.Unread) == 0 {
		return nil
	}
	p.outline = outline
	if p.format != "text" {
		return p.encode(r)
	}
	if _, err := io.WriteString(p.s.Err, r.Progress()); err != nil {
		return err
	}
	printUnread(p.s.Err, r.Unread)
	return nil
}

// result prints the last state.
func (p *waitPrinter) result(r cascade.Report) error {
	if p.format != "text" {
		return p.encode(r)
	}
	_, err := io.WriteString(p.s.Out, r.Text())
	return err
}

func (p *waitPrinter) encode(r cascade.Report) error {
	if p.format == "json" {
		return json.NewEncoder(p.s.Out).Encode(r)
	}
	if _, err := io.WriteString(p.s.Out, "---\n"); err != nil {
		return err
	}
	return writeAs(p.s.Out, p.format, r)
}
