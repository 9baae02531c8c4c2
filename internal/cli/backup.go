package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/backup"
	"github.com/coppice-dev/coppice/internal/preview"
	"github.com/coppice-dev/coppice/internal/recreate"
	"github.com/coppice-dev/coppice/internal/sealed"
	"github.com/coppice-dev/coppice/internal/undo"
)

// backupFlags say where what a deletion takes is kept.
type backupFlags struct{ file, key string }

func (f *backupFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "backup", "", "file to which all that goes is written, encrypted, for coppice undo; it must not exist yet")
	addKey(c, &f.key)
}

func addKey(c *cobra.Command, key *string) {
	c.Flags().StringVar(key, "backup-key", "", "file with the key of backups, made if it is not there (default: coppice/backup.key in the directory of the user's configuration)")
}

// keyPath returns where the key is.
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

// write keeps what a preview says that goes, if that is asked for. It fails if the backup lacks anything.
func (f *backupFlags) write(ctx context.Context, cluster *clusterFlags, r preview.Report, s Streams) error {
	if f.file == "" {
		return nil
	}
	if _, err := os.Lstat(f.file); err == nil {
		return fmt.Errorf("--backup: %s is there already: name another file, or remove it", f.file)
	}
	path, err := keyPath(f.key)
	if err != nil {
		return err
	}
	key, made, err := sealed.LoadOrMake(path)
	if err != nil {
		return fmt.Errorf("--backup: %w", err)
	}
	if made {
		fmt.Fprintf(s.Err, "the key of backups is new, in %s: without it, no backup can be read\n", path)
	}
	config, err := cluster.config()
	if err != nil {
		return err
	}
	server, err := recreate.NewServer(config)
	if err != nil {
		return err //nolint:wrapcheck // says all of it
	}
	kinds, err := server.Kinds(ctx)
	if err != nil {
		return err //nolint:wrapcheck // says all of it
	}
	wanted, unserved := wantedOf(r, kinds)
	kept, missed, err := backup.Read(ctx, server.Dynamic(), wanted)
	if err != nil {
		return err //nolint:wrapcheck // says all of it
	}
	content, err := backup.Seal(kept, key, time.Now()) //nolint:forbidigo // the time at which a user asks
	if err != nil {
		return err //nolint:wrapcheck // says all of it
	}
	if err := backup.Write(f.file, content); err != nil {
		return err //nolint:wrapcheck // says all of it
	}
	missed = append(unserved, missed...)
	sayMissed(s.Err, missed)
	fmt.Fprintf(s.Err, "%d objects are in %s, encrypted with the key in %s\n", len(kept), f.file, path)
	if len(missed) > 0 {
		return fmt.Errorf("%d objects are not in the backup; preview the deletion again, into another file", len(missed))
	}
	return nil
}

func sayMissed(w io.Writer, missed []string) {
	for n, what := range missed {
		if n == maxUnread {
			fmt.Fprintf(w, "not kept: %d more\n", len(missed)-n)
			return
		}
		fmt.Fprintf(w, "not kept: %s\n", oneLineOf(what))
	}
}

// wantedOf returns what a preview says that goes, or loses references. What controllers make by themselves is
// never made again, and changes all the time: it is left out.
func wantedOf(r preview.Report, kinds map[schema.GroupKind]undo.Kind) (wanted []backup.Wanted, unserved []string) {
	for n := range r.Objects {
		o := &r.Objects[n]
		kind := schema.ParseGroupKind(o.Kind)
		goes := o.Fate == preview.Deleted || o.Fate == preview.Waiting
		if !goes && o.Fate != preview.Detached || undo.LeavesOut(kind) {
			continue
		}
		served, known := kinds[kind]
		if !known {
			unserved = append(unserved, fmt.Sprintf("%s %s/%s: its kind is not served any more", o.Kind, o.Namespace, o.Name))
			continue
		}
		wanted = append(wanted, backup.Wanted{
			Resource: served.Resource, Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID), Version: o.ResourceVersion,
			Requested: o.Requested, Stays: !goes,
		})
	}
	return wanted, unserved
}

// readBackup returns what is in a file.
func readBackup(file, keyFile string) ([]undo.Kept, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	path, err := keyPath(keyFile)
	if err != nil {
		return nil, err
	}
	key, err := sealed.Load(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the key of backups is not in %s: name the file that has it with --backup-key", path)
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // says all of it
	}
	kept, _, err := backup.Open(content, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return kept, nil
}
