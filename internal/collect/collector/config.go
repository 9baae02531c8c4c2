package collector

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/collector/barrier"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/collect/queue"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Events writes core/v1 Events, for people to read.
type Events interface {
	// Warn writes an Event of type Warning regarding an object.
	Warn(ctx context.Context, regarding ownership.Object, reason, message string) error
}

// Queue holds the keys of objects that wait to be reconsidered. Package queue has the one
// for production; a simulator brings its own, to choose which key is next. If it has a method Len, the number of the keys
// that wait for a worker, it gets the dependents of a crowded owner in pieces (see state.refill).
type Queue interface {
	// Add adds keys: something was observed that concerns them.
	Add(uids ...ownership.UID)
	// Retry adds a key after its back-off, which grows until Forget.
	Retry(uid ownership.UID)
	// After adds a key when d has passed.
	After(uid ownership.UID, d time.Duration)
	// Forget ends the back-off of a key.
	Forget(uid ownership.UID)
	// Take waits for a key; it returns false after ShutDown.
	Take() (uid ownership.UID, ok bool)
	// Done returns a key that was taken.
	Done(uid ownership.UID)
	// ShutDown ends the queue.
	ShutDown()
}

// Config of a collector. The zero value works.
type Config struct {
	// Workers is the number of objects that are reconsidered concurrently. The more there are, the more writes
	// share a transaction of the store and a sync of its disk, until the processors are busy; the Limiter adapts
	// the number of requests to the server's capacity. As many dependents of an owner that is orphaned are detached
	// concurrently; with 1 Collect starts no goroutine. Default: 64.
	Workers int
	// Batch is the number of unknown owners of one kind and namespace that an object must name
	// for them to be read with one list, unless the kind has many more objects. Fewer are read
	// one by one. Default: 16.
	Batch int
	// References is the number of owner references of an object up to which the graph keeps all of them. It keeps
	// fewer of an object with more, and the collector reads these live before it decides. Default: 8.
	References int
	// Piece is the number of dependents of one owner that are queued at a time: the lock on the graph is released after
	// each piece, and the next one comes when less than a piece waits in the queue. Default: ownership.Piece.
	Piece int
	// Barrier proves that no dependent was missed before a foreground or orphan deletion is completed (R15). Off
	// is for benchmarks, and for tests that show the errors without a barrier.
	Barrier Switch
	// Lists is the number of lists that the barrier reads concurrently. Default: 16.
	Lists int
	// ObserveOnly decides and records, but changes nothing on the server: it makes no writes, not
	// even Events. It does read.
	ObserveOnly bool
	// Breaker pauses deletions when there are too many. Default: never.
	Breaker Breaker
	// Limiter bounds the concurrent requests by the measured capacity of the server. Default: only the number of
	// workers bounds them.
	Limiter *pace.Limiter
	// Records is the number of decisions that changed an object to remember; none if it is
	// negative. Default: 10000.
	Records int
	// Stories records the objects that are marked, removed or kept. Default: nothing is recorded.
	Stories *storybook.Book
	// Events records owner references that can never be valid, and deletions that are held or
	// paused. Default: no Events are written.
	Events Events
	// Logger gets a line for each change, and for each decision at level Debug. Default: nothing is logged.
	Logger *slog.Logger
	// Clock is used for back-off. Default: the system's.
	Clock clock.WithTicker
	// Queue holds the keys, also before Run. Default: a queue of package queue.
	Queue Queue
	// Await is called before each object is reconsidered, and returns when the server can be reached, and was verified after
	// the last outage, or with the error of ctx. Default: workers do not wait.
	Await func(ctx context.Context) error
	// Restartable makes Run continue with the keys of the observations before it, unless Queue is set: for a collector that
	// sleeps, and observes nothing meanwhile. Otherwise Run searches the graph for its keys, and observations before it,
	// which may go on for months, take no memory in the queue.
	Restartable bool
}

// Switch turns a part of the collector on or off.
type Switch uint8

const (
	// On is the default.
	On Switch = iota
	// Off leaves the part out.
	Off
)

// completed returns the config with its defaults.
func (config Config) completed() Config {
	config.Workers = positiveOr(config.Workers, 64)
	config.Batch = positiveOr(config.Batch, 16)
	config.References = positiveOr(config.References, 8)
	config.Piece = positiveOr(config.Piece, ownership.Piece)
	config.Lists = positiveOr(config.Lists, 16)
	switch {
	case config.Records == 0:
		config.Records = 10000
	case config.Records < 0:
		config.Records = 0
	}
	if config.ObserveOnly {
		config.Events = nil // an Event is a write too
	}
	if config.Await == nil {
		config.Await = context.Context.Err
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return config
}

func positiveOr(value, fallback int) int {
	if value > 0 {
		return value
	}
	return fallback
}

// New returns a collector that acts through api.
func New(api client.Interface, config Config) *Collector {
	config = config.completed()
	state := newState(config)
	state.inTerm = config.Queue != nil || config.Restartable
	if config.Queue == nil {
		// Namespaces take turns: a namespace that fills the queue does not slow down the others.
		turns := queue.Config{Clock: config.Clock, Tenant: state.namespace}
		if config.Restartable {
			config.Queue = queue.NewReopening(turns)
		} else {
			config.Queue = queue.NewForgetting(turns)
		}
	}
	state.queue, state.stories = config.Queue, config.Stories
	stats, places := &counters{}, newPlaces(config.Clock, state.namespace)
	api = countedAPI{api, stats}
	c := &Collector{
		api:      limited(placedAPI{api, places}, config.Limiter),
		config:   config,
		queue:    config.Queue,
		state:    state,
		stats:    stats,
		log:      config.Logger,
		failures: pace.NewFailures(config.Logger, config.Clock),
		clock:    config.Clock,
		breaker:  newBreaker(config.Breaker, config.Clock),
		journal:  journal{size: config.Records},
		wholes:   make(chan struct{}, wholeAtOnce),
		places:   places,
	}
	c.barrier = barrier.New(barrier.Config{
		Reader: limited(api, config.Limiter), Graph: state, Requeue: state.queue.Add, Clock: config.Clock, Lists: config.Lists,
		Disabled: config.Barrier == Off, Blocked: c.reportBlocked,
	})
	return c
}

func limited(api client.Interface, limiter *pace.Limiter) client.Interface {
	if limiter == nil {
		return api
	}
	return client.Limited(api, limiter)
}
