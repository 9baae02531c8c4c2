// Command onkubernetes runs a command while an unmodified kube-apiserver serves:
//
//	go run ./onkubernetes [-upstream] [-dir directory] command argument...
//
// It starts etcd and kube-apiserver (see package realserver) and runs the command
// with KUBECONFIG and COPPICE_CONFORMANCE_KUBECONFIG set. With -upstream,
// kube-controller-manager runs its garbage collector, its namespace controller and
// its pod garbage collector beside it, and COPPICE_CONFORMANCE_COLLECTOR says so. When the command ends, all of
// that is stopped, and onkubernetes exits with its code.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
	"github.com/coppice-dev/coppice/bench/realserver"
)

type config struct {
	modules  string
	dir      string
	upstream bool
}

func main() {
	var c config
	flag.StringVar(&c.modules, "modules", ".", "the directory with the module kubernetes, which kube-apiserver is built from")
	flag.StringVar(&c.dir, "dir", ".", "the directory to run the command in")
	flag.BoolVar(&c.upstream, "upstream", false, "run upstream's garbage collector, namespace controller and pod garbage collector as well")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "onkubernetes: which command?")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, c, flag.Args())
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, "onkubernetes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config, command []string) (err error) {
	wanted := []realserver.Binary{realserver.Etcd, realserver.APIServer}
	if c.upstream {
		wanted = append(wanted, realserver.ControllerManager)
	}
	binaries, err := realserver.Find(ctx, c.modules, os.Stderr, wanted...)
	if err != nil {
		return err
	}
	began := stopwatch.Start()
	server, err := realserver.Start(ctx, binaries)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	fmt.Fprintf(os.Stderr, "kube-apiserver is ready after %.1f s\n", began.Seconds())

	environment := append(os.Environ(), "KUBECONFIG="+server.Kubeconfig, "COPPICE_CONFORMANCE_KUBECONFIG="+server.Kubeconfig)
	if c.upstream {
		if _, err := server.StartControllerManager("--controllers=garbage-collector-controller,namespace-controller,pod-garbage-collector-controller", "--use-service-account-credentials", "--kube-api-qps=1000", "--kube-api-burst=2000"); err != nil {
			return err
		}
		environment = append(environment, "COPPICE_CONFORMANCE_COLLECTOR=none")
	}
	child := exec.CommandContext(ctx, command[0], command[1:]...)
	child.Dir = c.dir
	child.Env = environment
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Cancel = func() error { return child.Process.Signal(os.Interrupt) }
	return child.Run()
}
