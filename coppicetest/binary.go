package coppicetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The environment variables that name the binary or its directory.
const (
	binaryVariable = "COPPICE_BIN"
	assetsVariable = "KUBEBUILDER_ASSETS"
)

// binaryName is the name of the binary. Under other names it may have other roles.
const binaryName = "coppice"

// Binary returns the path of the binary that Start and Attach run. It is the first of: the value of
// $COPPICE_BIN; coppice, or a kube-apiserver that is coppice, in $KUBEBUILDER_ASSETS; coppice in
// PATH; the module's tool coppice, built by go tool.
func Binary(ctx context.Context) (string, error) {
	return lookup{getenv: os.Getenv, inPath: exec.LookPath, tool: goTool, isCoppice: isCoppice}.find(ctx)
}

// lookup holds the places that are searched for the binary.
type lookup struct {
	getenv    func(string) string
	inPath    func(string) (string, error)
	tool      func(context.Context) (string, error)
	isCoppice func(context.Context, string) bool
}

func (l lookup) find(ctx context.Context) (string, error) {
	if path := l.getenv(binaryVariable); path != "" {
		if !isFile(path) {
			return "", fmt.Errorf("$%s is %s, which is not a file", binaryVariable, path)
		}
		return path, nil
	}
	if dir := l.getenv(assetsVariable); dir != "" {
		if path := filepath.Join(dir, binaryName); isFile(path) {
			return path, nil
		}
		if path := filepath.Join(dir, "kube-apiserver"); isFile(path) && l.isCoppice(ctx, path) {
			return path, nil
		}
	}
	if path, err := l.inPath(binaryName); err == nil {
		return path, nil
	}
	path, err := l.tool(ctx)
	if err == nil {
		return path, nil
	}
	return "", fmt.Errorf("no binary of coppice found: $%s is not set, $%s has none, it is not in PATH, and %w\n%s",
		binaryVariable, assetsVariable, err, howToGet)
}

// howToGet explains how to get a missing binary.
const howToGet = "Get it with one of\n" +
	"  go install github.com/coppice-dev/coppice/cmd/coppice@latest   # into PATH\n" +
	"  go get -tool github.com/coppice-dev/coppice/cmd/coppice        # in a module of its own: it raises versions of k8s.io\n" +
	"(both need a release), or build one in a checkout with make build, and name it with COPPICE_BIN=/path/to/coppice"

// goTool returns the binary that go tool coppice runs. It builds it if need be.
func goTool(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "tool", "-n", binaryName).Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			return "", fmt.Errorf("go tool coppice says: %s", strings.TrimSpace(string(failed.Stderr)))
		}
		return "", fmt.Errorf("go tool coppice cannot be run: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// isCoppice reports whether a file is coppice under another name. Called by its own name, coppice
// has its own commands.
func isCoppice(ctx context.Context, path string) bool {
	version := exec.CommandContext(ctx, path, "version")
	version.Args[0] = binaryName
	out, err := version.Output()
	return err == nil && strings.HasPrefix(string(out), binaryName+" ")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}
