package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// The layout of a data directory.
const (
	lockFile       = "lock"
	holderFile     = "holder.json"
	etcdDir        = "etcd"
	pkiDir         = "pki"
	kubeconfigFile = "kubeconfig"
)

// KubeconfigPath returns the path of the administrator's kubeconfig for a control plane on dir.
func KubeconfigPath(dir string) string { return filepath.Join(dir, kubeconfigFile) }

// holder is the process that has locked a data directory. It is for error messages only: the lock itself is
// authoritative.
type holder struct {
	PID     int       `json:"pid"`
	Server  string    `json:"server,omitempty"`
	Started time.Time `json:"started"`
}

func (h holder) String() string {
	s := fmt.Sprintf("process %d", h.PID)
	if h.Server != "" {
		s += ", which serves " + h.Server
	}
	if !h.Started.IsZero() {
		s += " since " + h.Started.Format(time.RFC3339)
	}
	return s
}

// dataDir is a data directory that this process has locked. The lock ends with the process, even if it is
// killed.
type dataDir struct {
	path string
	lock *fileutil.LockedFile
}

// lockDir locks the directory, and creates it if necessary. If another process has locked it, the error
// names that process.
func lockDir(path string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := fileutil.TryLockFile(filepath.Join(path, lockFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("data directory %s %w by %s; stop it, or choose another with --data-dir", path, inUse{}, currentHolder(path))
	}
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	return &dataDir{path: path, lock: lock}, nil
}

// inUse is fileutil.ErrLocked with a message for users.
type inUse struct{}

func (inUse) Error() string { return "is in use" }
func (inUse) Unwrap() error { return fileutil.ErrLocked }

func currentHolder(path string) string {
	data, err := os.ReadFile(filepath.Join(path, holderFile))
	if err != nil {
		return "another process"
	}
	var h holder
	if err := json.Unmarshal(data, &h); err != nil {
		return "another process"
	}
	return h.String()
}

// sign writes the holder to the directory.
func (d *dataDir) sign(h holder) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return writePrivate(filepath.Join(d.path, holderFile), data)
}

// unlock unlocks the directory. It keeps the lock file: removing it would race with another process that is
// about to lock it.
func (d *dataDir) unlock() {
	_ = os.Remove(filepath.Join(d.path, holderFile))
	_ = d.lock.Close()
}

func (d *dataDir) join(name string) string { return filepath.Join(d.path, name) }
