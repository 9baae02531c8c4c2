// Command coppice is garbage collection for Kubernetes-style APIs. See coppice --help. Called
// kube-apiserver, etcd or kubectl, it is that; see coppice assets --help.
//
// Process-wide settings, such as those of the Go runtime (runtime.go), are made here and nowhere
// else: the packages below also run in the processes of others, and of tests.
package main

import (
	"context"
	"os"

	"github.com/coppice-dev/coppice/internal/assets/role"
	"github.com/coppice-dev/coppice/internal/cli"
	_ "github.com/coppice-dev/coppice/internal/cli/translations"
)

func main() {
	args, streams := os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	if r := role.Of(os.Args[0]); r != role.None {
		if r != role.Kubectl {
			keepSmall(r)
		}
		os.Exit(cli.RunAs(context.Background(), r, args, streams))
	}
	if runsControlPlane(args) {
		tuneRuntime()
	}
	os.Exit(cli.Run(context.Background(), args, streams))
}

// runsControlPlane reports whether the command runs until it is stopped and serves requests
// meanwhile. The root command has no flags, so the first argument is always a command.
func runsControlPlane(args []string) bool { return len(args) > 0 && args[0] == "up" }
