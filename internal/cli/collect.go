package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/collect/process"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/web"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// The names of controllers for --controllers.
const (
	controllerGC         = "gc"
	controllerNamespace  = "namespace"
	controllerWorkloads  = "workloads"  // of coppice up only
	controllerScheduler  = "scheduler"  // of coppice up only
	controllerProtection = "protection" // of coppice up only: its API server adds the finalizers
)

const (
	// leaseName is the name of the Lease of --leader-elect.
	leaseName = "coppice"
	// podNamespaceFile contains the namespace of the pod that this process runs in.
	podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// collectFlags are the flags of coppice collect.
type collectFlags struct {
	server         serverFlags
	election       election
	leaseNamespace string
	controllers    []string
	order          deletionOrder
	settle         time.Duration
	ignore         []string
	observeOnly    bool
	breaker        collector.Breaker
	records        int
	workers        int
	bindAddress    string
	metricsAddress string
	protect        protectServer
	input          inputFlag
}

func newCollect(s Streams) *cobra.Command {
	var f collectFlags
	c := &cobra.Command{
		Use:   "collect",
		Short: "Run the garbage collector against any Kubernetes-style API server",
		Long: `Runs the garbage collector against an API server. --kubeconfig or $KUBECONFIG names the
server; in a pod, the default is the API server of the pod's cluster. The command first
checks that the server has the APIs and rights that the collector needs. It prints a line
that begins with "collecting" when it has read all objects, and runs until it is stopped.

A server needs one collector. kube-controller-manager has one, too. Switch it off there
with --controllers=*,-garbage-collector-controller. While both run, nothing breaks, but the
deletions of kube-controller-manager do not follow these rules. See docs/collect.md.

--controllers=namespace adds the namespace controller. Use it only if no other controller
deletes the contents of terminating namespaces.

With --leader-elect, several replicas can run: one works, and the others stand by. They watch
the server too, and keep its ownership graph in memory, so that the next leader works as soon
as it has the Lease. With --leader-elect=cold, they watch nothing, and the next leader begins
with lists of all objects.

The breaker pauses the deletions of a kind when more than --breaker-share of its objects
would be deleted within --breaker-window. --breaker-min deletions are always allowed.`,
		Example: `  # Log the deletions, and make none, on the cluster of the current context
  coppice collect --observe-only

  # Run several replicas, one of which works at a time
  coppice collect --leader-elect --metrics-address :10271

  # Refuse large deletions that nobody has confirmed, by the webhook of deploy/kustomize/confirm-webhook
  coppice collect --protect-address :10272 --protect-cert-file tls.crt --protect-key-file tls.key --protect-client-ca-file ca.crt --confirm-deletions 'more-than=50'

  # Pause when more than a tenth of the objects of a kind would be deleted within 5 minutes
  coppice collect --breaker-share 0.1 --breaker-window 5m`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return collect(c.Context(), f, s) },
	}
	flags := c.Flags()
	f.server.add(c, "kubeconfig of the server (default: $KUBECONFIG, else ~/.kube/config, else the pod's cluster)")
	f.election.add(c)
	flags.StringVar(&f.leaseNamespace, "leader-elect-namespace", "", "namespace of the Lease (default: the namespace of the pod, else kube-system)")
	flags.StringSliceVar(&f.controllers, "controllers", []string{controllerGC}, "controllers to run: gc, namespace")
	flags.StringSliceVar(&f.ignore, "ignore-resources", nil, "resources, besides Events, that are not watched and never collected: configmaps,widgets.example.com")
	f.order.add(c)
	flags.DurationVar(&f.settle, "namespace-settle", namespaces.DefaultSettle, "minimum time that a terminating namespace is kept, for creations in flight; 0 for none")
	flags.BoolVar(&f.observeOnly, "observe-only", false, "decide, log and record, but change nothing on the server")
	flags.Float64Var(&f.breaker.Share, "breaker-share", 0, "share of a kind's objects whose deletion pauses that kind: 0.1 is a tenth, 0 never pauses")
	flags.DurationVar(&f.breaker.Window, "breaker-window", time.Minute, "time window of --breaker-share")
	flags.IntVar(&f.breaker.Min, "breaker-min", 100, "deletions of a kind within --breaker-window that are always allowed")
	flags.IntVar(&f.records, "records", 10000, "number of the latest changes to keep, with their reasons; 0 for none")
	flags.IntVar(&f.workers, "workers", 0, "number of objects to process at the same time (default 64)")
	flags.StringVar(&f.bindAddress, "bind-address", web.DefaultAddress, "loopback address and port of the diagnostics; 0 for none")
	flags.StringVar(&f.metricsAddress, "metrics-address", "0", "address and port of /healthz, /readyz and /metrics, such as :10271; 0 for none")
	f.protect.add(c)
	f.input.add(c)
	completeWith(c, "controllers", controllerGC, controllerNamespace)
	return c
}

func collect(ctx context.Context, f collectFlags, s Streams) error {
	began := time.Now()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := f.input.follow(ctx, s.In)
	defer cancel()
	options, err := f.options(ctx, s.Err)
	if err != nil {
		return err
	}
	server, err := f.server.connect(ctx, options.Logger)
	if err == nil {
		err = f.check(ctx, server, options.Ignore)
	}
	if err != nil {
		return unlessStopped(ctx, err)
	}
	controllers, err := f.newControllers(server, options)
	if err != nil {
		return fmt.Errorf("%s: %w", server.source, err)
	}
	synced := sync.OnceFunc(func() {
		terminal.Fprintf(s.Out, "collecting %s in %.2fs\n", server.config.Host, time.Since(began).Seconds())
	})
	role := &process.Role{}
	diagnostics, err := f.listen(ctx, controllers, api.Delegated(server.config), role, options.Logger)
	if err != nil {
		return err
	}
	f.protect.namespace = f.leaseNamespace
	webhook, err := f.protect.listen(ctx, controllers, server.config, options.Logger)
	if err != nil {
		return err
	}
	diagnostics = append(diagnostics, webhook...)
	group, working := errgroup.WithContext(ctx)
	for _, serve := range diagnostics {
		group.Go(func() error { return serve(working) })
	}
	group.Go(func() error {
		defer stop() // the diagnostics end with the controllers
		lease := process.Lease{Namespace: f.leaseNamespace, Name: leaseName, Times: process.DefaultLeaseTimes(), Log: options.Logger}
		return replica{lease, server.config, role, controllers, synced}.run(working, f.election)
	})
	return group.Wait()
}

// runs reports whether --controllers names a controller.
func (f *collectFlags) runs(controller string) bool {
	return slices.Contains(f.controllers, controller)
}

// options validates and completes the flags, as far as possible without a server, and returns the
// collector's options.
func (f *collectFlags) options(ctx context.Context, logs io.Writer) (collector.Options, error) {
	none := collector.Options{}
	if err := checkControllers(f.controllers, controllerGC, controllerNamespace); err != nil {
		return none, err
	}
	if len(f.controllers) == 0 {
		return none, usageError{errors.New("--controllers is empty: choose gc, namespace or both")}
	}
	if f.observeOnly && f.runs(controllerNamespace) {
		return none, usageError{errors.New("--observe-only changes no object, and the namespace controller has no such mode: leave out one of the two")}
	}
	if err := f.checkNumbers(); err != nil {
		return none, err
	}
	if err := errors.Join(f.checkAddresses(), f.protect.check()); err != nil {
		return none, err
	}
	log, err := newLogger(ctx, logs, f.server.logLevel, f.server.logFormat)
	if err != nil {
		return none, err
	}
	if f.leaseNamespace == "" {
		f.leaseNamespace = ownNamespace()
	}
	options := collector.Options{
		ObserveOnly: f.observeOnly, Breaker: f.breaker, Records: f.records, Workers: f.workers,
		Ignore: collector.DefaultIgnore(), Logger: log,
	}
	if f.records == 0 {
		options.Records = -1 // zero would be the default
	}
	for _, name := range f.ignore {
		if resource := schema.ParseGroupResource(strings.TrimSpace(name)); resource.Resource != "" {
			options.Ignore = append(options.Ignore, resource)
		}
	}
	return options, nil
}

// checkNumbers checks the ranges of numbers.
func (f *collectFlags) checkNumbers() error {
	switch {
	case f.breaker.Share < 0 || f.breaker.Share > 1:
		return usageError{fmt.Errorf("--breaker-share %g is not between 0 and 1", f.breaker.Share)}
	case f.breaker.Window <= 0 || f.breaker.Min < 0:
		return usageError{fmt.Errorf("--breaker-window %s must be positive, and --breaker-min %d not negative", f.breaker.Window, f.breaker.Min)}
	case f.records < 0:
		return usageError{fmt.Errorf("--records %d is negative", f.records)}
	case f.settle < 0:
		return usageError{fmt.Errorf("--namespace-settle %s is negative", f.settle)}
	case f.workers < 0:
		return usageError{fmt.Errorf("--workers %d is negative", f.workers)}
	}
	return nil
}

// checkControllers rejects unknown names.
func checkControllers(names []string, known ...string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return usageError{fmt.Errorf("--controllers names %q, which is unknown: choose from %s", name, strings.Join(known, ", "))}
		}
	}
	return nil
}

// ownNamespace returns the namespace of the pod that this process runs in, or else kube-system.
func ownNamespace() string {
	if own, err := os.ReadFile(podNamespaceFile); err == nil {
		return strings.TrimSpace(string(own))
	}
	return metav1.NamespaceSystem
}

// check checks that the server has the ignored resources, and grants the necessary permissions.
func (f *collectFlags) check(ctx context.Context, s *server, ignore []schema.GroupResource) error {
	watched, err := s.resources(ctx, ignore)
	if err != nil {
		return err
	}
	return s.rights(ctx, f.needs(), watched)
}

func (f *collectFlags) newControllers(s *server, options collector.Options) (c metrics.Controllers, err error) {
	c.Program = "coppice collect"
	if f.runs(controllerGC) {
		if err := c.AddCollector(s.config, options); err != nil {
			return c, err
		}
	}
	if f.runs(controllerNamespace) {
		err = c.AddNamespaceController(s.config, namespaces.Options{DeletionOrder: f.order.value, Settle: f.settle, Logger: options.Logger})
	}
	return c, err
}
