package system

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mostLinks is how many symbolic links a path may have, as in Linux.
const mostLinks = 40

// rootWalk follows a path for root, directory by directory. Each step starts at an open directory, and opens exactly the
// directory that it has looked at, so that the checks hold whatever others do to the path meanwhile.
//
// Other users may make links. As root would follow them where these users may not write, a link counts only if it is root's
// own, or if it leads to a directory and a file of the user who made it. In a directory that several users share, others may
// also take the name that root is about to use: see checkMaker.
type rootWalk struct {
	opened []*os.Root // the current directory is the last, its parents are before it, up to /
	links  int        // how many were followed
	via    foreignLink
}

// foreignLink is the link of another user that a walk has followed. The zero value is none.
type foreignLink struct {
	path string
	user int // who made it
}

// pathWalk is a kind of walk. It goes to the directory of a path, and returns the last name of the path.
type pathWalk func(w *rootWalk, path string) (name string, err error)

// rootsPlace returns the place to which a walk of an absolute path leads.
func rootsPlace(path string, follow pathWalk) (place, error) {
	top, err := os.OpenRoot("/")
	if err != nil {
		return place{}, err
	}
	w := &rootWalk{opened: []*os.Root{top}}
	defer func() { w.closeTo(0) }()
	name, err := follow(w, path)
	if err != nil {
		return place{}, err
	}
	dir, via := w.here(), w.via
	w.opened = w.opened[:len(w.opened)-1] // the place closes it
	at := place{dir: dir, name: name}
	at.check = func(info fs.FileInfo) error {
		if err := via.checkFile(at.path(), info); err != nil {
			return err
		}
		return checkMaker(dir, at.path(), info)
	}
	return at, nil
}

// entry goes to the directory of a path, and returns the last name of the path.
func (w *rootWalk) entry(path string) (string, error) {
	dir, name := filepath.Split(path)
	if err := w.directory(dir); err != nil {
		return "", err
	}
	return name, w.checkDirectory()
}

// file goes to the directory of a file, and returns the name of the file there. The file may be a link.
func (w *rootWalk) file(path string) (string, error) {
	for {
		dir, name := filepath.Split(path)
		if err := w.directory(dir); err != nil {
			return "", err
		}
		info, err := w.here().Lstat(name)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err
		case err != nil, info.Mode()&fs.ModeSymlink == 0:
			return name, w.checkDirectory() // the place checks the file when it opens it: others may make one until then
		}
		if path, err = w.follow(name, info); err != nil {
			return "", err
		}
	}
}

// lastingFile is file for a file that is opened by its path again and again: no other user may exchange what is at the path
// meanwhile. The group of a directory of root may: root has chosen the group, and /var/log is such a directory in Ubuntu.
func (w *rootWalk) lastingFile(path string) (string, error) {
	const everybodyWrites = 0o002
	name, err := w.file(path)
	if err != nil {
		return "", err
	}
	for _, dir := range w.opened {
		info, err := dir.Stat(".")
		if err != nil {
			return "", err
		}
		owner, err := ownerOf(info)
		if err != nil {
			return "", err
		}
		if owner != 0 {
			return "", fmt.Errorf("%s is a directory of user %d, who could put another file there while root writes; name a file in a directory of root",
				filepath.Clean(dir.Name()), owner)
		}
		// With the sticky bit, root's directories stay there, but names that root has not taken yet are free.
		isSafe := info.Mode().Perm()&everybodyWrites == 0 || info.Mode()&fs.ModeSticky != 0 && dir != w.here()
		if !isSafe {
			return "", fmt.Errorf("everybody may write to %s, and could put another file there while root writes; name a file in a directory where only root may write",
				filepath.Clean(dir.Name()))
		}
	}
	return name, nil
}

// directory goes to a directory, which it creates if necessary.
func (w *rootWalk) directory(path string) error {
	if filepath.IsAbs(path) {
		w.closeTo(1)
	}
	for name := range strings.SplitSeq(path, string(filepath.Separator)) {
		switch name {
		case "", ".":
		case "..":
			w.closeTo(max(1, len(w.opened)-1))
		default:
			if err := w.enter(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// enter goes to a directory in the current one.
func (w *rootWalk) enter(name string) error {
	info, err := w.here().Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = w.create(name)
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		path, err := w.follow(name, info)
		if err != nil {
			return err
		}
		return w.directory(path)
	}
	within := w.here()
	path := filepath.Join(within.Name(), name)
	if err := checkMaker(within, path, info); err != nil { // also after create: another user may have been faster
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no directory; remove it, or name another path", path)
	}
	next, err := within.OpenRoot(asDirectory(name))
	if err != nil {
		return err
	}
	w.opened = append(w.opened, next)
	opened, err := next.Stat(".")
	if err != nil || !os.SameFile(info, opened) {
		return errors.Join(err, fmt.Errorf("%s was replaced while it was opened", path))
	}
	return nil
}

// create creates a directory, but not where the link of another user leads.
func (w *rootWalk) create(name string) (fs.FileInfo, error) {
	if w.via.path != "" {
		return nil, fmt.Errorf("%s is a link of user %d to a directory that does not exist; create the directory, or name another file",
			w.via.path, w.via.user)
	}
	if err := w.here().Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return w.here().Lstat(name)
}

// follow returns the target of a link in the current directory.
func (w *rootWalk) follow(name string, info fs.FileInfo) (string, error) {
	path := filepath.Join(w.here().Name(), name)
	if w.links++; w.links > mostLinks {
		return "", fmt.Errorf("%s: too many levels of symbolic links", path)
	}
	if err := checkMaker(w.here(), path, info); err != nil {
		return "", err
	}
	user, err := ownerOf(info)
	if err != nil {
		return "", err
	}
	if user != 0 {
		if w.via.path != "" && user != w.via.user {
			return "", fmt.Errorf("%s is a link of user %d, and %s one of user %d; name the file itself", w.via.path, w.via.user, path, user)
		}
		w.via = foreignLink{path, user}
	}
	return w.here().Readlink(name)
}

// checkDirectory returns an error if root must not write to the current directory.
func (w *rootWalk) checkDirectory() error {
	info, err := w.here().Stat(".")
	if err != nil {
		return err
	}
	return w.via.checkTarget(filepath.Clean(w.here().Name()), info)
}

// checkTarget returns an error if the link has led to something that is not of the user who made the link.
func (l foreignLink) checkTarget(path string, info fs.FileInfo) error {
	owner, err := ownerOf(info)
	if err == nil && l.path != "" && owner != l.user {
		err = fmt.Errorf("%s is a link of user %d, and leads to %s of user %d; name the file itself, or make the link as root", l.path, l.user, path, owner)
	}
	return err
}

// checkFile is checkTarget for a file in a directory of the user who made the link. Root's files there are right: an earlier
// walk through the link has made them.
func (l foreignLink) checkFile(path string, info fs.FileInfo) error {
	owner, err := ownerOf(info)
	if err != nil || owner == 0 {
		return err
	}
	return l.checkTarget(path, info)
}

// checkMaker returns an error if somebody has put a link, a directory or a file into a directory of others. Where several
// users may write, such as in /tmp, a user who is faster than root has it in the place where root expects its own: the
// file would stay that user's, with the credentials. What root and the owner of the directory have made counts there.
//
// A group counts as several users, also one with the name of the owner: nothing says for sure who its members are. A user
// who is alone in it loses nothing, because it owns its files.
func checkMaker(dir directory, path string, info fs.FileInfo) error {
	const othersWrite = 0o022
	shared, err := dir.Stat(".")
	if err != nil {
		return err
	}
	host, err := ownerOf(shared)
	if err != nil {
		return err
	}
	maker, err := ownerOf(info)
	if err != nil {
		return err
	}
	if shared.Mode().Perm()&othersWrite != 0 && maker != 0 && maker != host {
		return fmt.Errorf("user %d has made %s in a directory where others may write; remove it, or name a path in another directory", maker, path)
	}
	return nil
}

func (w *rootWalk) here() *os.Root { return w.opened[len(w.opened)-1] }

// closeTo closes all but the first n directories.
func (w *rootWalk) closeTo(n int) {
	for _, dir := range w.opened[n:] {
		_ = dir.Close()
	}
	w.opened = w.opened[:n]
}
