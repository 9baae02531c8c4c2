package feed

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// monitor lists and watches the objects of one kind, from start to stop. client-go's
// Reflector does the work; the monitor keeps its status.
type monitor struct {
	resource resource
	client   metadata.Interface
	clock    clock.WithTicker
	changed  chan<- struct{} // gets an element when the set of served kinds may have changed
	settled  chan struct{}   // closed when the monitor has synced, has failed, or was stopped, for the first time

	cancel context.CancelFunc // set by start
	store  *store             // set by start

	mu       sync.Mutex
	state    State     // guarded by mu, and so is all below
	since    time.Time // when state was entered
	complete bool      // there was a complete list at some time
	err      error     // of the last request, when state is Failing
	gone     bool      // err says that the server does not serve this resource
	leaving  bool      // discovery no longer names the kind
	expired  bool      // the server no longer knew revision; until the next list
	fresh    bool      // a list was requested, and no watch since
	revision string    // how far the watch has come
}

func newMonitor(r resource, client metadata.Interface, clock clock.WithTicker, changed chan<- struct{}) *monitor {
	return &monitor{
		resource: r,
		client:   client,
		clock:    clock,
		changed:  changed,
		settled:  make(chan struct{}),
		since:    clock.Now(),
	}
}

// start lists and watches until stop is called or ctx ends. The goroutine is
// counted in goroutines.
func (m *monitor) start(ctx context.Context, sink Sink, epochs *epochDetector, goroutines *sync.WaitGroup) {
	log := epochs.log
	ctx, m.cancel = context.WithCancel(ctx)
	ctx = klog.NewContext(ctx, quiet(log))
	m.store = &store{kind: m.resource.kind, sink: sink, monitor: m, epochs: epochs}
	reflector := cache.NewReflectorWithOptions(
		&source{monitor: m, client: m.client.Resource(m.resource.gvr), log: log},
		&metav1.PartialObjectMetadata{},
		m.store,
		cache.ReflectorOptions{
			Name:            "coppice",
			TypeDescription: m.resource.kind.String(),
			Clock:           m.clock,
			// Shorter at first than the Reflector's own: requests for a kind that was defined
			// just now often fail for some milliseconds.
			Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Cap: 30 * time.Second, Steps: 12, Factor: 2, Jitter: 1},
		},
	)
	goroutines.Go(func() {
		defer m.cancel()
		reflector.RunWithContext(ctx)
	})
}

// stop ends the monitor: when it returns, nothing more goes to the sink. The
// goroutine may live on until its request has ended.
func (m *monitor) stop() {
	m.cancel()
	m.store.close()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settleLocked()
}

// announce signals that other kinds may have joined or left.
func (m *monitor) announce() {
	select {
	case m.changed <- struct{}{}:
	default: // the last signal was not handled yet
	}
}

// listed records that the sink has got a complete list.
func (m *monitor) listed(revision string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.complete = true
	m.expired = false
	m.revision = revision
	m.enterLocked(Synced, nil)
}

// progressed records how far the watch has come.
func (m *monitor) progressed(revision string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision = revision
}

// reached returns how far the watch has come.
func (m *monitor) reached() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision
}

// lists records that a list is requested. If it is not the first, and no request failed for
// another reason, then the watch has failed: the server no longer knew its revision.
func (m *monitor) lists() {
	m.mu.Lock()
	defer m.mu.Unlock()
	isExpired := m.state == Synced || apierrors.IsResourceExpired(m.err) || apierrors.IsGone(m.err)
	m.expired = m.expired || m.complete && isExpired
	m.fresh = true
}

// resumes records that a watch is requested. It reports whether the watch continues an
// earlier one, as opposed to a list that was made just now.
func (m *monitor) resumes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh := m.fresh
	m.fresh = false
	return !fresh
}

// hasExpired reports whether the next list does not continue what was watched before.
func (m *monitor) hasExpired() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.expired
}

// watching records that a watch was opened at a known revision. A monitor that never got a
// list still waits for one.
func (m *monitor) watching() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.complete {
		m.enterLocked(Synced, nil)
	}
}

// failed records that a list or a watch has failed. It reports whether the monitor was not
// failing before.
func (m *monitor) failed(err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, wasGone := m.state, m.gone
	m.enterLocked(Failing, err)
	if m.gone && !wasGone {
		m.announce()
	}
	return before != Failing
}

func (m *monitor) enterLocked(s State, err error) {
	if m.state != s {
		m.state, m.since = s, m.clock.Now()
	}
	m.err = err
	m.gone = apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
	m.settleLocked()
}

func (m *monitor) settleLocked() {
	select {
	case <-m.settled:
	default:
		close(m.settled)
	}
}

func (m *monitor) setLeaving(leaving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaving = leaving
}

// refused reports whether the server has said that it does not serve this resource.
func (m *monitor) refused() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone
}

// source makes the lists and watches of a monitor's Reflector, and records how each request
// was answered.
type source struct {
	monitor *monitor
	client  metadata.Getter
	log     *slog.Logger
}

var _ cache.ListerWatcherWithContext = (*source)(nil)

// ListWithContext implements cache.ListerWatcherWithContext.
func (s *source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	s.monitor.lists()
	list, err := s.client.List(ctx, options)
	if err != nil {
		s.failed(ctx, err)
		return nil, err
	}
	return list, nil
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (s *source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	streamed := options.SendInitialEvents != nil && *options.SendInitialEvents
	if streamed {
		s.monitor.lists()
		s.monitor.resumes() // the stream is the watch: the next one resumes it
	} else if s.monitor.resumes() {
		s.check(ctx, options.ResourceVersion)
	}
	w, err := s.client.Watch(ctx, options)
	switch {
	case streamed && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)):
		// The Reflector would wait before it tries again, and would not end with ctx
		// meanwhile. After an error that it does not recognize it sends a plain list.
		return nil, opaqueError{err}
	case streamed:
		// What counts is the end of the list, or the answer to the plain list that
		// follows an error: a server may not support lists by watch.
	case err != nil:
		s.failed(ctx, err)
	default:
		s.monitor.watching()
	}
	return w, err
}

// check reads the server's current revision before a watch is resumed from a revision. A
// server that was put back to a time before that revision would not report it: it accepts
// the watch, and sends no event until it has come there again, by another history (R4).
func (s *source) check(ctx context.Context, revision string) {
	list, err := s.client.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return // the watch will fail as well
	}
	now, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	before, errBefore := strconv.ParseUint(revision, 10, 64)
	if err == nil && errBefore == nil && now < before {
		s.log.WarnContext(ctx, "the server was put back in time", "kind", s.monitor.resource.kind.String(), "from", before, "to", now)
		s.monitor.store.newEpoch()
	}
}

// opaqueError has the message of another error, but does not wrap it.
type opaqueError struct{ err error }

func (e opaqueError) Error() string { return e.err.Error() }

func (s *source) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the request was cancelled
	}
	if s.monitor.failed(err) {
		s.log.WarnContext(ctx, "kind cannot be read", "kind", s.monitor.resource.kind.String(), "error", err)
	}
}

// List implements cache.ListerWatcher; the Reflector does not call it.
func (s *source) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options) //nolint:forbidigo // the interface has no context
}

// Watch implements cache.ListerWatcher; the Reflector does not call it.
func (s *source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options) //nolint:forbidigo // the interface has no context
}

// IsWatchListSemanticsUnSupported returns the answer of the client: the fake clients of
// client-go cannot list by watch.
func (s *source) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(s.monitor.client)
}

// quiet returns a logger with which the Reflector logs at debug level only: the monitor logs
// what matters itself, once.
func quiet(log *slog.Logger) klog.Logger { return logr.FromSlogHandler(quietHandler{log.Handler()}) }

type quietHandler struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, min(level, slog.LevelDebug))
}

// Handle implements slog.Handler.
func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = min(r.Level, slog.LevelDebug)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name)}
}
