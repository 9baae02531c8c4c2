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

	"github.com/coppice-dev/coppice/cmd/coppice/earlysignal"
	"github.com/coppice-dev/coppice/internal/cli"
	_ "github.com/coppice-dev/coppice/internal/cli/translations"
	"github.com/coppice-dev/coppice/internal/system/assets/role"
)

func main() {
	args, streams := os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	r := role.Of(os.Args[0])
	ctx := context.Background()
	if r == role.APIServer || r == role.None && catchesSignals(args) {
		ctx = earlysignal.Context()
	} else if earlysignal.Release() {
		os.Exit(cli.ExitFailed)
	}
	if r != role.None {
		if r != role.Kubectl {
			keepSmall(r)
		}
		os.Exit(cli.RunAs(ctx, r, args, streams))
	}
	switch {
	case runsControlPlane(args):
		tuneRuntime()
	case readsCluster(args):
		keepFrugal()
	}
	os.Exit(cli.RunNamed(ctx, os.Args[0], args, streams))
}

// catchesSignals reports whether the command ends by itself when it gets SIGTERM or Ctrl-C, and leaves nothing behind.
func catchesSignals(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{"up", "collect", "node", "demo", "web", "conformance", "snapshot"}, args[0])
}

// runsControlPlane reports whether the command runs until it is stopped and serves requests
// meanwhile. The root command has no flags, so the first argument is always a command.
func runsControlPlane(args []string) bool { return len(args) > 0 && args[0] == "up" }

// readsCluster reports whether the command may read all objects of a cluster, and ends.
func readsCluster(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{"preview", "delete", "explain", "audit", "graph"}, args[0])
}
