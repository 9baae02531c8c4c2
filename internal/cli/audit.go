package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/audit"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// auditFlags are the flags of coppice audit.
type auditFlags struct {
	cluster       clusterFlags
	options       audit.Options
	output        string
	baseline      string
	writeBaseline string
	fix, yes      bool
}

func newAudit(s Streams) *cobra.Command {
	var f auditFlags
	c := &cobra.Command{
		Use:   "audit",
		Short: "Find owner references and deletions that are wrong, in any cluster",
		Long: `Reports invalid owner references and deletions that do not finish:

  owners        that do not exist, are in another namespace, or have another kind or name
  references    to kinds and versions that no API serves; duplicates, cycles, and several
                controllers of one object
  objects       whose namespace is gone, that have been terminating for long, or that seem
                to have lost their owner
  finalizers    that no working controller removes
  controllers   that lack the right to block the deletion of an owner

The command reads the metadata of all objects in the cluster that kubectl would use. With
-n it reports the objects of one namespace only. It changes nothing without --fix. With
--fix it removes owner references that are certainly wrong, if the object stays without
them.

The exit code is 0 if there are no findings, and 3 for errors or warnings. Notes list the
checks that could not be made, and do not count.`,
		Example: `  # Check a whole cluster
  coppice audit

  # In a CI job, report new findings only, as SARIF
  coppice audit --write-baseline known.yaml
  coppice audit --baseline known.yaml -o sarif >audit.sarif

  # List possible repairs, and confirm them before they are made
  coppice audit -n shop --fix`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runAudit(c, f, s) },
	}
	f.cluster.add(c)
	flags := c.Flags()
	flags.StringVarP(&f.output, "output", "o", "table", "format of the findings: "+strings.Join(audit.Formats(), ", "))
	flags.StringVar(&f.baseline, "baseline", "", "leave out the findings of this file")
	flags.StringVar(&f.writeBaseline, "write-baseline", "", "write the findings, also the accepted ones, to this file, as a baseline for later")
	flags.DurationVar(&f.options.Long, "terminating", audit.DefaultLong, "report objects that should have been gone for this long")
	flags.BoolVar(&f.fix, "fix", false, "remove owner references that are provably wrong, after asking")
	flags.BoolVar(&f.yes, "yes", false, "with --fix: do not ask")
	c.MarkFlagsMutuallyExclusive("fix", "write-baseline")
	completeWith(c, "output", audit.Formats()...)
	return c
}

func runAudit(c *cobra.Command, f auditFlags, s Streams) error {
	switch {
	case !slices.Contains(audit.Formats(), f.output):
		return usageError{fmt.Errorf("--output %q is unknown: choose one of %s", f.output, strings.Join(audit.Formats(), ", "))}
	case f.yes && !f.fix:
		return usageError{errors.New("--yes is for --fix")}
	case f.options.Long <= 0:
		return usageError{errors.New("--terminating must be more than 0")}
	}
	f.options.Namespace = f.cluster.confined()
	known, err := readBaseline(f.baseline)
	if err != nil {
		return err
	}
	sources, err := f.cluster.sources(ask.NoCollector, readingOn(s))
	if err != nil {
		return err
	}
	cluster, err := sources.Cluster(c.Context())
	if err != nil {
		return err
	}
	printUnread(s.Err, inventory.TextsOf(cluster.Inventory.Unread))
	whole := cluster.Audit(c.Context(), f.options)
	if c.Context().Err() != nil {
		return c.Context().Err() // each fact that was still to be read is unknown
	}
	report := whole.Without(known)
	text, err := report.Encode(f.output)
	if err != nil {
		return err
	}
	if _, err := s.Out.Write(text); err != nil {
		return err
	}
	if f.writeBaseline != "" {
		// The accepted findings stay accepted, also those that this audit could not find.
		return writeBaseline(f.writeBaseline, whole.Baseline().With(known.Unchecked(cluster.Inventory, f.options)))
	}
	if f.fix {
		fixed, err := fix(c.Context(), sources.Config, cluster.Inventory, audit.Fixes(cluster.Inventory, report.Findings), f.yes, s)
		if err != nil {
			return err
		}
		report = report.Without(fixed)
	}
	if report.Found() {
		return foundError{errors.New(english.Plural(len(report.Findings), "finding", ""))}
	}
	return nil
}

func readBaseline(file string) (audit.Baseline, error) {
	if file == "" {
		return audit.Baseline{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return audit.Baseline{}, fmt.Errorf("read the baseline: %w; --write-baseline makes one", err)
	}
	known, err := audit.ParseBaseline(text)
	if err != nil {
		return audit.Baseline{}, fmt.Errorf("%s: %w", file, err)
	}
	return known, nil
}

func writeBaseline(file string, b audit.Baseline) error {
	text, err := b.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write the baseline: %w", err)
	}
	return nil
}
