//go:build unix

package system

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner and the group of the file that it will replace, if there is one. Only root can, and
// has to: any other user replaces files of its own.
func keepOwner(file, replaced string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(replaced)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("the owner of %s is unknown", replaced)
	}
	return os.Chown(file, int(owner.Uid), int(owner.Gid))
}
