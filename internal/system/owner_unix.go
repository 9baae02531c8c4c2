//go:build unix

package system

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// noWait makes the opening of a FIFO return at once.
const noWait = syscall.O_NONBLOCK

// keepOwner gives a file the owner and the group of the file that it will replace. Only root can, and has to: any other user
// replaces files of its own.
func keepOwner(file *os.File, replaced fs.FileInfo) error {
	if os.Geteuid() != 0 {
		return nil
	}
	owner, err := statOf(replaced)
	if err != nil {
		return err
	}
	return file.Chown(int(owner.Uid), int(owner.Gid))
}

// ownerOf returns the owner of a file.
func ownerOf(info fs.FileInfo) (int, error) {
	stat, err := statOf(info)
	if err != nil {
		return 0, err
	}
	return int(stat.Uid), nil
}

func statOf(info fs.FileInfo) (*syscall.Stat_t, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("the owner of %s is unknown", info.Name())
	}
	return stat, nil
}
