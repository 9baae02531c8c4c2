package cri

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

const (
	// movedPrefix is the prefix of the directories that removeTree has moved up.
	movedPrefix = "..removing-"
	// entriesAtOnce is the number of entries that removeTree reads of a directory at once.
	entriesAtOnce = 1024
)

// removeTree removes a file, or a directory with its contents. It follows no link, and succeeds if nothing is there.
//
// A container can nest directories deeper than a process may open files, and deeper than a path may be long:
// os.RemoveAll, which holds one descriptor for each level, fails for them. So removeTree moves the directories below
// those of the top up to the top, until there are none:
//
//	TOP/a/b/c  ──▶  TOP/..removing-1/c  ──▶  TOP/..removing-2
//
// It keeps no list of them, which may be long, too. After an interruption, the tree is flatter, and still below its top.
func removeTree(top string) error {
	info, err := os.Lstat(top)
	if err != nil {
		return missingIsFine(err)
	}
	if !info.IsDir() {
		return missingIsFine(os.Remove(top))
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return missingIsFine(err)
	}
	f := &flattening{root: root}
	err = f.eachIn(".", f.removeAtTop)
	if err = errors.Join(err, root.Close()); err != nil {
		return fmt.Errorf("remove %s: %w", top, err)
	}
	return missingIsFine(os.Remove(top))
}

// flattening is the state of one removeTree.
type flattening struct {
	root  *os.Root
	names int // the number of names that were given to moved directories
}

// eachIn calls take, which removes its argument, for the entries of a directory until there are none.
func (f *flattening) eachIn(dir string, take func(path string, e fs.DirEntry) error) error {
	for {
		entries, err := f.read(dir)
		if err != nil || len(entries) == 0 {
			return missingIsFine(err)
		}
		var failed error
		for _, e := range entries {
			if err := take(filepath.Join(dir, e.Name()), e); err != nil && failed == nil {
				failed = err // the first is enough: there may be as many as files
			}
		}
		if failed != nil {
			return failed
		}
	}
}

// read returns some entries of a directory, or none if it is empty.
func (f *flattening) read(dir string) ([]fs.DirEntry, error) {
	opened, err := f.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	entries, err := opened.ReadDir(entriesAtOnce)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// removeAtTop removes a file or a directory that is directly below the top.
func (f *flattening) removeAtTop(path string, e fs.DirEntry) error {
	err := missingIsFine(f.root.Remove(path))
	if err == nil || !e.IsDir() {
		return err
	}
	if err := f.eachIn(path, f.removeOrMove); err != nil {
		return err
	}
	return missingIsFine(f.root.Remove(path))
}

// removeOrMove removes a file or an empty directory, and moves any other directory to the top.
func (f *flattening) removeOrMove(path string, e fs.DirEntry) error {
	err := missingIsFine(f.root.Remove(path))
	if err == nil || !e.IsDir() {
		return err
	}
	for {
		f.names++
		name := movedPrefix + strconv.Itoa(f.names)
		err := f.root.Rename(path, name)
		if err == nil {
			return nil
		}
		if _, there := f.root.Lstat(name); there != nil { // else an interrupted removal has left it
			return missingIsFine(err)
		}
	}
}
