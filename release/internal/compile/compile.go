// Package compile builds programs for the platforms of a release.
package compile

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/coppice-dev/coppice/release/internal/target"
)

// Program is a program to build.
type Program struct {
	Module  string // the directory of its module
	Package string
	Flags   string // of the linker
}

// Build builds a program for a platform. The result depends only on the source and the version of
// Go, not on the directory, the state of the working copy or a C compiler.
func (p Program) Build(ctx context.Context, t target.Target, output string) error {
	output, err := filepath.Abs(output)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= "+p.Flags,
		"-o", output, p.Package)
	command.Dir = p.Module
	// GOFLAGS and the levels of instruction sets would change the result.
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.OS, "GOARCH="+t.Arch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFLAGS=")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s: %w\n%s", p.Package, t, err, out)
	}
	return nil
}
