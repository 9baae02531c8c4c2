// Command coppice is garbage collection for Kubernetes-style APIs. See coppice --help. Under the name
// kube-apiserver, etcd or kubectl it acts as that program; see coppice assets --help. Under the name
// kubectl-coppice it is a plugin of kubectl.
//
// Only this package changes process-wide settings, such as the Go runtime's (runtime.go): the
// packages below also run in other programs and in tests.
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
	nameVersion()
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
	case len(args) > 0 && args[0] == "collect":
		keepCompact()
	case readsCluster(args):
		keepFrugal()
	}
	os.Exit(cli.RunNamed(ctx, os.Args[0], args, streams))
}

// catchesSignals reports whether the command handles SIGTERM and Ctrl-C, and cleans up before it ends. All commands that
// write to a server or to a file do: each completes its current write, and reports its writes.
func catchesSignals(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{
		"up", "collect", "node", "demo", "web", "conformance", "snapshot", "wait", "preview", "delete", "undo", "protect", "unprotect", "audit",
	}, args[0])
}

// runsControlPlane reports whether the command serves requests until it is stopped. The root
// command has no flags, so the first argument is always a command.
func runsControlPlane(args []string) bool { return len(args) > 0 && args[0] == "up" }

// readsCluster reports whether the command ends by itself and may read all objects of a cluster.
func readsCluster(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{"preview", "delete", "wait", "explain", "audit", "graph"}, args[0])
}
