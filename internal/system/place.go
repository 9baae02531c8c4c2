package system

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// place is the name of a file in an open directory. Whoever may write to the directories above it can put another directory
// in its path meanwhile, or a link to one, and root would write there. The open directory stays the same.
type place struct {
	dir  directory
	name string
	// check returns an error if root must not use a file with this name.
	check func(fs.FileInfo) error
}

// directory is an open directory, or the path of one that cannot be opened.
type directory interface {
	Name() string
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Rename(from, to string) error
	Remove(name string) error
	Close() error
}

// fileOf returns the place of a file, and creates its directory if necessary. It follows symbolic links, as kubectl does:
// dotfiles are often links into a repository. Root follows no link by which another user chooses a file of others.
func fileOf(path string) (place, error) {
	path, err := absolute(path)
	if err != nil {
		return place{}, err
	}
	if os.Geteuid() == 0 {
		return rootsPlace(path, (*rootWalk).file)
	}
	path = linkedFile(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return place{}, err
	}
	return openPlace(path)
}

// lastingFileOf is fileOf for a file that root opens by its name again and again.
func lastingFileOf(path string) (place, error) { return rootsPlace(path, (*rootWalk).lastingFile) }

// fileIn is fileOf for a file in a directory that root uses as it is, like the data directory, which also has its keys and
// objects. Another user may have made the directory, or a link to it. Only the file itself is checked, and its path if it is a
// link.
func fileIn(path string) (place, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return place{}, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return place{}, err
	}
	path = filepath.Join(dir, filepath.Base(path))
	if info, err := os.Lstat(path); os.Geteuid() != 0 || err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fileOf(path)
	}
	at, err := openPlace(path)
	if err != nil {
		return place{}, err
	}
	at.check = func(info fs.FileInfo) error { return checkMaker(at.dir, path, info) }
	return at, nil
}

// entryOf returns the place of a directory entry: what has the name, also a link, is replaced. Its directory must exist.
func entryOf(path string) (place, error) {
	path, err := absolute(path)
	if err != nil {
		return place{}, err
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil { // a walk would create it
		return place{}, err
	}
	if os.Geteuid() == 0 {
		return rootsPlace(path, (*rootWalk).entry)
	}
	return openPlace(path)
}

// absolute returns the absolute path of a file. filepath.Abs believes $PWD; root does not, because its shell may have come
// to the current directory through a link of another user, which chooses nothing any more.
func absolute(path string) (string, error) {
	if os.Geteuid() != 0 || filepath.IsAbs(path) {
		return filepath.Abs(path)
	}
	current, err := syscall.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the current directory: %w; name an absolute path", err)
	}
	return filepath.Join(current, path), nil
}

func openPlace(path string) (place, error) {
	at := place{name: filepath.Base(path), check: func(fs.FileInfo) error { return nil }}
	dir, err := os.OpenRoot(asDirectory(filepath.Dir(path)))
	switch {
	case errors.Is(err, fs.ErrPermission):
		// A user may write into a directory without reading it. A link in its path leads that user nowhere it may not write.
		at.dir = unreadable(filepath.Dir(path))
	case err != nil:
		return place{}, err
	default:
		at.dir = dir
	}
	return at, nil
}

// asDirectory returns a path under which only a directory can be opened. Another user may put a FIFO there at any time, and its
// opening would wait for a writer.
func asDirectory(path string) string { return path + string(filepath.Separator) + "." }

func (p place) close() { _ = p.dir.Close() }

func (p place) path() string { return filepath.Join(p.dir.Name(), p.name) }

// read reads the file. The info is that of the contents, whatever has the name now.
func (p place) read() ([]byte, fs.FileInfo, error) {
	const most = 16 << 20
	file, info, err := p.open(os.O_RDONLY)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if len(data) > most {
		return nil, nil, fmt.Errorf("%s has more than %d bytes", p.path(), most)
	}
	return data, info, err
}

// openToAppend opens the file, which it creates if necessary, readable by its owner only.
func (p place) openToAppend() (*os.File, error) {
	file, err := p.dir.OpenFile(p.name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		file, _, err = p.open(os.O_WRONLY | os.O_APPEND)
	}
	return file, err
}

// open opens an existing file. It checks the file that it has opened: others may exchange the one with the name at any time.
func (p place) open(flag int) (*os.File, fs.FileInfo, error) {
	named, err := p.dir.Lstat(p.name)
	if err != nil {
		return nil, nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is no regular file", p.path())
	}
	file, err := p.dir.OpenFile(p.name, flag|noWait, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !os.SameFile(named, info) {
		err = fmt.Errorf("%s was replaced while it was opened", p.path())
	}
	if err == nil {
		err = p.check(info)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// replace replaces the file atomically, readable by its owner only. write writes the contents. The new file has the owner of
// the replaced one, unless replaced is nil.
func (p place) replace(replaced fs.FileInfo, write func(*os.File) error) error {
	temporary := "." + p.name + "-" + rand.Text()
	file, err := p.dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = p.dir.Remove(temporary) }() // after a rename, nothing remains to remove
	err = write(file)
	if err == nil && replaced != nil {
		// By the open file: somebody else may have put a link to another file in the place of the name.
		err = keepOwner(file, replaced)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return p.dir.Rename(temporary, p.name)
}

// writePrivate replaces a file atomically, readable by its owner only. If root replaces the file of another user, it
// stays that user's.
func writePrivate(path string, data []byte) error {
	at, err := openPlace(path)
	if err != nil {
		return err
	}
	defer at.close()
	replaced, err := at.dir.Lstat(at.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return at.replace(replaced, contents(data))
}

// contents returns a function that writes data.
func contents(data []byte) func(*os.File) error {
	return func(file *os.File) error {
		_, err := file.Write(data)
		return err
	}
}

// linkedFile follows symbolic links to a file, which need not exist.
func linkedFile(path string) string {
	for range mostLinks {
		link, err := os.Readlink(path)
		if err != nil { // it is no link
			return path
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		path = link
	}
	return path
}

// unreadable is the path of a directory whose contents the user may not read.
type unreadable string

// Name implements directory.
func (d unreadable) Name() string { return string(d) }

// Stat implements directory.
func (d unreadable) Stat(name string) (fs.FileInfo, error) { return os.Stat(d.join(name)) }

// Lstat implements directory.
func (d unreadable) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(d.join(name)) }

// OpenFile implements directory.
func (d unreadable) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(d.join(name), flag, perm)
}

// Rename implements directory.
func (d unreadable) Rename(from, to string) error { return os.Rename(d.join(from), d.join(to)) }

// Remove implements directory.
func (d unreadable) Remove(name string) error { return os.Remove(d.join(name)) }

// Close implements directory.
func (unreadable) Close() error { return nil }

func (d unreadable) join(name string) string { return filepath.Join(string(d), name) }
