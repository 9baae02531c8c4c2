// Package keyfile keeps secret keys in files that only their owner may read: the private keys of certificates and
// tokens, and the keys that encrypt copies of deleted objects (Key).
package keyfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	dirMode  = 0o700
	fileMode = 0o600
)

// Load reads a key. The error is fs.ErrNotExist if the file does not exist. Load makes a file private that
// others may read or write: it may have been restored from a backup.
func Load(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&^fileMode != 0 {
		if err := os.Chmod(path, fileMode); err != nil {
			return nil, fmt.Errorf("make %s private, which others may read: %w", path, err)
		}
	}
	return os.ReadFile(path)
}

// Store writes a new key with mode 0600, and creates its directory with mode 0700. The file is
// written completely or not at all.
func Store(path string, key []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // no longer exists on success
	_, err = temporary.Write(key)
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// IsMissing reports whether Load found no key.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
