package cri

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// The files of a volume of API objects lie in a directory of their own, to which a link leads:
//
//	VOLUME/..files-123456/NAME   the files
//	VOLUME/..data                a link to that directory
//	VOLUME/NAME                  a link to ..data/NAME
//
// New contents are written to another directory, and the link is replaced. So a process sees either
// all of the old files or all of the new ones. The names are the kubelet's: programs that watch for
// new contents watch ..data.
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
	dataPrefix  = "..files-"
)

// owners are the user and the group of the files of a volume. Nil: the user or group of the agent.
type owners struct{ user, group *int64 }

// write makes the files the contents of a volume, and reports whether they have changed. Only
// processes in the pod can read them: the directories above are not accessible to other users.
func write(dir string, files []file, of owners) (changed bool, err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return false, err
	}
	if err := writeDir(dir, of.group); err != nil {
		return false, err
	}
	current, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if current != "" && holds(filepath.Join(dir, current), files, of) {
		return false, link(dir, files)
	}
	next, err := os.MkdirTemp(dir, dataPrefix)
	if err != nil {
		return false, err
	}
	if err := fill(next, files, of); err != nil {
		return false, errors.Join(err, removeTree(next))
	}
	temporary := filepath.Join(dir, newDataLink)
	if err := missingIsFine(os.Remove(temporary)); err != nil {
		return false, err
	}
	if err := os.Symlink(filepath.Base(next), temporary); err != nil {
		return false, err
	}
	if err := os.Rename(temporary, filepath.Join(dir, dataLink)); err != nil {
		return false, err
	}
	return true, errors.Join(link(dir, files), sweep(dir, filepath.Base(next)))
}

// fill writes files to an empty directory.
func fill(dir string, files []file, of owners) error {
	if err := give(dir, 0o755, 0o050, owners{group: of.group}); err != nil {
		return err
	}
	for _, f := range files {
		below := dir
		for _, name := range splitPath(path.Dir(f.path)) {
			below = filepath.Join(below, name)
			if err := writeDir(below, of.group); err != nil {
				return err
			}
		}
		if err := writeFile(filepath.Join(dir, f.path), f, of); err != nil {
			return err
		}
	}
	return nil
}

// holds reports whether a directory has these files, and no others.
func holds(dir string, files []file, of owners) bool {
	left := len(files)
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			left--
		}
		return err
	})
	if err != nil || left != 0 {
		return false
	}
	for _, f := range files {
		at := filepath.Join(dir, f.path)
		info, err := os.Lstat(at)
		if err != nil || info.Mode() != f.modeFor(of) || info.Size() != int64(len(f.data)) {
			return false
		}
		if data, err := os.ReadFile(at); err != nil || !bytes.Equal(data, f.data) {
			return false
		}
	}
	return true
}

// link creates the links to the files, and removes links to missing files.
func link(dir string, files []file) error {
	wanted := map[string]bool{}
	for _, f := range files {
		name, _, _ := strings.Cut(f.path, "/")
		wanted[name] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), ".."):
		case wanted[e.Name()] && e.Type() == fs.ModeSymlink:
			delete(wanted, e.Name())
		default: // also a file from before links were used
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for name := range wanted {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes all directories of files except the current one.
func sweep(dir, current string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), dataPrefix) && e.Name() != current {
			err = errors.Join(err, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// splitPath returns the names of the directories in a clean path.
func splitPath(at string) []string {
	if at == "." {
		return nil
	}
	parent, name := path.Split(at)
	return append(splitPath(path.Clean(parent)), name)
}

func writeDir(dir string, group *int64) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	return give(dir, 0o755, 0o050, owners{group: group})
}

// ofGroup is the permission of a volume's group on its files.
const ofGroup = 0o040

// modeFor returns the mode of a file that has these owners.
func (f file) modeFor(of owners) os.FileMode {
	if of.group != nil {
		return f.mode | ofGroup
	}
	return f.mode
}

func writeFile(at string, f file, of owners) error {
	if err := os.WriteFile(at, f.data, 0o600); err != nil {
		return err
	}
	if !f.private {
		of.user = nil
	}
	return give(at, f.mode, ofGroup, of)
}

// give sets the mode of a file and its owners. With a group, the file also gets the permissions in more.
func give(at string, mode, more os.FileMode, of owners) error {
	user, group := -1, -1
	if of.user != nil {
		user = int(*of.user)
	}
	if of.group != nil {
		group = int(*of.group)
		mode |= more
	}
	if user >= 0 || group >= 0 {
		if err := os.Chown(at, user, group); err != nil {
			return err
		}
	}
	return os.Chmod(at, mode)
}
