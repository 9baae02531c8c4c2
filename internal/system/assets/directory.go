// Package assets provides the binaries with which test frameworks start a control plane: a directory with
// kube-apiserver, etcd and kubectl, all of which are this binary ([Make]), and the code that they run.
//
// Package role derives the role of a process from its name. As kube-apiserver, it runs with the options
// from its flags ([ParseAPIServer]), and with the settings in the files beside it ([SettingsBeside]); as
// etcd, it runs etcd ([RunEtcd]). Both end when their parent does ([ParentEnded]), and then remove files
// that a killed test could not remove ([RemoveLeftovers]).
package assets

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/coppice-dev/coppice/internal/system/assets/role"
)

// The files in the directory besides the binaries.
const (
	// markerFile contains the hash of the binary from which the directory was made.
	markerFile = ".coppice"
	// The settings, each in a file unless it is the default. Test frameworks pass the directory on, but not
	// always the environment.
	controllersFile = "coppice-controllers"
	kubernetesFile  = "coppice-kubernetes"
)

// Settings are the settings of a directory, for its kube-apiserver. A flag or a variable of the environment
// counts more.
type Settings struct {
	// Controllers are the controllers that run, separated by commas; the default ones if empty.
	Controllers string
	// Kubernetes is the minor of Kubernetes whose API is served, such as "1.35"; the minor of the libraries if empty.
	Kubernetes string
}

// byFile returns the settings by the names of their files.
func (s *Settings) byFile() map[string]*string {
	return map[string]*string{controllersFile: &s.Controllers, kubernetesFile: &s.Kubernetes}
}

// Collecting are the controllers that delete owned objects and the contents of namespaces.
const Collecting = controllerGC + "," + controllerNamespace

// Make creates the directory of the assets of a binary, unless it exists already, and returns its path. If
// dir is empty, the directory is in the user's cache, and its name depends on the contents of the binary
// and on the settings. Any number of processes may call Make at the same time.
func Make(dir, binary string, settings Settings) (string, error) {
	binary, err := filepath.EvalSymlinks(binary)
	if err != nil {
		return "", fmt.Errorf("find the binary: %w", err)
	}
	hash, err := hashOf(binary)
	if err != nil {
		return "", fmt.Errorf("read the binary: %w", err)
	}
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache directory for the assets; name a directory with --dir: %w", err)
		}
		dir = filepath.Join(cache, "coppice", "assets", hash[:16])
		for _, setting := range []string{settings.Controllers, settings.Kubernetes} {
			if setting != "" {
				dir += "-" + strings.ReplaceAll(setting, ",", "-")
			}
		}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("find the directory of the assets: %w", err)
	}
	if !isMade(dir, binary, hash) {
		err = fill(dir, binary, hash)
	}
	if err == nil {
		err = write(dir, settings)
	}
	if err != nil {
		return "", fmt.Errorf("make the assets: %w; name another directory with --dir", err)
	}
	return dir, nil
}

// write writes the files of the settings, and removes those of settings that are the default.
func write(dir string, settings Settings) error {
	var failed error
	for name, value := range settings.byFile() {
		failed = errors.Join(failed, writeSetting(filepath.Join(dir, name), *value))
	}
	return failed
}

func writeSetting(path, value string) error {
	if value == "" {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if stored, err := os.ReadFile(path); err == nil && string(stored) == value+"\n" {
		return nil
	}
	written, err := os.CreateTemp(filepath.Dir(path), ".setting-*")
	if err != nil {
		return err
	}
	_, err = written.WriteString(value + "\n")
	if err = errors.Join(err, written.Chmod(0o644), written.Close()); err == nil {
		err = os.Rename(written.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(written.Name()))
	}
	return nil
}

// SettingsBeside returns the settings in the files beside the program with this path.
func SettingsBeside(program string) (Settings, error) {
	var settings Settings
	path, err := exec.LookPath(program)
	if err != nil {
		return settings, nil //nolint:nilerr // the program was started in a way that does not show its directory
	}
	for name, value := range settings.byFile() {
		file := filepath.Join(filepath.Dir(path), name)
		stored, err := os.ReadFile(file)
		switch *value = strings.TrimSpace(string(stored)); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return settings, fmt.Errorf("read a setting of the assets: %w", err)
		case *value == "":
			return settings, fmt.Errorf("%s is empty: make the assets anew with coppice assets, or remove it", file)
		}
	}
	return settings, nil
}

func hashOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// isMade reports whether the directory was made from this binary, and is complete.
func isMade(dir, binary, hash string) bool {
	marker, err := os.ReadFile(filepath.Join(dir, markerFile))
	if err != nil || string(marker) != hash {
		return false
	}
	source, err := os.Stat(binary)
	if err != nil {
		return false
	}
	for _, r := range role.All() {
		asset, err := os.Stat(pathOf(dir, r))
		if err != nil || asset.Size() != source.Size() {
			return false
		}
	}
	return true
}

func pathOf(dir string, r role.Role) string {
	name := string(r)
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(dir, name)
}

// fill creates the files, each under a temporary name first, so that no process sees a partial file. The
// marker is the last.
func fill(dir, binary, hash string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(dir, ".making-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for _, r := range role.All() {
		made := filepath.Join(work, string(r))
		if err := provide(binary, made); err != nil {
			return err
		}
		if err := os.Rename(made, pathOf(dir, r)); err != nil {
			return err
		}
	}
	marker := filepath.Join(work, markerFile)
	if err := os.WriteFile(marker, []byte(hash), 0o644); err != nil {
		return err
	}
	return os.Rename(marker, filepath.Join(dir, markerFile))
}

// provide makes the binary available at another path: as a hard link, as a symbolic link to a binary that
// is not temporary, or as a copy.
func provide(binary, path string) error {
	if runtime.GOOS != "windows" {
		if os.Link(binary, path) == nil {
			return nil
		}
		if !isTemporary(binary) && os.Symlink(binary, path) == nil {
			return nil
		}
	}
	return copyFile(binary, path)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// isTemporary reports whether a path is in the directory of temporary files.
func isTemporary(path string) bool {
	temporary, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return false
	}
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	within, err := filepath.Rel(temporary, path)
	return err == nil && within != "." && filepath.IsLocal(within)
}

// frameworkPrefix is the prefix of the temporary directories of controller-runtime's envtest.
const frameworkPrefix = "k8s_test_framework_"

// RemoveLeftovers removes a directory that a killed test framework has created for this run: one of
// envtest's temporary directories, or a temporary one that was empty before this process used it. It keeps
// all others.
func RemoveLeftovers(dir string, wasEmpty bool) { //nolint:revive // a fact, not a choice of what to do
	if dir == "" || !isTemporary(dir) || !wasEmpty && !strings.HasPrefix(filepath.Base(dir), frameworkPrefix) {
		return
	}
	// After the rename, a process that still writes there must not recreate the directory.
	gone := dir + ".gone"
	if os.Rename(dir, gone) != nil {
		gone = dir
	}
	_ = os.RemoveAll(gone)
}

// IsEmpty reports whether a directory has no entries, or does not exist.
func IsEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0
}
