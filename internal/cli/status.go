package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/web"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// statusInterval is the time between two requests of --watch.
const statusInterval = 2 * time.Second

// statusFlags are the flags of coppice status.
type statusFlags struct {
	ask    collectorFlags
	output string
	watch  bool
}

func newStatus(s Streams) *cobra.Command {
	var f statusFlags
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a running collector",
		Long: `Prints whether a running collector has read all objects, the resources that it could not
read, the length of its queue, the owners that wait for proof that no dependent was missed,
and the kinds whose deletions are paused.

The answer comes from the API server that kubectl would use if "coppice up" runs it, and from
the "coppice collect" at --address otherwise, which authenticates you through its API server.`,
		Example: `  coppice status
  coppice status --address http://` + web.DefaultAddress + ` --watch`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return status(c.Context(), f, s) },
	}
	f.ask.addServer(c)
	flags := c.Flags()
	flags.StringVarP(&f.output, "output", "o", "table", "format: "+strings.Join(answerFormats(), ", "))
	flags.BoolVarP(&f.watch, "watch", "w", false, fmt.Sprintf("ask again every %s and print changes, until stopped", statusInterval))
	completeWith(c, "output", answerFormats()...)
	return c
}

func status(ctx context.Context, f statusFlags, s Streams) error {
	if err := checkFormat(f.output); err != nil {
		return err
	}
	collector, err := f.ask.client()
	if err != nil {
		return err
	}
	before, err := statusOnce(ctx, collector, f.output, "", s)
	if err != nil || !f.watch {
		return err
	}
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if before, err = statusOnce(ctx, collector, f.output, before, s); err != nil {
			return unlessStopped(ctx, err)
		}
	}
}

// statusOnce prints the status if it has changed, and returns its text.
func statusOnce(ctx context.Context, collector *ask.Collector, format, before string, s Streams) (string, error) {
	now, err := collector.Status(ctx)
	if err != nil {
		return "", err
	}
	if before == "" {
		printUnread(s.Err, now.Unread)
	}
	var text strings.Builder
	if format == "table" {
		err = writeStatus(&text, now)
	} else {
		err = writeAs(&text, format, now)
	}
	if err != nil || text.String() == before {
		return text.String(), err
	}
	output := text.String()
	if format == "yaml" && before != "" {
		output = "---\n" + output // between two documents
	}
	_, err = io.WriteString(s.Out, output)
	return text.String(), err
}

// writeStatus writes tables: the counts of the collector, and then its obstacles, if there are any.
func writeStatus(w io.Writer, s api.SeenStatus) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SYNCED\tOBJECTS\tREFERENCES\tQUEUED\tWAITING OWNERS\tPAUSED KINDS\tDELETED\tPATCHED")
	count := func(n int64) string {
		if len(s.Unread) > 0 {
			return "-" // the number counts objects that this user may not see
		}
		return strconv.FormatInt(n, 10)
	}
	terminal.Fprintf(table, "%t\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", s.Synced, count(int64(s.Graph.Objects)), count(int64(s.Graph.References)),
		count(int64(s.Queue.Length)), len(s.Barrier), len(s.Paused), count(s.Stats.Deletes), count(s.Stats.Patches))
	if s.ObserveOnly {
		fmt.Fprintln(table, "\nThe collector only observes, and changes nothing.")
	}
	writeUnreadResources(table, s.Resources)
	if len(s.Barrier) > 0 {
		fmt.Fprintln(table, "\nWAITING OWNER\tFINALIZER\tSINCE\tBECAUSE")
	}
	for _, b := range s.Barrier {
		var holds []string
		for _, h := range b.Holds {
			holds = append(holds, h.What+": "+oneLineOf(h.Why))
		}
		terminal.Fprintf(table, "%s\t%s\t%s\t%s\n", b.Owner, b.Finalizer, b.Since.UTC().Format(time.RFC3339), strings.Join(holds, "; "))
	}
	if len(s.Paused) > 0 {
		fmt.Fprintln(table, "\nPAUSED KIND\tSINCE\tDELETED\tOF")
	}
	for _, p := range s.Paused {
		terminal.Fprintf(table, "%s\t%s\t%d\t%d\n", p.Kind, p.Since.UTC().Format(time.RFC3339), p.Deleted, p.Objects)
	}
	writeRefused(table, s.Refused, s.RefusedCounts)
	return table.Flush()
}

// writeRefused writes the objects that the server refuses to delete or to change.
func writeRefused(w io.Writer, objects []report.RefusedObject, counts []report.RefusedCount) {
	if len(objects) > 0 {
		fmt.Fprintln(w, "\nREFUSED OBJECT\tACTION\tBY\tSINCE\tCOUNT\tBECAUSE")
	}
	for _, o := range objects {
		name := o.Name
		if o.Namespace != "" {
			name = o.Namespace + "/" + name
		}
		by := strings.TrimSpace(o.By + " " + o.Refuser)
		terminal.Fprintf(w, "%s %s\t%s\t%s\t%s\t%d\t%s\n", o.Kind, name, o.Action, by, o.Since.UTC().Format(time.RFC3339), o.Count, oneLineOf(o.Message))
	}
	all := 0
	for _, c := range counts {
		all += c.Objects
	}
	if more := all - len(objects); more > 0 {
		terminal.Fprintf(w, "and %d more\n", more)
	}
}

// writeUnreadResources writes the resources that are not synced.
func writeUnreadResources(w io.Writer, all []report.ResourceStatus) {
	headed := false
	for _, r := range all {
		if r.State == "synced" {
			continue
		}
		if !headed {
			headed = true
			fmt.Fprintln(w, "\nRESOURCE\tSTATE\tSINCE\tWHY")
		}
		terminal.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Resource, r.State, r.Since.UTC().Format(time.RFC3339), oneLineOf(r.Error))
	}
}
