package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice"
	"github.com/coppice-dev/coppice/internal/election"
	"github.com/coppice-dev/coppice/internal/namespaces"
	"github.com/coppice-dev/coppice/internal/web"
)

// The controllers that --controllers names.
const (
	controllerGC         = "gc"
	controllerNamespace  = "namespace"
	controllerWorkloads  = "workloads"  // of coppice up only
	controllerScheduler  = "scheduler"  // of coppice up only
	controllerProtection = "protection" // of coppice up only: its server sets the finalizers
)

// diagnosticsAddress is where a collector answers questions.
const diagnosticsAddress = "127.0.0.1:10270"

// collectFlags are the flags of coppice collect.
type collectFlags struct {
	kubeconfig     string
	context        string
	election       elected
	controllers    []string
	waves          string
	ignore         []string
	observeOnly    bool
	breaker        coppice.Breaker
	records        int
	workers        int
	bindAddress    string
	metricsAddress string
	logLevel       string
	logFormat      string
}

func newCollect(s Streams) *cobra.Command {
	var f collectFlags
	c := &cobra.Command{
		Use:   "collect",
		Short: "Collect the garbage of any Kubernetes-style API server",
		Long: `Runs the garbage collector against an API server: one that --kubeconfig or $KUBECONFIG
names, or that of the cluster it runs in. It checks at the start what it needs, prints
a line that begins with "collecting" when it has read what there is, and goes on until
it is stopped.

There should be one collector for a server: upstream's kube-controller-manager has one
too, switched off there by --controllers=*,-garbage-collector-controller. Two do no
harm, but the second is of no use. See docs/collect.md.`,
		Example: `  # What would be done, on the cluster of the current context
  coppice collect --observe-only

  # Several, of which one works at a time
  coppice collect --leader-elect --metrics-address :10271`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return collect(c.Context(), f, s) },
	}
	flags := c.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how to reach the server (default $KUBECONFIG, else ~/.kube/config, else the cluster this runs in)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig to use (default its current one)")
	flags.BoolVar(&f.election.enabled, "leader-elect", false, "work only while holding a Lease, so that several can run")
	flags.StringVar(&f.election.namespace, "leader-elect-namespace", "", "namespace of the Lease (default the pod's own, else kube-system)")
	flags.StringSliceVar(&f.controllers, "controllers", []string{controllerGC}, "what to run: gc, namespace; the latter only where nobody else takes terminating namespaces apart")
	flags.StringSliceVar(&f.ignore, "ignore-resources", nil, "resources that are not watched and never collected, besides Events: configmaps,leases.coordination.k8s.io")
	flags.StringVar(&f.waves, "namespace-waves", "", wavesUsage)
	flags.BoolVar(&f.observeOnly, "observe-only", false, "decide, log and record, but change nothing on the server")
	flags.Float64Var(&f.breaker.Share, "breaker-share", 0, "pause the deletions of a kind when more than this part of its objects, 0.1 for a tenth, would go within --breaker-window; 0 for never")
	flags.DurationVar(&f.breaker.Window, "breaker-window", time.Minute, "time in which --breaker-share is counted")
	flags.IntVar(&f.breaker.Min, "breaker-min", 100, "deletions of a kind within --breaker-window that never pause it")
	flags.IntVar(&f.records, "records", 10000, "how many of the last changes to remember, with their reasons; 0 for none")
	flags.IntVar(&f.workers, "workers", 0, "how many objects are worked on at a time, at most (default 20)")
	flags.StringVar(&f.bindAddress, "bind-address", diagnosticsAddress, "loopback address and port of the diagnostics; 0 for none")
	flags.StringVar(&f.metricsAddress, "metrics-address", "0", "address and port of /healthz, /readyz and /metrics alone, for probes and Prometheus, such as :10271; 0 for none")
	flags.StringVar(&f.logLevel, "log-level", "info", "what to log on stderr: debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	return c
}

func collect(ctx context.Context, f collectFlags, s Streams) error {
	began := time.Now() //nolint:forbidigo // says how long the start took
	options, err := f.options(s.Err)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	config, source, err := loadConfig(f.kubeconfig, f.context)
	if err != nil {
		return err
	}
	if f.election.enabled {
		f.election.complete()
	}
	if err := f.check(ctx, config, source, options); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it began
		}
		return err
	}
	collector, err := coppice.New(config, options)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	work := func(ctx context.Context) error {
		return runCollector(ctx, collector, func() {
			fmt.Fprintf(s.Out, "collecting %s in %.2fs\n", config.Host, time.Since(began).Seconds())
		})
	}
	role := &election.Role{}
	servers, err := f.listen(ctx, collector, role, options.Logger)
	if err != nil {
		return err
	}
	group, working := errgroup.WithContext(ctx)
	for _, serve := range servers {
		group.Go(func() error { return serve(working) })
	}
	group.Go(func() error {
		defer stop() // with the work ends all else
		if !f.election.enabled {
			return work(working)
		}
		return f.election.run(working, config, options.Logger, role, work)
	})
	return group.Wait()
}

// runCollector runs until ctx ends. It calls synced once.
func runCollector(ctx context.Context, c *coppice.Collector, synced func()) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.Run(ctx) })
	group.Go(func() error {
		if c.WaitForSync(ctx) == nil {
			synced()
		}
		return nil
	})
	return group.Wait()
}

// options checks the flags as far as that can be done without a server.
func (f *collectFlags) options(logs io.Writer) (coppice.Options, error) {
	none := coppice.Options{}
	if err := checkControllers(f.controllers, controllerGC, controllerNamespace); err != nil {
		return none, err
	}
	if err := checkWaves(f.waves); err != nil {
		return none, err
	}
	if len(f.controllers) == 0 {
		return none, usageError{errors.New("--controllers names nothing to run: choose gc, namespace or both")}
	}
	if f.breaker.Share < 0 || f.breaker.Share > 1 {
		return none, usageError{fmt.Errorf("--breaker-share %g is not between 0 and 1", f.breaker.Share)}
	}
	if f.breaker.Window <= 0 || f.breaker.Min < 0 {
		return none, usageError{fmt.Errorf("--breaker-window %s must be positive, and --breaker-min %d not negative", f.breaker.Window, f.breaker.Min)}
	}
	if f.records < 0 {
		return none, usageError{fmt.Errorf("--records %d is negative", f.records)}
	}
	if f.workers < 0 {
		return none, usageError{fmt.Errorf("--workers %d is negative", f.workers)}
	}
	if f.bindAddress != "0" && !isLoopbackAddress(f.bindAddress) {
		return none, usageError{fmt.Errorf("--bind-address %s is not an address of the loopback interface with a port, such as %s: "+
			"the diagnostics name objects and ask nobody who he is; for probes and Prometheus there is --metrics-address", f.bindAddress, diagnosticsAddress)}
	}
	if _, _, err := net.SplitHostPort(f.metricsAddress); f.metricsAddress != "0" && err != nil {
		return none, usageError{fmt.Errorf("--metrics-address %s is no address with a port, such as :10271", f.metricsAddress)}
	}
	log, err := newLogger(logs, f.logLevel, f.logFormat)
	if err != nil {
		return none, err
	}
	options := coppice.Options{
		CollectorDisabled: !slices.Contains(f.controllers, controllerGC),
		Namespaces:        slices.Contains(f.controllers, controllerNamespace),
		NamespaceWaves:    f.waves,
		ObserveOnly:       f.observeOnly,
		Breaker:           f.breaker,
		Records:           f.records,
		Workers:           f.workers,
		Ignore:            coppice.DefaultIgnore(),
		Logger:            log,
	}
	if f.observeOnly && options.Namespaces {
		return none, usageError{errors.New("--observe-only changes nothing, and the namespace controller can only change things: choose one")}
	}
	if f.records == 0 {
		options.Records = -1 // the library's zero is its default
	}
	for _, name := range f.ignore {
		if resource := schema.ParseGroupResource(strings.TrimSpace(name)); resource.Resource != "" {
			options.Ignore = append(options.Ignore, resource)
		}
	}
	return options, nil
}

// checkControllers refuses names of controllers that there are none of.
func checkControllers(names []string, known ...string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return usageError{fmt.Errorf("--controllers names %q, which is none: choose from %s", name, strings.Join(known, ", "))}
		}
	}
	return nil
}

// wavesUsage explains --namespace-waves.
const wavesUsage = "order in which the contents of a terminating namespace go: waves separated by ;, each of them resources or * for all others " +
	`(default "pods;*;roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io,networkpolicies.networking.k8s.io")`

// checkWaves refuses an order in which not everything has its place.
func checkWaves(text string) error {
	if _, err := namespaces.ParseOrder(text); err != nil {
		return usageError{fmt.Errorf("--namespace-waves: %w", err)}
	}
	return nil
}

func isLoopbackAddress(hostPort string) bool {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil || port == "" {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// listen opens the addresses, so that one that is taken is an error at the start,
// and returns what serves them.
func (f *collectFlags) listen(ctx context.Context, c *coppice.Collector, r *election.Role, log *slog.Logger) ([]func(context.Context) error, error) {
	var servers []func(context.Context) error
	for _, endpoint := range []struct {
		flag, address string
		handler       http.Handler
	}{
		{"--bind-address", f.bindAddress, web.Local(r.Answering(c.Handler()))},
		{"--metrics-address", f.metricsAddress, r.Answering(c.ProbeHandler())},
	} {
		if endpoint.address == "0" {
			continue
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", endpoint.address)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w; choose another address with %s, 0 for none", endpoint.address, causeOf(err), endpoint.flag)
		}
		log.InfoContext(ctx, "answering", "flag", endpoint.flag, "address", "http://"+listener.Addr().String())
		servers = append(servers, serveOn(listener, endpoint.handler))
	}
	return servers, nil
}

// serveOn serves until ctx ends.
func serveOn(listener net.Listener, handler http.Handler) func(context.Context) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the diagnostics: %w", err)
		}
		return nil
	}
}

// check finds out whether the server can be worked with.
func (f *collectFlags) check(ctx context.Context, config *rest.Config, source string, o coppice.Options) error {
	c, err := newCheck(config, source, o.Logger)
	if err != nil {
		return err
	}
	if err := c.reach(ctx); err != nil {
		return err
	}
	if err := c.resources(ctx, o.Ignore); err != nil {
		return err
	}
	return c.rights(ctx, f.needs(o))
}
