// Command coppice is garbage collection for Kubernetes-style APIs. See coppice --help. Called
// kube-apiserver, etcd or kubectl, it is that; see coppice assets --help. Called kubectl-coppice, it is
// a plugin of kubectl.
//
// Process-wide settings, such as those of the Go runtime (runtime.go), are made here and nowhere
// else: the packages below also run in the processes of others, and of tests.
package main

import (
	"context"
	"os"
	"slices"

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
	switch {
	case runsControlPlane(args):
		tuneRuntime()
	case readsCluster(args):
		keepFrugal()
	}
	os.Exit(cli.RunNamed(context.Background(), os.Args[0], args, streams))
}

// runsControlPlane reports whether the command runs until it is stopped and serves requests
// meanwhile. The root command has no flags, so the first argument is always a command.
func runsControlPlane(args []string) bool { return len(args) > 0 && args[0] == "up" }

// readsCluster reports whether the command may read all objects of a cluster, and ends.
func readsCluster(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{"preview", "delete", "explain", "audit", "graph"}, args[0])
}
