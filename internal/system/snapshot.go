package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// restoringDir is where a snapshot is restored to before it takes its place.
const restoringDir = "etcd.restoring"

// ErrRunning is the error of SaveSnapshot while a control plane has the directory.
var ErrRunning = errors.New("a control plane runs on it")

// SaveSnapshot writes a snapshot of the control plane on dir, which must be stopped, to
// file. A control plane that runs is asked for it over its API.
func SaveSnapshot(ctx context.Context, dir, file string) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("no control plane has kept its objects in %s: %w", dir, err)
	}
	held, err := hold(dir)
	if errors.Is(err, fileutil.ErrLocked) {
		return ErrRunning // perhaps with its objects elsewhere
	}
	if err != nil {
		return err
	}
	defer held.release()
	if _, err := os.Stat(held.join(etcdDir)); err != nil {
		return fmt.Errorf("no control plane has kept its objects in %s: %w", dir, err)
	}
	store, err := storage.Open(ctx, storage.Options{Dir: held.join(etcdDir), LastWords: os.Stderr})
	if err != nil {
		return err
	}
	defer store.Close()
	stream, err := store.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	return WriteSnapshot(file, func(out *os.File) error { return storage.CopySnapshot(out, stream) })
}

// WriteSnapshot has a file written that is there as a whole, and on disk, or not at all.
// Only its owner can read it: it holds every Secret.
func WriteSnapshot(file string, write func(*os.File) error) error {
	out, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	defer func() { _ = os.Remove(out.Name()) }() // not there any more when all went well
	defer out.Close()
	if err := write(out); err != nil {
		return fmt.Errorf("write the snapshot %s: %w", file, err)
	}
	if err := out.Sync(); err != nil {
		return fmt.Errorf("write the snapshot %s: %w", file, err)
	}
	if err := os.Rename(out.Name(), file); err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	return nil
}

// RestoreSnapshot makes a data directory from a snapshot: dir must be empty, but for the
// keys that a control plane is to go on with. Objects come back as they were, under
// revisions that were never given before, which begins a new epoch (R4).
func RestoreSnapshot(file, dir string) error {
	if err := checkEmpty(dir); err != nil {
		return err
	}
	held, err := hold(dir)
	if err != nil {
		return err
	}
	defer held.release()
	restoring := held.join(restoringDir)
	if err := os.RemoveAll(restoring); err != nil {
		return fmt.Errorf("remove what an earlier restore has left: %w", err)
	}
	if err := storage.Restore(file, restoring); err != nil {
		_ = os.RemoveAll(restoring)
		return err
	}
	if err := os.Rename(restoring, held.join(etcdDir)); err != nil {
		return fmt.Errorf("put the restored objects in their place: %w", err)
	}
	return syncDir(held.path)
}

// checkEmpty lets a restore overwrite nothing.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory: %w", err)
	}
	for _, entry := range entries {
		if !slices.Contains([]string{pkiDir, lockFile, restoringDir}, entry.Name()) {
			return fmt.Errorf("data directory %s is not empty: it has %s; a snapshot is restored to a new one, or to one with nothing in it but %s",
				dir, entry.Name(), pkiDir)
		}
	}
	return nil
}

// syncDir makes a rename outlive a loss of power.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
