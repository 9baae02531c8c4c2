// Package kubernetesservice maintains the Service default/kubernetes, by which clients in the
// cluster reach the API server, with its Endpoints and its EndpointSlices. It creates them at the
// start, and corrects them when a client has changed or deleted them.
//
//	tick ───────────▶ presence renewed ─┐
//	watch event ─────────────────────▶ the servers that are present ─▶ decide (pure) ─▶ writes
//
// Each server on a store announces its address and port there (etcd.Presence), and publishes the
// addresses of all servers that are present. A killed server is removed when its presence has
// expired, at the latest one tick later. Each server reads the presences from the store before it
// writes, so that it does not remove a server that has just started.
package kubernetesservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// Group is the name under which servers announce their presence.
	Group = "kubernetes-service"
	// TimeToLive is how long a killed server counts as present.
	TimeToLive = 15 * time.Second

	// interval is the time between two renewals.
	interval = TimeToLive / 3
	// withdrawal bounds the time that a stopping server takes to end its presence.
	withdrawal = time.Second
	// startLimit bounds the time that Start waits for the first publication.
	startLimit = time.Second

	firstRetry = 10 * time.Millisecond
	// logAfter is how long a failure may last before it is logged: a starting server is expected to
	// fail some requests.
	logAfter = 5 * time.Second
	// logEvery is the interval at which a failure is logged again.
	logEvery = time.Minute
)

// Presence lists the servers on one store (etcd.Presence). A name is a netip.AddrPort as text.
type Presence interface {
	Renew(ctx context.Context) error
	Names(ctx context.Context) ([]string, error)
	End(ctx context.Context) error
}

// Config configures a Publisher. All fields are required.
type Config struct {
	// Client has the rights of an administrator.
	Client kubernetes.Interface
	// Presence is the presence of this server.
	Presence Presence
	// IP is the address of the Service.
	IP netip.Addr
	// Port is the port on which this server listens.
	Port  uint16
	Clock clock.Clock
	Log   *slog.Logger
}

// Publisher maintains the Service.
type Publisher struct {
	Config
	caches    caches
	events    chan struct{} // has an element when a cache has changed
	published chan struct{} // closed when all was published for the first time
	stopping  chan struct{}
	stop      sync.Once
	running   sync.WaitGroup

	renewed time.Time // when the presence was last renewed
}

// New returns a Publisher. It does nothing before Start.
func New(c Config) (*Publisher, error) {
	p := &Publisher{
		Config: c, caches: newCaches(c.Client),
		events: make(chan struct{}, 1), published: make(chan struct{}), stopping: make(chan struct{}),
	}
	notify := func(any) {
		select {
		case p.events <- struct{}{}:
		default:
		}
	}
	for _, informer := range p.caches.all() {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: notify, UpdateFunc: func(_, now any) { notify(now) }, DeleteFunc: notify,
		})
		if err != nil {
			return nil, fmt.Errorf("watch the service %s: %w", name, err)
		}
	}
	return p, nil
}

// Start publishes in the background until ctx ends or Stop is called. It returns when all is
// published, or after startLimit: a server whose store is full must be able to start.
func (p *Publisher) Start(ctx context.Context) {
	p.running.Go(func() { p.run(ctx) })
	limit := p.Clock.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-p.published:
	case <-limit.C():
	case <-p.stopping:
	case <-ctx.Done():
	}
}

// Stop ends publishing and the presence of this server. The other servers then remove its address.
func (p *Publisher) Stop() {
	p.stop.Do(func() { close(p.stopping) })
	p.running.Wait()
}

func (p *Publisher) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-p.stopping:
			cancel()
		case <-ctx.Done():
		}
	})
	var synced []cache.InformerSynced
	for _, informer := range p.caches.all() {
		watching.Go(func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		p.keep(ctx)
	}
	ending, ended := context.WithTimeout(context.WithoutCancel(ctx), withdrawal)
	defer ended()
	if err := p.Presence.End(ending); err != nil {
		p.Log.WarnContext(ctx, "the address of this server stays published until its presence expires", "error", err)
	}
}

// keep publishes until ctx ends.
func (p *Publisher) keep(ctx context.Context) {
	failures := failures{log: p.Log}
	for {
		err := p.publish(ctx)
		if ctx.Err() != nil {
			return
		}
		retryAfter := failures.observe(ctx, err, p.Clock.Now())
		if err == nil {
			p.announce()
		}
		timer := p.Clock.NewTimer(retryAfter)
		select {
		case <-timer.C():
		case <-p.events:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (p *Publisher) announce() {
	select {
	case <-p.published:
	default:
		close(p.published)
	}
}

// failures decides how long to wait after an attempt, and logs failures that last.
type failures struct {
	log    *slog.Logger
	since  time.Time // time of the first consecutive failure
	logged time.Time
	wait   time.Duration
}

// observe takes the outcome of an attempt, and returns how long to wait before the next one.
func (f *failures) observe(ctx context.Context, err error, now time.Time) time.Duration {
	if err == nil {
		*f = failures{log: f.log}
		return interval
	}
	if f.wait == 0 {
		f.since, f.wait = now, firstRetry
	} else {
		f.wait = min(2*f.wait, interval)
	}
	if now.Sub(f.since) >= logAfter && now.Sub(f.logged) >= logEvery {
		f.log.WarnContext(ctx, "the service "+name+" is not kept up to date", "for", now.Sub(f.since).Round(time.Second), "error", err)
		f.logged = now
	}
	return f.wait
}

// publish renews the presence when that is due, and writes the desired objects.
func (p *Publisher) publish(ctx context.Context) error {
	if now := p.Clock.Now(); now.Sub(p.renewed) >= interval {
		if err := p.Presence.Renew(ctx); err != nil {
			return err
		}
		p.renewed = now
	}
	names, err := p.Presence.Names(ctx)
	if err != nil {
		return err
	}
	var servers []netip.AddrPort
	for _, name := range names {
		server, err := netip.ParseAddrPort(name)
		if err != nil {
			return fmt.Errorf("a server is present as %q: %w", name, err)
		}
		servers = append(servers, server)
	}
	desired := decide(p.IP, p.Port, servers)
	errs := []error{p.keepService(ctx, desired.service)}
	if desired.endpoints != nil {
		errs = append(errs, p.keepEndpoints(ctx, desired.endpoints), p.keepSlices(ctx, desired.slices))
	}
	return errors.Join(errs...)
}
