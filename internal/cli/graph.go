package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/web"
)

// graphFlags are the flags of coppice graph.
type graphFlags struct {
	cluster clusterFlags
	uids    []string
	output  string
	address string // of a running collector

	up, down, component bool
}

func newGraph(s Streams) *cobra.Command {
	var f graphFlags
	c := &cobra.Command{
		Use:   "graph [TYPE/NAME ... | TYPE [NAME ...]]",
		Short: "Show who owns whom, in any cluster",
		Long: `Prints owners and their dependents, with invalid owner references and deletions in progress.
Without arguments, the graph has all objects that own or are owned; with -n only those of a
namespace, with their owners and dependents elsewhere. With named objects, it has all objects
that are connected with them; with --up only their owners, with --down only their dependents,
direct and indirect.

The command reads the metadata of all objects in the cluster that kubectl would use, and
changes nothing. A control plane of "coppice up", or a "coppice collect" at --address,
answers from memory instead, for the objects that you may list.`,
		Example: `  # The dependents of a Deployment
  coppice graph deployment/web --down

  # The owners of a pod
  coppice graph pod/web-6d4b75cb6d-hx2kq --up

  # All owners and dependents of a Deployment, as a picture
  coppice graph deployment/web -o svg >web.svg

  # The whole graph of a running collector, drawn by Graphviz
  coppice graph --address http://` + web.DefaultAddress + ` -o dot | dot -Tpdf >graph.pdf`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return graph(c, f, args, s) },
	}
	f.cluster.add(c)
	flags := c.Flags()
	flags.StringSliceVar(&f.uids, "uid", nil, "show the objects that are connected with the object of this uid; may be repeated")
	flags.StringVarP(&f.output, "output", "o", string(insight.Tree), "format of the graph: "+strings.Join(insight.Formats(), ", "))
	flags.StringVar(&f.output, "format", string(insight.Tree), "the former name of --output")
	_ = flags.MarkHidden("format") // the only error is that there is no such flag
	flags.StringVar(&f.address, "address", "", orReadUsage)
	flags.BoolVar(&f.up, "up", false, "show only the named objects and their direct and indirect owners")
	flags.BoolVar(&f.down, "down", false, "show only the named objects and their direct and indirect dependents")
	flags.BoolVar(&f.component, "component", false, "show all objects that are connected with the named ones (the default)")
	c.MarkFlagsMutuallyExclusive("up", "down", "component")
	completeWith(c, "output", insight.Formats()...)
	return c
}

func graph(c *cobra.Command, f graphFlags, args []string, s Streams) error {
	format, err := insight.ParseFormat(f.output)
	if err != nil {
		return usageError{fmt.Errorf("--output: %w", err)}
	}
	named := len(args)+len(f.uids) > 0
	if (f.up || f.down || f.component) && !named {
		return usageError{errors.New("--up, --down and --component need an object to begin at: TYPE/NAME or --uid")}
	}
	sources, err := f.cluster.sources(f.address, readingOn(s))
	if err != nil {
		return err
	}
	q := ask.Ownership{Objects: ask.Objects{Args: args, UIDs: f.uids}, Part: ask.Component}
	switch {
	case f.up:
		q.Part = ask.Owners
	case f.down:
		q.Part = ask.Dependents
	}
	answer, err := sources.Graph(c.Context(), q)
	printUnread(s.Err, answer.Unread)
	if err != nil {
		return err
	}
	if namespace := f.cluster.confined(); namespace != "" && !named {
		answer.Graph = answer.In(namespace)
	}
	text, err := answer.Encode(format)
	if err != nil {
		return fmt.Errorf("draw the graph: %w", err)
	}
	_, err = s.Out.Write(text)
	return err
}
