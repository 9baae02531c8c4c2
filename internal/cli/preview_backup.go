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

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/apiserver/backup"
	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// backupFlags name the file of a backup and the file with its key.
type backupFlags struct {
	file, key string

	own os.FileInfo // of the file that this command has written; nil for none
}

func (f *backupFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "backup", "", "new file for an encrypted backup of all deleted objects, for coppice undo")
	addKey(c, &f.key)
}

func addKey(c *cobra.Command, key *string) {
	c.Flags().StringVar(key, "backup-key", "", "file with the key of backups (default: coppice/backup.key in the user's configuration directory)")
}

// keyPath returns the path of the key: the given one, or the default.
func keyPath(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the key of backups: %w; name a file with --backup-key", err)
	}
	return filepath.Join(dir, "coppice", "backup.key"), nil
}

// keep writes the objects that a deletion removes into the file of --backup, if the flag is set. That includes the
// objects that wait for finalizers, and their dependents: they are removed later.
func (f *previewFlags) keep(ctx context.Context, r preview.Report, args []string, s Streams) error {
	if f.backup.file == "" {
		return nil
	}
	if err := f.backup.checkNew(); err != nil {
		return err
	}
	if !f.released && slices.ContainsFunc(r.Objects, func(o preview.ObjectReport) bool { return o.Fate == preview.Waiting }) {
		later := *f
		later.released = true
		predicted, err := later.predict(ctx, args, s)
		if err != nil {
			return err
		}
		r = predicted.report
	}
	return f.backup.write(ctx, &f.cluster, r, s)
}

// checkNew returns an error if there is a file already that this command has not written.
func (f *backupFlags) checkNew() error {
	if f.file == "" {
		return nil
	}
	if there, err := os.Lstat(f.file); err == nil && !os.SameFile(there, f.own) {
		return fmt.Errorf("--backup: %s already exists: name another file, or remove it", f.file)
	}
	return nil
}

// save writes the file. It replaces the one of an earlier attempt of this command.
func (f *backupFlags) save(content []byte) error {
	if err := f.checkNew(); err != nil {
		return err
	}
	if f.own != nil {
		if err := os.Remove(f.file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("replace the backup of the last attempt: %w", err)
		}
	}
	if err := backup.Write(f.file, content); err != nil {
		return err
	}
	var err error
	f.own, err = os.Lstat(f.file)
	return err
}

// write backs up the objects that a preview predicts to be removed. It returns an error if the backup is incomplete.
func (f *backupFlags) write(ctx context.Context, cluster *clusterFlags, r preview.Report, s Streams) error {
	path, err := keyPath(f.key)
	if err != nil {
		return err
	}
	key, made, err := keyfile.LoadOrMakeKey(path)
	if err != nil {
		return fmt.Errorf("--backup: %w", err)
	}
	if made {
		terminal.Fprintf(s.Err, "the key of backups is new, in %s: without it, no backup can be read\n", path)
	}
	config, err := cluster.config()
	if err != nil {
		return err
	}
	server, err := restore.NewServer(config, nil)
	if err != nil {
		return err
	}
	kinds, err := server.Kinds(ctx)
	if err != nil {
		return err
	}
	wanted, unserved := backup.Of(r, kinds)
	kept, missed, err := backup.Read(ctx, server.Dynamic(), wanted)
	if err != nil {
		return err
	}
	content, err := backup.Seal(kept, key, time.Now())
	if err != nil {
		return err
	}
	if err := f.save(content); err != nil {
		return err
	}
	missed = append(unserved, missed...)
	sayMissed(s.Err, missed)
	terminal.Fprintf(s.Err, "%s in %s, encrypted with the key in %s\n", english.Plural(len(kept), "object is", "objects are"), f.file, path)
	return incomplete(missed, backup.Unseen(r))
}

// incomplete returns an error if a backup lacks objects, or may lack objects of resources that could not be read.
func incomplete(missed, unseen []string) error {
	var errs []error
	if len(missed) > 0 {
		errs = append(errs, fmt.Errorf("%s not in the backup; preview the deletion again, into another file", english.Plural(len(missed), "object is", "objects are")))
	}
	if len(unseen) > 0 {
		for n := range unseen {
			unseen[n] = oneLineOf(unseen[n])
		}
		errs = append(errs, fmt.Errorf("the backup may lack objects that the deletion removes, because these resources cannot be read: %s; get the right to list them, or repair the API that does not answer, and preview the deletion again, into another file", strings.Join(unseen, "; ")))
	}
	return errors.Join(errs...)
}

func sayMissed(w io.Writer, missed []string) {
	for n, what := range missed {
		if n == maxUnread {
			terminal.Fprintf(w, "not kept: %d more\n", len(missed)-n)
			return
		}
		terminal.Fprintf(w, "not kept: %s\n", oneLineOf(what))
	}
}

// readBackup returns the objects in a backup file.
func readBackup(file, keyFile string) ([]undo.Kept, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	if _, err := backup.ReadHeader(content); err != nil { // before the key: without a backup there may be no key
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	path, err := keyPath(keyFile)
	if err != nil {
		return nil, err
	}
	key, err := keyfile.LoadKey(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the key of backups is not in %s: name the file that has it with --backup-key", path)
	}
	if err != nil {
		return nil, err
	}
	kept, _, err := backup.Open(content, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return kept, nil
}
