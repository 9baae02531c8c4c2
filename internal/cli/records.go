package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// recordsFlags are the flags of coppice records.
type recordsFlags struct {
	ask    collectorFlags
	output string
	watch  bool
}

func answerFormats() []string { return []string{"table", "json", "yaml"} }

func newRecords(s Streams) *cobra.Command {
	var f recordsFlags
	c := &cobra.Command{
		Use:   "records [TYPE/NAME ... | TYPE NAME ...]",
		Short: "Show what a running collector did, and why",
		Long: `Prints the latest changes that a running collector made, each with its reason, to all objects
that you may list, with -n to those of a namespace, or to the named objects, which may be gone.

The answer comes from the API server that kubectl would use if "coppice up" runs it, and from
the "coppice collect" at --address otherwise, which authenticates you through its API server.`,
		Example: `  # Why a ConfigMap is gone
  coppice records configmap/settings

  # Follow the collector
  coppice records --watch`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return records(c, f, args, s) },
	}
	f.ask.add(c)
	flags := c.Flags()
	flags.StringVarP(&f.output, "output", "o", "table", "format: "+strings.Join(answerFormats(), ", "))
	flags.BoolVarP(&f.watch, "watch", "w", false, "print new records until stopped; in JSON, one per line")
	completeWith(c, "output", answerFormats()...)
	return c
}

func records(c *cobra.Command, f recordsFlags, args []string, s Streams) error {
	if err := checkFormat(f.output); err != nil {
		return err
	}
	collector, err := f.ask.client()
	if err != nil {
		return err
	}
	objects, in := ask.Objects{Args: args}, ""
	if objects.IsEmpty() {
		in = f.ask.cluster.confined()
	}
	if err := collector.Check(objects); err != nil {
		return err
	}
	if f.watch {
		if f.output == "table" {
			terminal.Fprintf(s.Out, recordRow, "TIME", "ACTION", "OBJECT", "WHY")
		}
		return collector.WatchRecords(c.Context(), objects, func(r report.Record) error {
			if !isRecordIn(in, &r) {
				return nil
			}
			return writeRecord(s.Out, f.output, r)
		})
	}
	list, err := collector.Records(c.Context(), objects)
	if err != nil {
		return err
	}
	printUnread(s.Err, list.Unread)
	list.Items = slices.DeleteFunc(list.Items, func(r report.Record) bool { return !isRecordIn(in, &r) })
	if f.output != "table" {
		return writeAs(s.Out, f.output, list)
	}
	return writeRecords(s.Out, list.Items)
}

// isRecordIn reports whether a record is about a namespace or an object in it. An empty namespace stands for all.
func isRecordIn(namespace string, r *report.Record) bool {
	return isIn(namespace, r.Object.Kind, r.Object.Namespace, r.Object.Name)
}

// isIn reports whether an object is in a namespace, or is the namespace. An empty namespace stands for all.
func isIn(namespace, kind, of, name string) bool {
	return namespace == "" || of == namespace || kind == "Namespace" && of == "" && name == namespace
}

func writeRecords(w io.Writer, all []report.Record) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TIME\tACTION\tOBJECT\tWHY")
	for _, r := range all {
		terminal.Fprintf(table, "%s\t%s\t%s\t%s\n", timeOf(r), r.Action, objectOf(r), whyOf(r))
	}
	return table.Flush()
}

// recordRow has columns of fixed width, because each row is printed before the next one is known.
const recordRow = "%-20s  %-16s  %-48s  %s\n"

func writeRecord(w io.Writer, format string, r report.Record) error {
	var err error
	switch format {
	case "json":
		err = json.NewEncoder(w).Encode(r)
	case "yaml":
		if _, err = io.WriteString(w, "---\n"); err == nil {
			err = writeAs(w, format, r)
		}
	default:
		_, err = io.WriteString(w, escape.Sprintf(recordRow, timeOf(r), r.Action, objectOf(r), whyOf(r)))
	}
	return err
}

func timeOf(r report.Record) string { return r.Time.UTC().Format(time.RFC3339) }

func objectOf(r report.Record) string {
	if r.Object.Namespace == "" {
		return r.Object.Kind + " " + r.Object.Name
	}
	return r.Object.Kind + " " + r.Object.Namespace + "/" + r.Object.Name
}

// whyOf returns the decision, with a note if it was not carried out or had no answer.
func whyOf(r report.Record) string {
	switch r.Answer {
	case report.AnswerUnknown:
		return r.Decision + " (no answer: " + oneLineOf(r.Error) + ")"
	case report.AnswerNone:
		return r.Decision + " (not carried out: --observe-only)"
	case report.AnswerDone:
	}
	return r.Decision
}

// checkFormat checks the value of --output.
func checkFormat(format string) error {
	switch format {
	case "table", "json", "yaml":
		return nil
	}
	return usageError{fmt.Errorf("--output %q is unknown: choose one of %s", format, strings.Join(answerFormats(), ", "))}
}

// writeAs writes a value as JSON or YAML.
func writeAs(w io.Writer, format string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	text = append(text, '\n')
	if err == nil && format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}
