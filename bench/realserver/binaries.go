// Package realserver runs an unmodified kube-apiserver with etcd, and on demand
// kube-controller-manager, kube-scheduler and kwok, on loopback. The conformance tests run against it
// and against our own server; the benchmarks compare with it.
//
// Find returns the binaries of an envtest installation if there is one; otherwise it builds them
// once from the modules in bench/kubernetes and bench/kwok into the user's cache. It builds nothing
// that the caller does not want. Start starts etcd and kube-apiserver in a new directory, with their
// own keys and certificates; Stop ends these processes, by pid.
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
	Scheduler         Binary = "kube-scheduler"
	Kwok              Binary = "kwok"
)

// origin tells where a program comes from.
type origin struct {
	product  string // as a reader knows it
	module   string // the nested module that the program is built from, bench/kubernetes or bench/kwok
	upstream string // the module that has the program, and whose version is the program's
	command  string // the package of the program
}

// origin returns where the program comes from. kwok has a module of its own, since it requires other versions of
// Kubernetes' libraries.
func (b Binary) origin() origin {
	switch b {
	case Etcd:
		return origin{"etcd", "kubernetes", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"}
	case Kwok:
		return origin{"kwok", "kwok", "sigs.k8s.io/kwok", "sigs.k8s.io/kwok/cmd/kwok"}
	default:
		return origin{"Kubernetes", "kubernetes", "k8s.io/kubernetes", "k8s.io/kubernetes/cmd/" + string(b)}
	}
}

// version returns the version at which the nested module below the directory modules requires the program.
func (o origin) version(ctx context.Context, modules string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", o.upstream)
	list.Dir = filepath.Join(modules, o.module)
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for the version of %s: %w", list.Dir, o.upstream, explained(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// Binaries are the paths of programs.
type Binaries map[Binary]string

// assetsVariable names a directory with ready binaries, as for envtest.
const assetsVariable = "KUBEBUILDER_ASSETS"

// Find returns the paths of the programs. It takes them from the directory in KUBEBUILDER_ASSETS or
// from the cache, and builds missing ones from the nested modules below the directory modules; the builds'
// output goes to progress.
func Find(ctx context.Context, modules string, progress io.Writer, wanted ...Binary) (Binaries, error) {
	found := Binaries{}
	for _, name := range wanted {
		if assets := os.Getenv(assetsVariable); assets != "" {
			if path := filepath.Join(assets, string(name)); exists(path) {
				found[name] = path
				continue
			}
		}
		path, err := build(ctx, modules, progress, name)
		if err != nil {
			return nil, err
		}
		found[name] = path
	}
	return found, nil
}

// Versions returns the versions of programs, such as "Kubernetes v1.37.2, etcd v3.7.0", as the nested modules below the
// directory modules require them.
func Versions(ctx context.Context, modules string, programs ...Binary) (string, error) {
	var all []string
	for _, name := range programs {
		version, err := name.origin().version(ctx, modules)
		if err != nil {
			return "", err
		}
		all = append(all, name.origin().product+" "+version)
	}
	return strings.Join(all, ", "), nil
}

// build returns the path of a program in the cache, and builds the program if it is not there.
func build(ctx context.Context, modules string, progress io.Writer, name Binary) (string, error) {
	from := name.origin()
	version, err := from.version(ctx, modules)
	if err != nil {
		return "", err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache: %w", err)
	}
	path := filepath.Join(user, "coppice", strings.ToLower(from.product)+"-"+version, string(name))
	if exists(path) {
		return path, nil
	}
	fmt.Fprintf(progress, "building %s (%s %s); this takes minutes, once\n", name, from.product, version)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make the cache: %w", err)
	}
	// The file appears at its path only when it is complete.
	partial := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer func() { _ = os.Remove(partial) }() // already renamed if all went well
	stamp := "-s -w -X k8s.io/component-base/version.gitVersion=" + version
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", stamp, "-o", partial, from.command)
	command.Dir = filepath.Join(modules, from.module)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	command.Stdout, command.Stderr = progress, progress
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	if err := os.Rename(partial, path); err != nil {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	return path, nil
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
