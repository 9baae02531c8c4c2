package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// release is a release of Kubernetes.
type release struct {
	version     string
	directories map[string]string // of its modules, by their paths
}

// file returns the path of a file in a module.
func (r release) file(module string, path ...string) string {
	return filepath.Join(append([]string{r.directories[module]}, path...)...)
}

// kubernetes is the module that has the generated documents, library the one that has the types.
const (
	kubernetes = "k8s.io/kubernetes"
	library    = "k8s.io/api"
)

// download returns a release, whose modules are downloaded unless they were before.
func download(ctx context.Context, version string) (release, error) {
	// The libraries of Kubernetes 1.37.2 have the version 0.37.2.
	of := "@v0" + strings.TrimPrefix(version, "v1")
	wanted := []string{kubernetes + "@" + version, library + of}
	for _, c := range counterparts() {
		if module := c.module + of; c.module != kubernetes && !slices.Contains(wanted, module) {
			wanted = append(wanted, module)
		}
	}
	// Outside of any module, the versions of this one have no say.
	directory, err := os.MkdirTemp("", "coppice-upgrade-")
	if err != nil {
		return release{}, err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	command := exec.CommandContext(ctx, "go", append([]string{"mod", "download", "-json"}, wanted...)...)
	command.Dir, command.Stderr = directory, os.Stderr
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GO111MODULE=on")
	output, err := command.Output()
	r := release{version, map[string]string{}}
	for decoder := json.NewDecoder(bytes.NewReader(output)); decoder.More(); {
		var module struct{ Path, Dir, Error string }
		if err := decoder.Decode(&module); err != nil {
			return release{}, fmt.Errorf("%v: %w", command.Args, err)
		}
		if module.Error != "" {
			return release{}, fmt.Errorf("download %s: %s", module.Path, module.Error)
		}
		r.directories[module.Path] = module.Dir
	}
	if err != nil {
		return release{}, fmt.Errorf("%v: %w", command.Args, err)
	}
	return r, nil
}
