package system

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// place is the name of a file in an open directory. Whoever may write to the directories above it can put another directory
// in its path meanwhile, or a link to one, and root would write there. The open directory stays the same.
type place struct {
	dir  *os.Root
	name string
}

// fileOf returns the place of a file, and creates its directory if necessary. It follows symbolic links, as kubectl does:
// dotfiles are often links into a repository. Root follows no link by which another user chooses a file of others.
func fileOf(path string) (place, error) {
	path, err := filepath.Abs(path)
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

// entryOf returns the place of a directory entry: what has the name, also a link, is replaced. Its directory must exist.
func entryOf(path string) (place, error) {
	path, err := filepath.Abs(path)
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

func openPlace(path string) (place, error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	return place{dir, filepath.Base(path)}, err
}

func (p place) close() { _ = p.dir.Close() }

func (p place) path() string { return filepath.Join(p.dir.Name(), p.name) }

// read reads the file. The info is that of the contents, whatever has the name now.
func (p place) read() ([]byte, fs.FileInfo, error) {
	const most = 16 << 20
	named, err := p.dir.Lstat(p.name)
	if err != nil {
		return nil, nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is no regular file", p.path())
	}
	file, err := p.dir.OpenFile(p.name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !os.SameFile(named, info) {
		return nil, nil, fmt.Errorf("%s was replaced while it was opened", p.path())
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if len(data) > most {
		return nil, nil, fmt.Errorf("%s has more than %d bytes", p.path(), most)
	}
	return data, info, err
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
