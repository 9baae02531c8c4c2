// Package realserver runs an unmodified kube-apiserver with etcd, and on demand
// kube-controller-manager, on loopback. The conformance tests run against it and against our own
// server; the benchmarks compare with it.
//
// Find returns the binaries of an envtest installation if there is one; otherwise it builds them
// once from the module in bench/kubernetes into the user's cache. Start starts etcd and
// kube-apiserver in a new directory, with their own keys and certificates; Stop ends these
// processes, by pid.
package realserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Binary names one program.
type Binary string

// The programs that can be run.
const (
	Etcd              Binary = "etcd"
	APIServer         Binary = "kube-apiserver"
	ControllerManager Binary = "kube-controller-manager"
)

// mainPackage returns the package that a program is built from.
func (b Binary) mainPackage() string {
	if b == Etcd {
		return "go.etcd.io/etcd/server/v3"
	}
	return "k8s.io/kubernetes/cmd/" + string(b)
}

// Binaries are the paths of programs.
type Binaries map[Binary]string

// assetsVariable names a directory with ready binaries, as for envtest.
const assetsVariable = "KUBEBUILDER_ASSETS"

// Find returns the paths of the programs. It takes them from the directory in KUBEBUILDER_ASSETS or
// from the cache, and builds missing ones from module, the directory of bench/kubernetes; the
// builds' output goes to progress.
func Find(ctx context.Context, module string, progress io.Writer, wanted ...Binary) (Binaries, error) {
	w := builder{module: module, progress: progress}
	var err error
	if w.version, err = versionOf(ctx, module, "k8s.io/kubernetes"); err != nil {
		return nil, err
	}
	cache, err := cacheDir(w.version)
	if err != nil {
		return nil, err
	}
	found := Binaries{}
	for _, name := range wanted {
		if assets := os.Getenv(assetsVariable); assets != "" {
			if path := filepath.Join(assets, string(name)); exists(path) {
				found[name] = path
				continue
			}
		}
		path := filepath.Join(cache, string(name))
		if !exists(path) {
			if err := w.build(ctx, name, path); err != nil {
				return nil, err
			}
		}
		found[name] = path
	}
	return found, nil
}

// Versions returns the versions of the programs that module requires.
func Versions(ctx context.Context, module string) (string, error) {
	kubernetes, err := versionOf(ctx, module, "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	etcd, err := versionOf(ctx, module, "go.etcd.io/etcd/server/v3")
	return "Kubernetes " + kubernetes + ", etcd " + etcd, err
}

// versionOf returns the version at which module requires another module.
func versionOf(ctx context.Context, module, required string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", required)
	list.Dir = module
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for the version of %s: %w", module, required, explained(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// cacheDir returns the directory that keeps built programs.
func cacheDir(version string) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache: %w", err)
	}
	return filepath.Join(user, "coppice", "kubernetes-"+version), nil
}

// builder builds programs from a module.
type builder struct {
	module, version string
	progress        io.Writer
}

// build builds one program. The file appears at its path only when it is complete.
func (w builder) build(ctx context.Context, name Binary, path string) error {
	fmt.Fprintf(w.progress, "building %s for kubernetes %s; this takes minutes, once\n", name, w.version)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	partial := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer func() { _ = os.Remove(partial) }() // already renamed if all went well
	stamp := "-s -w -X k8s.io/component-base/version.gitVersion=" + w.version
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", stamp, "-o", partial, name.mainPackage())
	command.Dir = w.module
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	command.Stdout, command.Stderr = w.progress, w.progress
	if err := command.Run(); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// explained adds a command's stderr to its error.
func explained(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
