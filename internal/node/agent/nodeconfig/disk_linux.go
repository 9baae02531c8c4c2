package nodeconfig

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// disk returns the size in bytes of the file system of a directory, or of its nearest parent that exists. It returns 0
// if the size is unknown.
func disk(dir string) int64 {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return 0
	}
	for {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		parent := filepath.Dir(dir)
		switch {
		case err == nil:
			return int64(s.Blocks) * s.Bsize
		case parent == dir:
			return 0
		}
		dir = parent
	}
}
