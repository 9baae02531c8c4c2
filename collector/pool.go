package collector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// ErrClusterExists is the error of Pool.Add for a name that is in use.
var ErrClusterExists = errors.New("a cluster of that name exists")

// PoolOptions are the options of a Pool. The zero value is usable.
type PoolOptions struct {
	// Options are the options of each cluster. Workers defaults to 4, and Records to 1000.
	Options

	// IdleAfter is the idle time after which the watches of a cluster are closed, until a probe shows that
	// something was written. Negative: watches are never closed. Default: one minute.
	IdleAfter time.Duration
	// ProbeInterval is the time between two probes of a sleeping cluster. A probe is one small request. A
	// change in a sleeping cluster is observed at most this much later. Default: two seconds.
	ProbeInterval time.Duration
}

// Pool collects the garbage of many API servers, or of many workspaces of one, in one process. Each has a name, and
// a graph of its own: an object is identified by its cluster and its UID, and objects of two clusters never meet,
// even if their UIDs are equal. A cluster that cannot be reached delays no other.
//
// A cluster in which nothing happens sleeps: its watches are closed and its workers end, and one goroutine asks
// the server now and then whether anything was written. Then the watches continue from their last revision. The
// watches of a server stay open if its revisions do not count all writes to its resources.
//
// Create a pool with NewPool. It is safe for concurrent use.
type Pool struct {
	options PoolOptions

	mu      sync.Mutex
	ctx     context.Context    //nolint:containedctx // guarded by mu; the context of Run, for clusters that are added later
	started bool               // guarded by mu
	members map[string]*member // guarded by mu
	running sync.WaitGroup     // of members
}

// member is one cluster of a pool.
type member struct {
	collector *Collector
	cancel    context.CancelFunc // set when it is started
	ended     chan struct{}      // closed when it has ended
}

// NewPool returns a pool without clusters.
func NewPool(options PoolOptions) *Pool {
	if options.Workers <= 0 {
		options.Workers = 4
	}
	if options.Records == 0 {
		options.Records = 1000
	}
	if options.IdleAfter == 0 {
		options.IdleAfter = time.Minute
	}
	if options.ProbeInterval <= 0 {
		options.ProbeInterval = 2 * time.Second
	}
	return &Pool{options: options, members: make(map[string]*member)}
}

// Add adds the cluster of config's server. It sends no request; if the pool runs, collection of the cluster
// starts. The error is ErrClusterExists or an error of New.
func (p *Pool) Add(name string, config *rest.Config) error {
	options := p.options.completed()
	options.Logger = options.Logger.With("cluster", name)
	c, err := newCollector(config, options, restartable)
	if err != nil {
		return fmt.Errorf("add cluster %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members[name] != nil {
		return fmt.Errorf("add cluster %s: %w", name, ErrClusterExists)
	}
	m := &member{collector: c, ended: make(chan struct{})}
	p.members[name] = m
	if p.ctx != nil {
		p.startLocked(p.ctx, m)
	}
	return nil
}

// startLocked runs a member until the context of the pool ends.
func (p *Pool) startLocked(ctx context.Context, m *member) {
	ctx, cancel := context.WithCancel(ctx)
	m.cancel = cancel
	p.running.Go(func() {
		defer close(m.ended)
		defer cancel()
		if p.options.IdleAfter < 0 {
			_ = m.collector.Run(ctx) // it is run once
			return
		}
		_ = m.collector.runSleeping(ctx, sleepConfig{idleAfter: p.options.IdleAfter, probeInterval: p.options.ProbeInterval})
	})
}

// Remove removes a cluster with its state, and waits until its workers have ended. It reports whether a cluster
// of that name existed.
func (p *Pool) Remove(name string) bool {
	p.mu.Lock()
	m := p.members[name]
	delete(p.members, name)
	p.mu.Unlock()
	if m == nil {
		return false
	}
	if m.cancel != nil {
		m.cancel()
		<-m.ended
	}
	return true
}

// Run collects the garbage of all clusters until ctx ends, and returns when everything that it started has ended.
// A second call returns ErrAlreadyStarted.
func (p *Pool) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.started {
		p.mu.Unlock()
		return fmt.Errorf("pool: %w", ErrAlreadyStarted)
	}
	p.started, p.ctx = true, ctx
	for _, m := range p.members {
		p.startLocked(ctx, m)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.ctx = nil // clusters that are added from now on are not started
	p.mu.Unlock()
	p.running.Wait()
	return nil
}

// Clusters returns the names of the clusters, sorted.
func (p *Pool) Clusters() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.members))
}

// Cluster returns the collector of a cluster, for its Status, Records, Ready, WaitForSync and Resume, or nil if no
// cluster has the name. The pool runs it.
func (p *Pool) Cluster(name string) *Collector {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.members[name]; m != nil {
		return m.collector
	}
	return nil
}

// Wake wakes a sleeping cluster, for hosts that know of a write to it. It reports whether a cluster of that name
// exists.
func (p *Pool) Wake(name string) bool {
	c := p.Cluster(name)
	if c != nil {
		c.wakeUp()
	}
	return c != nil
}

// Resume resumes the deletions of a kind that the breaker has paused in a cluster. It reports whether they were
// paused.
func (p *Pool) Resume(name string, kind schema.GroupKind) bool {
	c := p.Cluster(name)
	return c != nil && c.Resume(kind)
}
