package cri

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// openRegular opens an existing file that a container can change. It refuses links, named pipes and devices: a link may
// lead to a file of the node, the opening of a pipe may wait for ever, and that of a device may have effects.
func openRegular(path string, flag int) (*os.File, error) {
	at, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !at.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.OpenFile(path, flag|syscall.O_NONBLOCK, 0) // it may have been replaced by a pipe
	if err != nil {
		return nil, err
	}
	opened, err := file.Stat()
	if err == nil && !os.SameFile(at, opened) {
		err = fmt.Errorf("%s was replaced while it was opened", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// writeInPlace writes a file that may be mounted in containers. They would not see a new file in its place. A container
// may have given the file any size: writeInPlace reads no more of it than the text has.
func writeInPlace(path string, text []byte) error {
	file, err := openRegular(path, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return err
	}
	return errors.Join(overwrite(file, text), file.Close())
}

// overwrite makes a text the content of a file that everybody can read. It does not write a file that has the text
// already, since processes may watch it.
func overwrite(file *os.File, text []byte) error {
	same, err := hasText(file, text)
	if err != nil {
		return err
	}
	if !same {
		if err := file.Truncate(0); err != nil {
			return err
		}
		if _, err := file.WriteAt(text, 0); err != nil {
			return err
		}
	}
	return file.Chmod(0o644)
}

// hasText reports whether a text is the whole content of a file.
func hasText(file *os.File, text []byte) (bool, error) {
	info, err := file.Stat()
	if err != nil || info.Size() != int64(len(text)) {
		return false, err
	}
	now := make([]byte, len(text))
	n, err := file.ReadAt(now, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(now[:n], text), nil
}
