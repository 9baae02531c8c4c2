package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// storiesFlags are the flags of coppice stories.
type storiesFlags struct {
	ask    collectorFlags
	output string
	watch  bool
}

func newStories(s Streams) *cobra.Command {
	var f storiesFlags
	c := &cobra.Command{
		Use:   "stories [ID]",
		Short: "Show deletions, from the request to the last object",
		Long: `Prints the deletions that a running collector has observed, the latest first: the object of
the request, the user if known, the numbers of objects that are gone, wait or stay, and the
cause of the wait. With -n, it prints the deletions that were requested of the namespace or of
an object in it. With an ID, which is the UID of the object of the request, the command
prints one deletion as text, for a chat or a ticket. With -o json or yaml, it also prints all
objects of that deletion.

With --watch it prints changes until it is stopped; with an ID, until that deletion is done.

The answer comes from the API server that kubectl would use if "coppice up" runs it, and from
the "coppice collect" at --address otherwise, which authenticates you through its API server.`,
		Example: `  # List deletions, with the causes of waiting
  coppice stories

  # Wait until one is done
  coppice stories 3f9a1c52-6d0e-4a57-9a37-0f5b6f1f4c11 --watch`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("%d arguments: give at most one ID", len(args))}
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkFormat(f.output); err != nil {
				return err
			}
			in := f.ask.cluster.confined()
			if len(args) == 1 {
				in = "" // an ID names one deletion, like a UID, in any namespace
			}
			collector, err := f.ask.client()
			if err != nil {
				return err
			}
			switch {
			case f.watch:
				w := &storyWriter{format: f.output, in: in, out: s.Out, before: map[string]string{}}
				return w.watch(c.Context(), collector, strings.Join(args, ""))
			case len(args) == 1:
				return oneStory(c.Context(), collector, f.output, args[0], s)
			}
			return allStories(c.Context(), collector, f.output, in, s)
		},
	}
	f.ask.add(c)
	flags := c.Flags()
	flags.StringVarP(&f.output, "output", "o", "table", "format: "+strings.Join(answerFormats(), ", "))
	flags.BoolVarP(&f.watch, "watch", "w", false, "print changes until stopped or done; in JSON, one deletion per line")
	completeWith(c, "output", answerFormats()...)
	return c
}

// allStories prints one line for each story in a namespace, or in all.
func allStories(ctx context.Context, collector *ask.Collector, format, in string, s Streams) error {
	list, err := collector.Stories(ctx)
	if err != nil {
		return err
	}
	printUnread(s.Err, list.Unread)
	list.Items = slices.DeleteFunc(list.Items, func(one story.Summary) bool { return !isStoryIn(in, &one) })
	if format != "table" {
		return writeAs(s.Out, format, list)
	}
	return writeStories(s.Out, list.Items, time.Now())
}

func writeStories(w io.Writer, all []story.Summary, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tOBJECT\tPOLICY\tASKED BY\tGONE\tWAITING\tKEPT\tAGE\tSTATE")
	for i := range all {
		one := &all[i]
		terminal.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", one.ID, rootsOf(one), one.Policy, byOf(one),
			one.Gone, one.Waiting, one.Kept, duration.HumanDuration(now.Sub(one.Began)), stateOf(one))
	}
	return table.Flush()
}

// oneStory prints one story, as text instead of a table.
func oneStory(ctx context.Context, collector *ask.Collector, format, id string, s Streams) error {
	if format == "table" {
		text, err := collector.StoryText(ctx, id)
		if err != nil {
			return err
		}
		if _, err := s.Out.Write(text); err != nil {
			return err
		}
		printUndoCommand(ctx, collector, id, s)
		return nil
	}
	one, err := collector.Story(ctx, id)
	if err != nil {
		return err
	}
	printUnread(s.Err, one.Unread)
	return writeAs(s.Out, format, one)
}

// printUndoCommand prints the command that undoes a deletion, if the server has kept the deleted object.
func printUndoCommand(ctx context.Context, collector *ask.Collector, id string, s Streams) {
	list, err := collector.Stories(ctx)
	if err != nil {
		return // the story has been printed already
	}
	at := slices.IndexFunc(list.Items, func(one story.Summary) bool { return string(one.ID) == id })
	if at >= 0 && keeps(ctx, collector, &list.Items[at]) {
		terminal.Fprintf(s.Out, "to undo it: coppice undo %s\n", escape.Shell(id))
	}
}

// isStoryIn reports whether a deletion was requested of a namespace or of an object in it. An empty namespace stands for
// all.
func isStoryIn(namespace string, one *story.Summary) bool {
	return slices.ContainsFunc(append([]story.Ref{one.Root}, one.Roots...), func(r story.Ref) bool {
		return isIn(namespace, r.Kind, r.Namespace, r.Name)
	})
}

// storyWriter prints the changes of stories.
type storyWriter struct {
	format string
	in     string // the namespace of the stories; empty for all
	out    io.Writer
	before map[string]string // the last text of each story
}

// watch prints the changes of one story until it is done, or of all stories.
func (w *storyWriter) watch(ctx context.Context, collector *ask.Collector, id string) error {
	if w.format == "table" {
		terminal.Fprintf(w.out, storyRow, "ID", "GONE", "WAITING", "KEPT", "OBJECT", "STATE")
	}
	return collector.WatchStories(ctx, id, func(one story.Summary) error { return w.write(&one) })
}

// write prints a story if its text differs from the one before.
func (w *storyWriter) write(one *story.Summary) error {
	if !isStoryIn(w.in, one) {
		return nil
	}
	var text strings.Builder
	var err error
	switch w.format {
	case "json":
		err = json.NewEncoder(&text).Encode(one)
	case "yaml":
		text.WriteString("---\n")
		err = writeAs(&text, w.format, one)
	default:
		terminal.Fprintf(&text, storyRow, one.ID, fmt.Sprint(one.Gone), fmt.Sprint(one.Waiting), fmt.Sprint(one.Kept), rootsOf(one), stateOf(one))
	}
	key := string(one.ID)
	if err == nil && text.String() != w.before[key] {
		_, err = io.WriteString(w.out, text.String())
	}
	w.before[key] = text.String()
	return err
}

// storyRow has columns of fixed width, because each row is printed before the next one is known.
const storyRow = "%-36s  %-6s  %-7s  %-6s  %-40s  %s\n"

// rootsOf names the objects that the user asked to delete.
func rootsOf(s *story.Summary) string {
	if s.More > 0 {
		return fmt.Sprintf("%s and %d more", s.Root, s.More)
	}
	return s.Root.String()
}

func byOf(s *story.Summary) string {
	if s.By == nil {
		return "unknown"
	}
	return s.By.User
}

// stateOf returns the state of a deletion: done, in progress, or waiting for an object.
func stateOf(s *story.Summary) string {
	switch {
	case s.Done:
		return "done"
	case s.WaitsFor == "":
		return "in progress"
	}
	return "waits for " + oneLineOf(s.WaitsFor)
}
