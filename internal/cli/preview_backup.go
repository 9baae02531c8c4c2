package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	without   acceptedLack

	own      os.FileInfo // of the file that this command has written; nil for none
	isNeeded bool        // a deletion may have removed objects that the file has
	orphans  bool        // the deletion keeps the dependents of the requested objects
}

func (f *backupFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "backup", "", "new file for an encrypted backup of all deleted objects, for coppice undo")
	addKey(c, &f.key)
	f.without.add(c)
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
	f.backup.orphans = f.cascade == "orphan"
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

// save writes the file. It replaces the one of an earlier attempt of this command, which is there until the new one is.
func (f *backupFlags) save(content []byte) error {
	if err := f.checkNew(); err != nil {
		return err
	}
	written, err := f.writeAside(content)
	if err != nil {
		return err
	}
	f.own = written
	return nil
}

// writeAside writes the file, and returns its identity.
func (f *backupFlags) writeAside(content []byte) (os.FileInfo, error) {
	if _, err := os.Lstat(f.file); f.own == nil || errors.Is(err, os.ErrNotExist) {
		if err := backup.Write(f.file, content); err != nil {
			return nil, err
		}
		return os.Lstat(f.file)
	}
	dir, err := os.MkdirTemp(filepath.Dir(f.file), "."+filepath.Base(f.file)+"-*")
	if err != nil {
		return nil, fmt.Errorf("replace the backup of the last attempt: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	aside := filepath.Join(dir, "backup")
	if err := backup.Write(aside, content); err != nil {
		return nil, err
	}
	if err := os.Rename(aside, f.file); err != nil {
		return nil, fmt.Errorf("replace the backup of the last attempt: %w", err)
	}
	return os.Lstat(f.file)
}

// write backs up the objects that a preview predicts to be removed. It returns an error if the backup is incomplete, unless
// the user accepts that. An incomplete backup says what it lacks, for undo, in any case. It replaces no backup of an earlier
// attempt, whose DELETE may have removed the objects that it lacks.
func (f *backupFlags) write(ctx context.Context, cluster *clusterFlags, r preview.Report, s Streams) error {
	path, key, err := f.loadKey(s)
	if err != nil {
		return err
	}
	config, err := cluster.config()
	if err != nil {
		return err
	}
	server, err := restore.NewServer(config, nil)
	if err != nil {
		return err
	}
	kept, missed, err := readPredicted(ctx, server, r)
	if err != nil {
		return err
	}
	unseen := backup.Unseen(r)
	accepted, open := f.without.split(unseen)
	sayLacking(s.Err, "not kept", missed)
	sayLacking(s.Err, "may not be kept, as --backup-without says", saysOf(accepted))
	incomplete := errors.Join(errMissed(missed), f.without.errOpen(open))
	if f.own != nil && incomplete != nil {
		return fmt.Errorf("%w; %s has the objects of the last attempt", incomplete, f.file)
	}
	content := backup.Content{Kept: kept, Lacks: append(saysOf(unseen), missed...)}
	a := f.attempt(kept, unseen)
	a.doubtStays(kept)
	if f.own != nil {
		if content, err = f.withEarlier(ctx, server, content, a, key); err != nil {
			return err
		}
		sayLacking(s.Err, "kept with the contents of an earlier attempt", placesOfEarlier(content.Kept))
	}
	text, err := backup.Seal(content, key, time.Now())
	if err != nil {
		return err
	}
	if err := f.save(text); err != nil {
		return err
	}
	terminal.Fprintf(s.Err, "%s in %s, encrypted with the key in %s\n", english.Plural(len(content.Kept), "object is", "objects are"), f.file, path)
	return incomplete
}

// loadKey returns the key of backups, and its path. It makes the key if there is none.
func (f *backupFlags) loadKey(s Streams) (path string, key *keyfile.Key, err error) {
	if path, err = keyPath(f.key); err != nil {
		return "", nil, err
	}
	key, made, err := keyfile.LoadOrMakeKey(path)
	if err != nil {
		return "", nil, fmt.Errorf("--backup: %w", err)
	}
	if made {
		terminal.Fprintf(s.Err, "the key of backups is new, in %s: without it, no backup can be read\n", path)
	}
	return path, key, nil
}

// readPredicted reads the objects that a preview predicts to be removed. missed has a line for each that could not be read.
func readPredicted(ctx context.Context, server *restore.Server, r preview.Report) (kept []undo.Kept, missed []string, err error) {
	kinds, err := server.Kinds(ctx)
	if err != nil {
		return nil, nil, err
	}
	wanted, unserved := backup.Of(r, kinds)
	kept, missed, err = backup.Read(ctx, server.Dynamic(), wanted)
	return kept, append(unserved, missed...), err
}

// errMissed returns an error if a backup lacks objects.
func errMissed(missed []string) error {
	if len(missed) == 0 {
		return nil
	}
	return fmt.Errorf("%s not in the backup; preview the deletion again, into another file", english.Plural(len(missed), "object is", "objects are"))
}

// sayLacking prints a line for each object or resource, up to a bound.
func sayLacking(w io.Writer, how string, lines []string) {
	for n, what := range lines {
		if n == maxUnread {
			terminal.Fprintf(w, "%s: %d more\n", how, len(lines)-n)
			return
		}
		terminal.Fprintf(w, "%s: %s\n", how, oneLineOf(what))
	}
}

// readBackup returns the content of a backup file. A file without objects is an error.
func readBackup(file, keyFile string) (backup.Content, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return backup.Content{}, fmt.Errorf("read the backup: %w", err)
	}
	if _, err := backup.ReadHeader(content); err != nil { // before the key: without a backup there may be no key
		return backup.Content{}, fmt.Errorf("%s: %w", file, err)
	}
	path, err := keyPath(keyFile)
	if err != nil {
		return backup.Content{}, err
	}
	key, err := keyfile.LoadKey(path)
	if errors.Is(err, os.ErrNotExist) {
		return backup.Content{}, fmt.Errorf("the key of backups is not in %s: name the file that has it with --backup-key", path)
	}
	if err != nil {
		return backup.Content{}, err
	}
	opened, _, err := backup.Open(content, key)
	switch {
	case err != nil:
		return backup.Content{}, fmt.Errorf("%s: %w", file, err)
	case len(opened.Kept) == 0 && len(opened.Lacks) > 0:
		return backup.Content{}, fmt.Errorf("the backup %s has no objects: it is incomplete, and may lack these and what depends on them: %s", file, inBrief(opened.Lacks))
	case len(opened.Kept) == 0:
		return backup.Content{}, fmt.Errorf("the backup %s has no objects", file)
	}
	return opened, nil
}
