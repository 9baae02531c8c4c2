package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

// restoringDir is the directory in which a snapshot is restored before it is renamed to etcdDir.
const restoringDir = "etcd.restoring"

// ErrRunning is the error of SaveSnapshot while a control plane runs on the directory.
var ErrRunning = errors.New("a control plane runs on it")

// SaveSnapshot writes a snapshot of the control plane on dir, which must be stopped, to file.
// A running control plane serves snapshots through its API.
func SaveSnapshot(ctx context.Context, dir, file string) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("no control plane has kept its objects in %s: %w", dir, err)
	}
	locked, err := lockDir(dir)
	if errors.Is(err, fileutil.ErrLocked) {
		return ErrRunning // its objects may be in another etcd
	}
	if err != nil {
		return err
	}
	defer locked.unlock()
	if _, err := os.Stat(locked.join(etcdDir)); err != nil {
		return fmt.Errorf("no control plane has kept its objects in %s: %w", dir, err)
	}
	store, err := etcd.Open(ctx, etcd.Options{Dir: locked.join(etcdDir), FatalLog: os.Stderr})
	if err != nil {
		return err
	}
	defer store.Close()
	stream, err := store.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	return WriteSnapshot(file, func(out *os.File) error { return etcd.CopySnapshot(out, stream) })
}

// WriteSnapshot writes a file atomically and syncs it. Only its owner can read it: a snapshot contains
// every Secret.
func WriteSnapshot(file string, write func(*os.File) error) error {
	at, err := entryOf(file)
	if err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	defer at.close()
	err = at.replace(nil, func(out *os.File) error {
		if err := write(out); err != nil {
			return err
		}
		return out.Sync()
	})
	if err != nil {
		return fmt.Errorf("write the snapshot %s: %w", file, err)
	}
	return nil
}

// RestoreSnapshot creates a data directory from a snapshot. dir must be empty, except for keys that the
// control plane should keep. Objects are restored unchanged, under revisions that were never used before,
// which begins a new epoch (R4).
func RestoreSnapshot(file, dir string) error {
	if err := checkEmpty(dir); err != nil {
		return err
	}
	locked, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer locked.unlock()
	restoring := locked.join(restoringDir)
	if err := os.RemoveAll(restoring); err != nil {
		return fmt.Errorf("remove the leftovers of an earlier restore: %w", err)
	}
	if err := etcd.Restore(file, restoring); err != nil {
		_ = os.RemoveAll(restoring)
		return err
	}
	if err := os.Rename(restoring, locked.join(etcdDir)); err != nil {
		return fmt.Errorf("move the restored objects into place: %w", err)
	}
	return syncDir(locked.path)
}

// checkEmpty returns an error if a restore would overwrite files.
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

// syncDir makes a rename survive a power failure.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
