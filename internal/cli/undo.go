package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/tools/recreate"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// undoFlags are the flags of coppice undo.
type undoFlags struct {
	cluster clusterFlags
	key     string
	output  string
	dryRun  bool
	options undo.Options
}

func undoFormats() []string { return []string{"text", "json", "yaml", "name"} }

func newUndo(s Streams) *cobra.Command {
	var f undoFlags
	c := &cobra.Command{
		Use:   "undo FILE | TYPE/NAME | TYPE NAME | UID",
		Short: "Make again what a deletion has taken",
		Long: `Makes the objects again that "coppice preview delete --backup FILE" or "coppice delete --backup
FILE" has kept, in any cluster: namespaces and kinds first, owners before their dependents,
and with owner references that lead to the new owners, so that nothing is collected. A
server of "coppice up --recycle=SIZE,AGE" keeps what is deleted by itself: name the object
that was deleted, or the deletion by its ID in "coppice stories", which is the UID of that
object, and all that went with it is made again.

They are other objects under the same names: the server gives them UIDs of their own.
Controllers write their status; --with-status writes it as it was. Finalizers are left to
whoever sets them; --with-finalizers sets them as they were. What ran does not come back:
controllers make new pods, and what a finalizer's controller has destroyed outside of the
cluster stays destroyed. The report says which objects that is about, and what is left out
because it is made anew by itself.

Nothing that exists is changed or replaced. An undo that was interrupted, or that could not
make everything, goes on when the same user runs it again: a file beside the key of backups
says what was made. To go on from elsewhere, copy both, or use --relink: it accepts the
objects that have the names now as owners, namespaces and claims of volumes. Without it,
another object with such a name is reported and not used, whatever its owner references
say: its creator wrote them.

The exit code is 1 if something could not be made, and with --dry-run 3 if it could not be.`,
		Example: `  # Delete a namespace, and take it back
  coppice preview delete namespace shop --backup shop.backup
  coppice kubectl delete namespace shop
  coppice undo shop.backup

  # The same on "coppice up --recycle=1Gi,168h"
  coppice undo namespace/shop
  coppice undo 3f9a1c52-6d0e-4a57-9a37-0f5b6f1f4c11

  # See what would come back, and what cannot
  coppice undo shop.backup --dry-run`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return takeBack(c.Context(), &f, args, s) },
	}
	f.cluster.add(c)
	addKey(c, &f.key)
	flags := c.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be made, and make nothing")
	flags.BoolVar(&f.options.Status, "with-status", false, "write the status that objects had")
	flags.BoolVar(&f.options.Finalizers, "with-finalizers", false, "set the finalizers that objects had")
	flags.BoolVar(&f.options.Relink, "relink", false, "accept the objects that have the names now as owners, namespaces and claims of volumes")
	flags.StringVarP(&f.output, "output", "o", "text", "format: "+strings.Join(undoFormats(), ", "))
	completeWith(c, "output", undoFormats()...)
	return c
}

func takeBack(ctx context.Context, f *undoFlags, args []string, s Streams) error {
	if !slices.Contains(undoFormats(), f.output) {
		return usageError{fmt.Errorf("--output is %q: it is one of %s", f.output, strings.Join(undoFormats(), ", "))}
	}
	kept, err := f.kept(ctx, args, s)
	if err != nil {
		return err
	}
	config, err := f.cluster.config()
	if err != nil {
		return err
	}
	journal, err := f.journal(s)
	if err != nil {
		return err
	}
	defer journal.Close()
	server, err := recreate.NewServer(config, journal)
	if err != nil {
		return err
	}
	found, err := server.Survey(ctx, kept)
	if err != nil {
		return err
	}
	plan := undo.New(kept, found, f.options)
	var interrupted error
	if !f.dryRun {
		run := recreate.Run{Server: server, Kinds: found.Kinds, Status: f.options.Status, Progress: progressOn(s)}
		interrupted = run.Run(ctx, plan)
	}
	report := plan.Report()
	report.DryRun = f.dryRun
	if err := printUndo(s, f.output, report); err != nil {
		return err
	}
	switch missing := report.Missing(); {
	case interrupted != nil:
		return interrupted
	case missing > 0 && f.dryRun:
		return foundError{fmt.Errorf("%d of %d objects could not be made again", missing, len(report.Objects))}
	case missing > 0:
		return fmt.Errorf("%d of %d objects are not there again; undo the same once what hinders them is gone", missing, len(report.Objects))
	}
	return nil
}

// journal returns the journal of recreated objects, a file in the directory of the backup key. If it cannot be
// written, the undo continues, but a later undo will not recognize the objects that this one recreates.
func (f *undoFlags) journal(s Streams) (*recreate.Journal, error) {
	key, err := keyPath(f.key)
	if err != nil {
		terminal.Fprintf(s.Err, "another undo will not recognize what this one makes again: %v\n", err)
		return nil, nil // nil is an empty journal
	}
	journal, err := recreate.OpenJournal(filepath.Join(filepath.Dir(key), "undone.jsonl"))
	if err != nil || f.dryRun {
		return journal, err
	}
	if err := journal.Open(); err != nil {
		terminal.Fprintf(s.Err, "another undo will not recognize what this one makes again: %v; name a file in another directory with --backup-key\n", err)
	}
	return journal, nil
}

// kept returns the objects to recreate, from a backup file or else from the recycle bin of the server.
func (f *undoFlags) kept(ctx context.Context, args []string, s Streams) ([]undo.Kept, error) {
	arg := strings.Join(args, "/")
	if len(args) != 1 && (len(args) != 2 || strings.Count(arg, "/") != 1) {
		return nil, usageError{errors.New(`name what was deleted, as TYPE/NAME, TYPE NAME or by its UID, or a file of "coppice preview delete --backup"`)}
	}
	if _, err := os.Stat(arg); err != nil || len(args) == 2 {
		_, isUID := uuid.Parse(arg)
		isPath := strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".")
		if isUID != nil && (strings.Count(arg, "/") != 1 || isPath) {
			return nil, fmt.Errorf("%s is no file, no TYPE/NAME and no UID", arg)
		}
		kept, unread, err := f.fromBin(ctx, arg)
		sayLeftOut(s.Err, unread)
		return kept, err
	}
	kept, err := readBackup(arg, f.key)
	if err != nil {
		return nil, err
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("%s has no objects", arg)
	}
	return kept, nil
}

// progressOn returns a function that shows the progress of an undo on a terminal; nil if stderr is no terminal.
func progressOn(s Streams) func(done, all int) {
	if terminal.File(s.Err) == nil {
		return nil
	}
	own := terminal.Own(s.Err)
	return func(done, all int) {
		fmt.Fprintf(own, "\r\033[Kmade %d of %d", done, all)
		if done == all {
			fmt.Fprint(own, "\r\033[K")
		}
	}
}

func printUndo(s Streams, format string, r undo.Report) error {
	switch format {
	case "json", "yaml":
		return writeAs(s.Out, format, r)
	case "name":
		for _, o := range r.Objects {
			if o.Outcome == undo.Made {
				terminal.Fprintf(s.Out, "%s/%s\n", strings.ToLower(o.Kind), o.Name)
			}
		}
		return nil
	}
	_, err := io.WriteString(s.Out, r.String())
	return err
}
