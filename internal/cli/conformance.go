package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/cli/conformance"
	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// conformanceFlags are the flags of coppice conformance.
type conformanceFlags struct {
	cluster     clusterFlags
	run, skip   string
	rules       []string
	controllers []string
	upstream    string
	patience    time.Duration
	parallel    int
	output      string
	list        bool
}

// The values of --upstream.
const (
	upstreamAuto        = "auto"
	upstreamAll         = "all"
	upstreamServer      = "server"
	upstreamControllers = "controllers"
	upstreamNone        = "none"
)

func upstreams() []string {
	return []string{upstreamAuto, upstreamAll, upstreamServer, upstreamControllers, upstreamNone}
}

func newConformance(s Streams) *cobra.Command {
	var f conformanceFlags
	c := &cobra.Command{
		Use:   "conformance",
		Short: "Check that an API server deletes and collects as it should, rule by rule",
		Long: `Checks the API server that kubectl would use, its garbage collector and its namespace
controller against the rules of docs/semantics.md, and reports an outcome for each rule.

It needs the rights of an administrator. It creates namespaces, objects in them, some
ClusterRoles and CustomResourceDefinitions, and one APIService; their names begin with
"conformance-", and the command removes all of them. Some checks create a kind that cannot
be read, and a group that cannot be discovered. They delay the deletion of other
namespaces for some seconds, so use a cluster that nobody else needs. The images of the
pods do not exist, and no scheduler places the pods.

docs/semantics.md lists the rules from which upstream differs. A check that finds
such a difference is "declared", and does not fail. --upstream says where such
differences are allowed: server (choose it for "coppice collect" beside kube-apiserver),
controllers, all or none. auto is none for a server of "coppice up", and all for others.

The exit code is 0 if no check has failed, 1 if one has, and 2 for an invalid command line
or a server that cannot be reached.`,
		Example: `  # All checks, on the server of the current context
  coppice conformance

  # List the checks
  coppice conformance --list

  # The checks of two rules, one after the other, with all details
  coppice conformance --rule R13 --rule R14 --parallel 1 -o yaml

  # A server without controllers, in a CI job
  coppice conformance --controllers none -o junit >conformance.xml`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.exec(c, s) },
	}
	f.cluster.addServer(c)
	flags := c.Flags()
	flags.StringVar(&f.run, "run", "", "only checks whose name matches this regular expression")
	flags.StringVar(&f.skip, "skip", "", "no checks whose name matches this regular expression")
	flags.StringSliceVar(&f.rules, "rule", nil, "only checks of this rule or invariant, such as R13 or S2; may be repeated")
	flags.StringSliceVar(&f.controllers, "controllers", []string{"gc", "namespace"}, "controllers that run beside the server: gc, namespace, none")
	flags.StringVar(&f.upstream, "upstream", upstreamAuto, "components that may have the declared differences of upstream: "+strings.Join(upstreams(), ", "))
	flags.DurationVar(&f.patience, "timeout", conformance.DefaultTimeout, "timeout of each condition of a check")
	flags.IntVar(&f.parallel, "parallel", conformance.DefaultParallel, "number of checks that run at the same time, if that is safe")
	flags.StringVarP(&f.output, "output", "o", "table", "format of the report: "+strings.Join(conformance.Formats(), ", "))
	flags.BoolVar(&f.list, "list", false, "list the checks, and run none")
	completeWith(c, "output", conformance.Formats()...)
	completeWith(c, "upstream", upstreams()...)
	completeWith(c, "controllers", "gc", "namespace", "none")
	return c
}

// exec runs the command.
func (f *conformanceFlags) exec(c *cobra.Command, s Streams) error {
	options, err := f.options()
	if err != nil {
		return err
	}
	selected := options.Select(conformance.Checks())
	if len(selected) == 0 {
		return usageError{errors.New("no check is selected; --list shows all")}
	}
	if f.list {
		return listChecks(s.Out, selected)
	}
	config, err := f.cluster.config()
	if err != nil {
		return usageError{err}
	}
	server, err := probe.NewServer(config)
	if err != nil {
		return usageError{err}
	}
	server.Patience = f.patience
	if server.Upstream, err = f.accepted(server); err != nil {
		return usageError{err}
	}
	options.Progress = progressOf(s.Err)
	// After a first signal the checks remove their objects; a second one ends the process at once.
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	report, err := conformance.Run(ctx, server, options)
	if _, ok := errors.AsType[conformance.UnreachableError](err); ok {
		return usageError{err}
	}
	return errors.Join(err, f.write(report, s))
}

// options returns the options that the flags set.
func (f *conformanceFlags) options() (conformance.Options, error) {
	o := conformance.Options{Parallel: f.parallel, Now: time.Now}
	switch {
	case !slices.Contains(conformance.Formats(), f.output):
		return o, usageError{fmt.Errorf("--output %q is unknown: choose one of %s", f.output, strings.Join(conformance.Formats(), ", "))}
	case !slices.Contains(upstreams(), f.upstream):
		return o, usageError{fmt.Errorf("--upstream %q is unknown: choose one of %s", f.upstream, strings.Join(upstreams(), ", "))}
	case f.patience <= 0:
		return o, usageError{errors.New("--timeout must be more than 0")}
	case f.parallel < 1:
		return o, usageError{errors.New("--parallel must be at least 1")}
	}
	for name, expression := range map[string]struct {
		text string
		to   **regexp.Regexp
	}{"run": {f.run, &o.Run}, "skip": {f.skip, &o.Skip}} {
		if expression.text == "" {
			continue
		}
		compiled, err := regexp.Compile(expression.text)
		if err != nil {
			return o, usageError{fmt.Errorf("--%s: %w", name, err)}
		}
		*expression.to = compiled
	}
	for _, rule := range f.rules {
		if !isRule(rule) {
			return o, usageError{fmt.Errorf("--rule %s: no check has this rule; --list shows the rules of each check", rule)}
		}
		o.Rules = append(o.Rules, rule)
	}
	for _, name := range f.controllers {
		switch name {
		case "gc":
			o.Has |= conformance.Collector
		case "namespace":
			o.Has |= conformance.NamespaceController
		case "none":
		default:
			return o, usageError{fmt.Errorf("--controllers %s: choose from gc, namespace and none", name)}
		}
	}
	return o, nil
}

// isRule reports whether any check tests a rule.
func isRule(rule string) bool {
	return slices.ContainsFunc(conformance.Checks(), func(turn conformance.Turn) bool {
		return slices.ContainsFunc(turn.Checks, func(c conformance.Check) bool { return c.IsFor(rule) })
	})
}

// accepted returns the sides, API server or controllers, whose upstream differences are accepted.
func (f *conformanceFlags) accepted(server *probe.Server) (probe.Side, error) {
	switch f.upstream {
	case upstreamNone:
		return 0, nil
	case upstreamServer:
		return probe.APIServer, nil
	case upstreamControllers:
		return probe.Controllers, nil
	case upstreamAuto:
		served, err := server.Kube.Discovery().ServerVersion()
		if err != nil {
			return 0, fmt.Errorf("reach %s: %w", server.Config.Host, err)
		}
		if version.IsOurs(served.GitVersion) {
			return 0, nil
		}
	}
	return probe.APIServer | probe.Controllers, nil
}

// write writes the report, and returns an error if a check has failed.
func (f *conformanceFlags) write(report conformance.Report, s Streams) error {
	if report.Counts == nil {
		return nil
	}
	text, err := report.Encode(f.output)
	if err != nil {
		return err
	}
	if _, err := s.Out.Write(text); err != nil {
		return err
	}
	if len(report.Left) > 0 {
		terminal.Fprintf(s.Err, "not removed: namespaces %s\n", strings.Join(report.Left, ", "))
	}
	if report.Failed() {
		return fmt.Errorf("%d of %d checks failed", report.Counts[conformance.Fail], len(report.Checks))
	}
	return nil
}

// progressOf returns a function that shows on a terminal how many checks have run; nil if w is no terminal.
func progressOf(w io.Writer) func(done, total int, last conformance.Result) {
	if terminal.File(w) == nil {
		return nil
	}
	w = terminal.Own(w) // the names of checks are trusted
	failed := 0
	return func(done, total int, last conformance.Result) {
		if last.Outcome == conformance.Fail {
			failed++
			fmt.Fprintf(w, "\r\033[Kfail: %s\n", last.Name)
		}
		fmt.Fprintf(w, "\r\033[K%d of %d checks, %d failed", done, total, failed)
		if done == total {
			fmt.Fprint(w, "\r\033[K")
		}
	}
}

// listChecks lists checks with their rules and their needs.
func listChecks(w io.Writer, turns []conformance.Turn) error {
	columns := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(columns, "RULES\tNEEDS\tCHECK")
	for _, turn := range turns {
		for _, c := range turn.Checks {
			terminal.Fprintf(columns, "%s\t%s\t%s\n", c.Rules, c.Needs, c.Name)
		}
	}
	return columns.Flush()
}
