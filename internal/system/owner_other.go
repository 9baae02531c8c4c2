//go:build !unix

package system

import (
	"errors"
	"io/fs"
	"os"
)

// noWait is empty: files of other kinds are opened like regular ones.
const noWait = 0

// keepOwner does nothing: files have no owners that a rename would change.
func keepOwner(*os.File, fs.FileInfo) error { return nil }

// ownerOf is for root, which does not exist.
func ownerOf(fs.FileInfo) (int, error) { return 0, errors.ErrUnsupported }
