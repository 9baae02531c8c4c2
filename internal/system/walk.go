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
// own, or if it leads to a directory and a file of the user who made it.
type rootWalk struct {
	opened []*os.Root // the current directory is the last, its parents are before it, up to /
	links  int        // how many were followed
	link   string     // the link of another user that was followed; empty if none
	user   int        // who made that link
}

// rootsPlace returns the place to which a walk of an absolute path leads. follow returns its name.
func rootsPlace(path string, follow func(w *rootWalk, path string) (name string, err error)) (place, error) {
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
	at := place{w.here(), name}
	w.opened = w.opened[:len(w.opened)-1] // the place closes it
	return at, nil
}

// entry goes to the directory of a path, and returns the last name of the path.
func (w *rootWalk) entry(path string) (string, error) {
	dir, name := filepath.Split(path)
	if err := w.directory(dir); err != nil {
		return "", err
	}
	_, err := w.checkDirectory()
	return name, err
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
		case errors.Is(err, fs.ErrNotExist):
			_, err := w.checkDirectory()
			return name, err
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink == 0:
			return name, w.checkFile(info)
		}
		if path, err = w.follow(name, info); err != nil {
			return "", err
		}
	}
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
	next, err := w.here().OpenRoot(name)
	if err != nil {
		return err
	}
	w.opened = append(w.opened, next)
	if opened, err := next.Stat("."); err != nil || !os.SameFile(info, opened) {
		return errors.Join(err, fmt.Errorf("%s was replaced while it was opened", next.Name()))
	}
	return nil
}

// create creates a directory, but not where the link of another user leads.
func (w *rootWalk) create(name string) (fs.FileInfo, error) {
	if w.link != "" {
		return nil, fmt.Errorf("%s is a link of user %d to a directory that does not exist; create the directory, or name another file",
			w.link, w.user)
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
	user, err := ownerOf(info)
	if err != nil {
		return "", err
	}
	if user != 0 {
		if w.link != "" && user != w.user {
			return "", fmt.Errorf("%s is a link of user %d, and %s one of user %d; name the file itself", w.link, w.user, path, user)
		}
		w.link, w.user = path, user
	}
	return w.here().Readlink(name)
}

// checkDirectory returns an error if root must not write to the current directory.
func (w *rootWalk) checkDirectory() (fs.FileInfo, error) {
	info, err := w.here().Stat(".")
	if err != nil {
		return nil, err
	}
	return info, w.checkTarget(w.here().Name(), info)
}

// checkFile returns an error if root must not replace a file in the current directory.
func (w *rootWalk) checkFile(info fs.FileInfo) error {
	const everybodyWrites = 0o002
	dir, err := w.checkDirectory()
	if err != nil {
		return err
	}
	path := filepath.Join(w.here().Name(), info.Name())
	if err := w.checkTarget(path, info); err != nil {
		return err
	}
	user, err := ownerOf(info)
	if err != nil {
		return err
	}
	host, err := ownerOf(dir)
	if err != nil {
		return err
	}
	if dir.Mode().Perm()&everybodyWrites != 0 && user != 0 && user != host {
		// The file would stay that user's, with the credentials.
		return fmt.Errorf("user %d has made %s in a directory where everybody may write; name a file in another directory", user, path)
	}
	return nil
}

// checkTarget returns an error if the link of another user has led to something that is not that user's.
func (w *rootWalk) checkTarget(path string, info fs.FileInfo) error {
	owner, err := ownerOf(info)
	if err == nil && w.link != "" && owner != w.user {
		err = fmt.Errorf("%s is a link of user %d, and leads to %s of user %d; name the file itself, or make the link as root", w.link, w.user, path, owner)
	}
	return err
}

func (w *rootWalk) here() *os.Root { return w.opened[len(w.opened)-1] }

// closeTo closes all but the first n directories.
func (w *rootWalk) closeTo(n int) {
	for _, dir := range w.opened[n:] {
		_ = dir.Close()
	}
	w.opened = w.opened[:n]
}
