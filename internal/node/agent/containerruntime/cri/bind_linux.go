package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mostRaces is the maximum number of attempts to resolve a path in which something is being renamed.
const mostRaces = 100

// openInside opens a path inside a directory. It follows links inside the directory; a link that
// leads out, or that is absolute, is an error. The file can only be mounted, not read: opening a
// device may have effects.
func openInside(dir, path string) (*os.File, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	var fd int
	for range mostRaces {
		fd, err = unix.Openat2(int(root.Fd()), path, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// bindInside mounts a path inside a directory at a path that does not exist yet. Mounts that appear
// there later appear in the mount too; mounts and unmounts in the mount have no effect outside.
func bindInside(dir, path, at string) error {
	file, err := openInside(dir, path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case info.IsDir():
		err = os.Mkdir(at, 0o700)
	default:
		err = os.WriteFile(at, nil, 0o600)
	}
	if err != nil {
		return err
	}
	source := "/proc/self/fd/" + strconv.Itoa(int(file.Fd()))
	if err := unix.Mount(source, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := unix.Mount("", at, "", unix.MS_SLAVE, ""); err != nil {
		return errors.Join(fmt.Errorf("make the mount a slave: %w", err), unmount(at))
	}
	return nil
}

// unmount unmounts a path if it is a mount point.
func unmount(at string) error {
	for {
		err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil // it is not a mount point, or no longer
		case errors.Is(err, unix.EPERM) && os.Geteuid() != 0:
			return nil // without the privilege, nothing can be mounted
		case err != nil:
			return fmt.Errorf("unmount %s: %w", at, err)
		}
	}
}

// mountsBelow returns the mount points below a directory, the last one first.
func mountsBelow(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return mountPointsBelow(string(text), dir), nil
}

// mountPointsBelow returns the mount points of a mountinfo that are below a directory, the last one first.
func mountPointsBelow(mountinfo, dir string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var below []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if at := unescape.Replace(fields[4]); strings.HasPrefix(at, filepath.Clean(dir)+"/") {
			below = append([]string{at}, below...)
		}
	}
	return below
}
