package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// dataDirVariable is the environment variable that names the data directory for all commands.
const dataDirVariable = "COPPICE_DATA_DIR"

const upLong = `Runs a control plane in this process: API server, embedded etcd, garbage collector,
namespace controller, the controllers of workloads, scheduler and simulated nodes. When it
is ready it prints the path of its kubeconfig, and a line that begins with "ready". Ctrl-C
stops it; its data stays, unless --ephemeral.

--controllers names the controllers of this process. workloads are the controllers of
Deployments, Jobs and the like. The server expects that gc and namespace run, here or by
"coppice collect". With --enable-garbage-collector=false it expects no garbage collector:
deletions do not cascade, and add no finalizers for a collector.

--disable-admission-plugins takes ` + system.OwnerReferencesPlugin + `, which
refuses owner references that are invalid or need a right that the user lacks, and
` + system.ServiceAccountPlugin + `, which refuses pods whose service account does not exist, and mounts a token
into others.

--advertise-address is the address in the endpoints of the service default/kubernetes. The
default is --bind-address, or the address of the machine's default route if that is loopback
or 0.0.0.0.

--etcd-servers names an etcd cluster, which several control planes may share; they need the
same --pki-dir. If the etcd in this process reaches --quota-backend-bytes, it refuses writes
until objects are deleted.

--node-runtime=simulated runs no containers: pods start, run and end as they would with
containers. --node-runtime=cri uses a container runtime on this machine, which usually needs
root; --nodes is 1, this machine, or 0.

--protect=RESOURCE=MODE protects all objects of a resource that have no mode of their own, as
"coppice protect" protects single ones, while the server runs with the flag: always, cascading
or unused (docs/protect.md). "coppice unprotect" lifts the default from single objects.

--recycle=SIZE,AGE keeps deleted objects, encrypted in the data directory, for "coppice undo".

--confirm-deletions refuses a DELETE of which more objects would go, or objects of certain
kinds, unless a user with the right "confirm" has confirmed its preview by "coppice delete
--confirm" (docs/protect.md). controllers= names further users without limits.

--faults is for tests of clients: watches are behind, and end; writes are refused, or lose
their answers, as a highly available kube-apiserver may do it (docs/faults.md).

--movable-node-clock is for tests: administrators can move the clock of simulated nodes
forward, with POST /coppice/nodes/clock?advance=30s.`

func newUp(s Streams) *cobra.Command {
	var f upFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Run a control plane in this process",
		Long:  upLong,
		Example: `  # On port 6443 of loopback, data in ` + "`~/.local/share/coppice`" + `
  coppice up

  # For a test: a free port, a temporary data directory, and a kubeconfig with a given path
  coppice up --ephemeral --secure-port 0 --write-kubeconfig /tmp/kubeconfig

  # Large deletions, and those of namespaces and of volume claims, only as previewed
  coppice up --confirm-deletions 'more-than=50; kinds=namespaces,persistentvolumeclaims'

  # No CustomResourceDefinition is deleted while it has instances, and no namespace with contents
  coppice up --protect customresourcedefinitions=unused,namespaces=unused

  # With real containers, on this machine
  coppice up --node-runtime cri --cri-socket unix:///run/containerd/containerd.sock`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			f.audit.isSet = c.Flags().Changed("audit-log-path")
			return up(c.Context(), f, s)
		},
	}
	f.add(c)
	return c
}

func up(ctx context.Context, f upFlags, s Streams) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := f.input.follow(ctx, s.In)
	defer cancel()
	options, err := f.options(ctx, s.Err)
	if err != nil {
		return err
	}
	return system.Run(ctx, options, func(p system.Plane) {
		terminal.Fprintf(s.Out, "export KUBECONFIG=%s\n", escape.Shell(p.Kubeconfig))
		terminal.Fprintf(s.Out, "ready %s in %.2fs\n", p.Server, p.Started.Seconds())
	})
}

// dataDir returns the default data directory.
func dataDir() (string, error) {
	if dir := os.Getenv(dataDirVariable); dir != "" {
		return dir, nil
	}
	return system.DefaultDataDir()
}
