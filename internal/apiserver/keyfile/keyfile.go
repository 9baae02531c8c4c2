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

// Store writes a key with mode 0600, and creates its directory with mode 0700. It replaces an existing file, so only
// one process may store a key there at a time; Create is for the other cases. The file is written completely or not at
// all.
func Store(path string, key []byte) error {
	temporary, err := write(path, key)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary) }() // no longer exists on success
	return os.Rename(temporary, path)
}

// Create is Store, but its error is fs.ErrExist if there is a file already. Of several processes that create the file at
// the same time, one succeeds, and the others can load its key. Create fails if path is a link to a file that does not
// exist: the disk of that file may be missing, and may have a key.
func Create(path string, key []byte) error {
	if target, ok := dangling(path); ok {
		return fmt.Errorf("%s is a link to %s, which does not exist: mount its disk or restore the file, or remove the link so that a new key is made",
			path, target)
	}
	temporary, err := write(path, key)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary) }()
	if err := os.Link(temporary, path); err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	return createInPlace(path, key)
}

// dangling returns the target of a link to a file that does not exist.
func dangling(path string) (target string, ok bool) {
	target, err := os.Readlink(path)
	if err != nil {
		return "", false
	}
	_, err = os.Stat(path)
	return target, IsMissing(err)
}

// createInPlace is Create for file systems without hard links. While it writes, others load a part of the key, which is
// no key: they fail, and can try again. If it is killed there, the part stays: nobody can tell it from a key that was
// damaged later, so that only a user may remove it.
func createInPlace(path string, key []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = file.Write(key)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// write writes a key into a temporary file beside a path, and returns its name.
func write(path string, key []byte) (name string, err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return "", err
	}
	temporary, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = temporary.Write(key)
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return "", errors.Join(err, os.Remove(temporary.Name()))
	}
	return temporary.Name(), nil
}

// IsMissing reports whether Load found no key.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
