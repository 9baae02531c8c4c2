// Package realserver runs an unmodified kube-apiserver with etcd, and on demand
// kube-controller-manager, on loopback: what the conformance tests run against
// besides our own server, and what benchmarks compare with.
//
// Find gives the binaries: those of an envtest installation if there is one, else it
// builds them from the module in bench/kubernetes, once, into the user's cache.
// Start starts etcd and kube-apiserver in a directory of their own, with keys
// that live as long as they do; Stop ends what was started, by pid.
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

// What can be run.
const (
	Etcd              Binary = "etcd"
	APIServer         Binary = "kube-apiserver"
	ControllerManager Binary = "kube-controller-manager"
)

// packages are where the programs are built from.
var packages = map[Binary]string{
	Etcd:              "go.etcd.io/etcd/server/v3",
	APIServer:         "k8s.io/kubernetes/cmd/kube-apiserver",
	ControllerManager: "k8s.io/kubernetes/cmd/kube-controller-manager",
}

// Binaries is where programs are.
type Binaries map[Binary]string

// assetsVariable names a directory with ready binaries, as for envtest.
const assetsVariable = "KUBEBUILDER_ASSETS"

// Find returns where the programs are. Those that are neither in the directory
// that KUBEBUILDER_ASSETS names nor in the cache are built from module, the
// directory of bench/kubernetes; the builds' output goes to progress.
func Find(ctx context.Context, module string, progress io.Writer, wanted ...Binary) (Binaries, error) {
	w := workshop{module: module, progress: progress}
	var err error
	if w.version, err = kubernetesVersion(ctx, module); err != nil {
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

// kubernetesVersion is the version of k8s.io/kubernetes that module requires.
func kubernetesVersion(ctx context.Context, module string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	list.Dir = module
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for the version of k8s.io/kubernetes: %w", module, explained(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// cacheDir is where built programs are kept.
func cacheDir(version string) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache: %w", err)
	}
	return filepath.Join(user, "coppice", "kubernetes-"+version), nil
}

// workshop is where programs are built.
type workshop struct {
	module, version string
	progress        io.Writer
}

// build builds one program. It appears under its path when it is complete.
func (w workshop) build(ctx context.Context, name Binary, path string) error {
	fmt.Fprintf(w.progress, "building %s for kubernetes %s; this takes minutes, once\n", name, w.version)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	partial := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer func() { _ = os.Remove(partial) }() // not there any more when all went well
	stamp := "-s -w -X k8s.io/component-base/version.gitVersion=" + w.version
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", stamp, "-o", partial, packages[name])
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

// explained adds what a command said on stderr.
func explained(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
