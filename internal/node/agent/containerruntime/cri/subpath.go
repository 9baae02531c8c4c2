package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Containers can put symbolic links into a volume at any time. A writable part of a volume is therefore mounted as
// follows:
//
//	open the part inside the volume, whatever links lead to it ──▶ bind it to pods/UID/subpaths ──▶ name that to the runtime
//
// The runtime resolves the path that it gets once more; the bind mount is at a place that no container can change.

// subPathOf returns the path of the mounted part of a volume, or "" for the whole volume. A subPathExpr may use the
// variables of the container.
func subPathOf(m *corev1.VolumeMount, variables []variable) (string, error) {
	part := m.SubPath
	if m.SubPathExpr != "" {
		values := map[string]string{}
		for _, v := range variables {
			values[v.name] = v.value
		}
		var missing error
		part = expandBy(m.SubPathExpr, func(name string) (string, bool) {
			value, known := values[name]
			if !known && missing == nil {
				missing = fmt.Errorf("missing value for %q", name)
			}
			return value, known
		})
		if missing != nil {
			return "", missing
		}
	}
	switch {
	case part == "":
		return "", nil
	case filepath.IsAbs(part):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", part)
	case !filepath.IsLocal(part) || hasParent(part):
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", part)
	}
	return part, nil
}

func hasParent(path string) bool {
	for name := range strings.SplitSeq(filepath.ToSlash(path), "/") {
		if name == ".." {
			return true
		}
	}
	return false
}

// makePart creates a part of a volume as a directory unless it exists, with the mode of the volume.
func makePart(volume, part string) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Stat(part); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if err := root.MkdirAll(part, info.Mode().Perm()); err != nil {
		return err
	}
	return setMode(root, part, info.Mode()&(os.ModePerm|os.ModeSetgid)) // the umask applied to the mode above
}

// setMode sets the mode of a directory that is new. A container may have put a link in its place, which leads to a file
// that only its owner may read: the directory is opened first, and must be what is at the path. The opening of a named
// pipe must not block.
func setMode(root *os.Root, part string, mode os.FileMode) error {
	dir, err := root.OpenFile(part, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	opened, err := dir.Stat()
	if err != nil {
		return err
	}
	at, err := root.Lstat(part)
	if err != nil {
		return err
	}
	if !at.IsDir() || !os.SameFile(opened, at) {
		return fmt.Errorf("%s was replaced while it was made", part)
	}
	return dir.Chmod(mode)
}

// resolve replaces the links in a part of a volume that lead to a place in the volume. Other parts are returned as they
// are. A link with an absolute path is resolved as on the node, so links that the node's administrator has made in a
// hostPath volume work. The result is only a path: something may be changed before it is opened.
func resolve(volume, part string) string {
	base, err := filepath.EvalSymlinks(volume)
	if err != nil {
		return part
	}
	rest := ""
	for at := filepath.Clean(part); at != "."; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		full, err := filepath.EvalSymlinks(filepath.Join(base, at))
		if err != nil {
			continue // it does not exist: the directory above may
		}
		if inside, err := filepath.Rel(base, full); err == nil && filepath.IsLocal(inside) {
			return filepath.Join(inside, rest)
		}
		break
	}
	return part
}

// bindPart mounts a part of a volume at a path of the store, and returns that path. It creates a missing part. The part
// is inside the volume, whatever links there are.
func (s *store) bindPart(uid types.UID, container string, index int, volume, part string) (string, error) {
	part = resolve(volume, part)
	if err := makePart(volume, part); err != nil {
		return "", fmt.Errorf("make the directory: %w", err)
	}
	at := filepath.Join(s.subpaths(uid), container, strconv.Itoa(index))
	if err := unmount(at); err != nil { // of an earlier instance of the container
		return "", err
	}
	if err := removeTree(at); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return "", err
	}
	return at, bindInside(volume, part, at)
}

func (s *store) subpaths(uid types.UID) string { return filepath.Join(s.pod(uid), "subpaths") }

// unbind unmounts the parts of volumes that are mounted for a pod. Any other mount in the pod's directory is an error,
// because removing the directory would remove the mounted files.
func (s *store) unbind(uid types.UID) error {
	dir, err := filepath.EvalSymlinks(s.pod(uid))
	if err != nil {
		return missingIsFine(err)
	}
	below, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, at := range below {
		if !strings.HasPrefix(at, filepath.Join(dir, "subpaths")+"/") {
			return fmt.Errorf("%s is a mount point", at)
		}
		if err := unmount(at); err != nil {
			return err
		}
	}
	if below, err = mountsBelow(dir); err == nil && len(below) > 0 {
		err = fmt.Errorf("%s is a mount point still", below[0])
	}
	return err
}
