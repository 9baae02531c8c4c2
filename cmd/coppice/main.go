// Command coppice is garbage collection for Kubernetes-style APIs. See coppice --help.
//
// What there is one of in a process, such as the settings of the Go runtime (runtime.go), is
// set here and nowhere else: the packages below are also run in the processes of others, and
// of tests.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/cli"
)

func main() {
	if err := apiserver.SetFeatureGates(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if runsControlPlane(os.Args[1:]) {
		tuneRuntime()
	}
	os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// runsControlPlane reports whether the command runs until it is stopped and serves requests
// meanwhile. The root command has no flags, so a command is always the first argument.
func runsControlPlane(args []string) bool { return len(args) > 0 && args[0] == "up" }
