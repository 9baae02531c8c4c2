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
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/apiserver/backup"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/tools/restore"
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

	until time.Time // when to stop asking a busy server again; zero for the bounds of the undo
}

func undoFormats() []string { return []string{"text", "json", "yaml", "name"} }

func newUndo(s Streams) *cobra.Command {
	var f undoFlags
	c := &cobra.Command{
		Use:   "undo FILE | TYPE/NAME | TYPE NAME | UID",
		Short: "Restore objects that a deletion has removed",
		Long: `Creates the objects of a backup again, in any cluster. "coppice preview delete --backup FILE"
and "coppice delete --backup FILE" write backups. The command creates namespaces and kinds
first, and owners before their dependents, but volume claims, Secrets and ConfigMaps before
the controllers that own them and would create empty ones. Owner references lead to the new
owners, so that no object is collected.

A server of "coppice up --recycle=SIZE,AGE" keeps deleted objects by itself. Name the deleted
object, or the ID of the deletion in "coppice stories", which is the UID of that object. The
command then restores all objects of that deletion, and the owner references of the objects
that it orphaned. Only a backup has the references of objects that another owner has kept.

The restored objects have the same names, and new UIDs. Controllers write their status;
--with-status restores the old status. Controllers add their finalizers; --with-finalizers
restores the old finalizers. Processes are not restored: controllers create new pods.
Resources outside of the cluster that a controller has destroyed stay destroyed. The report
lists the objects that this concerns, and the objects that are left out because controllers
create them again.

If the backup is incomplete, the report lists what it lacks, or may lack.

No existing object is changed or replaced. The same user can run an interrupted or incomplete
undo again: a file beside the key of backups lists the created objects. On another machine,
copy both files, or use --relink, which accepts existing objects with the same names as
owners, namespaces and claims of volumes. Without --relink, the report lists an existing
object with such a name, and the command does not use it: its owner references prove nothing,
as its creator wrote them.

The exit code is 1 if an object could not be created, and 3 if --dry-run finds such an object.`,
		Example: `  # Delete a namespace, and restore it
  coppice preview delete namespace shop --backup shop.backup
  coppice kubectl delete namespace shop
  coppice undo shop.backup

  # The same on "coppice up --recycle=1Gi,168h"
  coppice undo namespace/shop
  coppice undo 3f9a1c52-6d0e-4a57-9a37-0f5b6f1f4c11

  # List the objects that would be restored, and those that cannot be
  coppice undo shop.backup --dry-run`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return takeBack(c.Context(), &f, args, s) },
	}
	f.cluster.add(c)
	addKey(c, &f.key)
	flags := c.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "list the objects that would be created, and create none")
	flags.BoolVar(&f.options.Status, "with-status", false, "restore the status of objects")
	flags.BoolVar(&f.options.Finalizers, "with-finalizers", false, "restore the finalizers of objects")
	flags.BoolVar(&f.options.Relink, "relink", false, "accept existing objects with the same names as owners, namespaces and volume claims")
	flags.StringVarP(&f.output, "output", "o", "text", "format: "+strings.Join(undoFormats(), ", "))
	completeWith(c, "output", undoFormats()...)
	return c
}

func takeBack(ctx context.Context, f *undoFlags, args []string, s Streams) error {
	if !slices.Contains(undoFormats(), f.output) {
		return usageError{fmt.Errorf("--output %q is unknown: choose one of %s", f.output, strings.Join(undoFormats(), ", "))}
	}
	from, err := f.kept(ctx, args, s)
	if err != nil {
		return err
	}
	report, interrupted := f.restore(ctx, from, s)
	if interrupted != nil && report.Objects == nil {
		return interrupted
	}
	if err := printUndo(s, f.output, report); err != nil {
		return err
	}
	switch missing := report.Missing(); {
	case interrupted != nil:
		return interrupted
	case missing > 0 && f.dryRun:
		return foundError{fmt.Errorf("%d of %d objects could not be restored", missing, len(report.Objects))}
	case missing > 0:
		return fmt.Errorf("%d of %d objects are not restored; remove the causes above, and run the same undo again", missing, len(report.Objects))
	}
	return nil
}

// restore creates the objects again, or with --dry-run plans that. The report is empty if an error has prevented the
// plan; with a report, an error means that the undo was interrupted.
func (f *undoFlags) restore(ctx context.Context, from backup.Content, s Streams) (undo.Report, error) {
	config, err := f.cluster.config()
	if err != nil {
		return undo.Report{}, err
	}
	journal, err := f.journal(s)
	if err != nil {
		return undo.Report{}, err
	}
	defer journal.Close()
	server, err := restore.NewServer(config, journal)
	if err != nil {
		return undo.Report{}, err
	}
	found, err := server.Survey(ctx, from.Kept)
	if err != nil {
		return undo.Report{}, err
	}
	plan := undo.New(from.Kept, found, f.options)
	var interrupted error
	if !f.dryRun {
		run := restore.Run{Server: server, Kinds: found.Kinds, Status: f.options.Status, Progress: progressOn(s), Until: f.until}
		interrupted = run.Run(ctx, plan)
	}
	report := plan.Report()
	report.DryRun, report.Lacks = f.dryRun, from.Lacks
	return report, interrupted
}

// journal returns the journal of recreated objects, a file in the directory of the backup key. If it cannot be
// written, the undo continues, but a later undo will not recognize the objects that this one recreates.
func (f *undoFlags) journal(s Streams) (*restore.Journal, error) {
	key, err := keyPath(f.key)
	if err != nil {
		terminal.Fprintf(s.Err, "another undo will not recognize the objects that this one creates: %v\n", err)
		return nil, nil // nil is an empty journal
	}
	journal, err := restore.OpenJournal(filepath.Join(filepath.Dir(key), "undone.jsonl"))
	if err != nil || f.dryRun {
		return journal, err
	}
	if err := journal.Open(); err != nil {
		terminal.Fprintf(s.Err, "another undo will not recognize the objects that this one creates: %v; name a file in another directory with --backup-key\n", err)
	}
	return journal, nil
}

// kept returns the objects to recreate, from a backup file or else from the recycle bin of the server.
func (f *undoFlags) kept(ctx context.Context, args []string, s Streams) (backup.Content, error) {
	arg := strings.Join(args, "/")
	if len(args) != 1 && (len(args) != 2 || strings.Count(arg, "/") != 1) {
		return backup.Content{}, usageError{errors.New(`name the deleted object, as TYPE/NAME, TYPE NAME or by its UID, or a file of "coppice preview delete --backup"`)}
	}
	isPath := strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".")
	isName := strings.Count(arg, "/") == 1 && !isPath
	if len(args) == 2 || !isFile(arg) {
		if _, isUID := uuid.Parse(arg); isUID != nil && !isName {
			return backup.Content{}, fmt.Errorf("%s is not a file, a TYPE/NAME or a UID", arg)
		}
		kept, unread, err := f.fromBin(ctx, arg)
		printUnread(s.Err, unread)
		return backup.Content{Kept: kept}, err
	}
	from, err := readBackup(arg, f.key)
	if isName && errors.Is(err, backup.ErrNoBackup) {
		kind, name, _ := strings.Cut(arg, "/")
		return backup.Content{}, fmt.Errorf("%w; to name the deleted object instead of the file: coppice undo %s", err, escape.Shell(kind)+" "+escape.Shell(name))
	}
	return from, err
}

// isFile reports whether a path is one of a file that may be a backup, also through a pipe.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// progressOn returns a function that shows the progress of an undo on a terminal; nil if stderr is no terminal.
func progressOn(s Streams) func(done, all int) {
	if terminal.File(s.Err) == nil {
		return nil
	}
	own := terminal.Own(s.Err)
	return func(done, all int) {
		fmt.Fprintf(own, "\r\033[Krestored %d of %d", done, all)
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
		sayLacking(s.Err, undo.LacksHeading, r.Lacks)
		return nil
	}
	_, err := io.WriteString(s.Out, r.String())
	return err
}
