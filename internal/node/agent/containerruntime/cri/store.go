package cri

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// mostMessage is the maximum number of bytes that are read of a termination message.
const mostMessage = 4096

// store is an agent's directory, which only the agent's user may read:
//
//	agent-id                              identifies the agent's sandboxes and containers
//	images                                the pulled images, and who may use them (imagerecords.go)
//	pods/UID/logs/CONTAINER/ATTEMPT.log   written by the runtime, and ATTEMPT.log.TIME before
//	pods/UID/ended/CONTAINER/ATTEMPT      termination messages, written by the container
//	pods/UID/etc-hosts                    the hosts file of its containers
//	pods/UID/subpaths/CONTAINER/INDEX     mounts of parts of volumes
//	pods/UID/volumes/NAME                 volumes
//	seccomp                               the administrator's seccomp profiles
type store struct {
	dir string
	id  string
}

// openStore opens the directory and creates it if necessary.
func openStore(dir string) (*store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &store{dir: dir}
	for _, part := range []string{filepath.Join(dir, "pods"), s.profiles()} {
		if err := os.MkdirAll(part, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of the node agent: %w", err)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("protect the directory of the node agent: %w", err)
	}
	path := filepath.Join(dir, "agent-id")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		text = []byte(uuid.NewUUID())
		err = writeWhole(path, text)
	}
	if err != nil {
		return nil, fmt.Errorf("read the ID of the node agent: %w", err)
	}
	s.id = strings.TrimSpace(string(text))
	return s, nil
}

// writeWhole writes a file atomically.
func writeWhole(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// labels returns the labels of everything that this agent creates.
func (s *store) labels() map[string]string { return map[string]string{labelAgent: s.id} }

// images returns the directory of the records of pulled images.
func (s *store) images() string { return filepath.Join(s.dir, "images") }

// profiles returns the directory of the seccomp profiles that pods may name.
func (s *store) profiles() string { return filepath.Join(s.dir, "seccomp") }

// pod returns the directory of a pod. A UID must not lead out of the store.
func (s *store) pod(uid types.UID) string {
	return filepath.Join(s.dir, "pods", filepath.Base(string(uid)))
}

func (s *store) logs(uid types.UID) string { return filepath.Join(s.pod(uid), "logs") }

// logPath returns the path of a container's log, relative to logs.
func logPath(container string, attempt int32) string {
	return filepath.Join(container, strconv.Itoa(int(attempt))+".log")
}

func (s *store) log(uid types.UID, container string, attempt int32) string {
	return filepath.Join(s.logs(uid), logPath(container, attempt))
}

func (s *store) volumes(uid types.UID) string { return filepath.Join(s.pod(uid), "volumes") }

func (s *store) volume(uid types.UID, name string) string { return filepath.Join(s.volumes(uid), name) }

func (s *store) message(uid types.UID, container string, attempt int32) string {
	return filepath.Join(s.pod(uid), "ended", container, strconv.Itoa(int(attempt)))
}

// makeMessage creates the file for the termination message of a container.
func (s *store) makeMessage(uid types.UID, container string, attempt int32) (string, error) {
	path := s.message(uid, container, attempt)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	if err := missingIsFine(os.Remove(path)); err != nil { // of an instance that did not start
		return "", err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	// The container may run as any user. Other users cannot access the directories above.
	return path, os.Chmod(path, 0o666)
}

// readMessage returns the end of the termination message of an instance, or "" if it has none.
func (s *store) readMessage(uid types.UID, container string, attempt int32) string {
	file, err := openRegular(s.message(uid, container, attempt), os.O_RDONLY)
	if err != nil {
		return ""
	}
	defer file.Close()
	if size, err := file.Seek(0, io.SeekEnd); err != nil {
		return ""
	} else if _, err := file.Seek(max(0, size-mostMessage), io.SeekStart); err != nil {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(file, mostMessage))
	if err != nil {
		return ""
	}
	return string(text)
}

// removeLog removes the log and the termination message of an instance.
func (s *store) removeLog(uid types.UID, container string, attempt int32) error {
	return errors.Join(removeOldest(s.log(uid, container, attempt), 0), missingIsFine(os.Remove(s.log(uid, container, attempt))), missingIsFine(os.Remove(s.message(uid, container, attempt))))
}

func missingIsFine(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// known returns the pods that have a directory.
func (s *store) known() []types.UID {
	entries, err := os.ReadDir(filepath.Join(s.dir, "pods"))
	if err != nil {
		return nil
	}
	uids := make([]types.UID, 0, len(entries))
	for _, e := range entries {
		uids = append(uids, types.UID(e.Name()))
	}
	return uids
}

// hasVolumes reports whether a pod has volumes, or mounts of parts of them.
func (s *store) hasVolumes(uid types.UID) bool {
	for _, dir := range []string{s.volumes(uid), s.subpaths(uid)} {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// removeVolumes removes the volumes of a pod. Its logs and termination messages stay.
func (s *store) removeVolumes(uid types.UID) error {
	if err := s.unbind(uid); err != nil {
		return err
	}
	return errors.Join(removeTree(s.subpaths(uid)), removeTree(s.volumes(uid)))
}

func (s *store) remove(uid types.UID) error {
	if uid == "" {
		return nil
	}
	if err := s.unbind(uid); err != nil {
		return err
	}
	return removeTree(s.pod(uid))
}
