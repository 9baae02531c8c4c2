package feed

import (
	"context"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
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

	mu       sync.Mutex
	source   *source // set by start; guarded by mu, and so is all below
	state    State
	since    time.Time // when state was entered
	complete bool      // the sink has got a complete list
	err      error     // of the last request, when state is Failing
	unserved bool      // err says that the server does not serve this resource
	warned   bool      // that was logged
	leaving  bool      // discovery no longer names the kind
	expired  bool      // the server no longer knew revision; until the next list
	fresh    bool      // a list was requested, and no watch since
	heard    time.Time // when the last part of a list came
	revision string    // how far the watch has come
	resuming bool      // the next list is skipped: the watch continues from revision
	doubted  reached   // when the history of the kind was doubted for the last time
	refusals int       // of comparisons of its history, since the last one that succeeded
}

// reached is how much is known of a kind.
type reached struct {
	revision string // of its watch
	answers  int    // to its requests
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
// counted in goroutines. After stop, and when that goroutine has ended, it may be called again.
func (m *monitor) start(ctx context.Context, sink Sink, epochs *epochDetector, goroutines *sync.WaitGroup) {
	log := epochs.log
	ctx, m.cancel = context.WithCancel(ctx)
	ctx = klog.NewContext(ctx, quiet(log))
	from := &source{monitor: m, store: &store{kind: m.resource.kind, sink: sink, monitor: m, epochs: epochs}, client: m.client.Resource(m.resource.gvr), log: log}
	m.mu.Lock()
	m.source = from
	m.mu.Unlock()
	reflector := cache.NewReflectorWithOptions(
		from,
		&metav1.PartialObjectMetadata{},
		from.store,
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
	m.mu.Lock()
	from := m.source
	m.mu.Unlock()
	from.store.close()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settleLocked()
}

// resume makes the next start continue from the last revision of the watch, if that is known: later changes
// then come as watch events. Otherwise the monitor lists. The server's history must be the watched one.
func (m *monitor) resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resuming = m.canResumeLocked()
	m.fresh = m.resuming
}

// canResume reports whether a watch from the reached revision would miss nothing.
func (m *monitor) canResume() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.canResumeLocked()
}

func (m *monitor) canResumeLocked() bool {
	_, err := strconv.ParseUint(m.revision, 10, 64)
	return m.complete && m.state == Synced && !m.expired && !m.leaving && err == nil
}

// resumesFrom returns the revision from which the watch continues without a list, if it does.
func (m *monitor) resumesFrom() (revision string, resumes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision, m.resuming
}

// resumed reports whether the list was skipped, and the watch continues.
func (m *monitor) resumed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	resumed := m.resuming
	m.resuming = false
	return resumed
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

// compared records the error of a comparison of the kind's history.
func (m *monitor) compared(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.refusals = 0
	case isRefused(err):
		m.refusals++
	}
}

// doubt records that the history of the kind is doubted, and how much was known of it before.
func (m *monitor) doubt(before reached) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doubted = before
}

// isDoubted reports whether nothing more is known of the kind than when it was doubted.
func (m *monitor) isDoubted(now reached) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.doubted == now
}

// lists records the request for a list. If it is not the first list, and no request failed for another
// reason, then the watch has failed because the server no longer knew its revision. If one did, it is not known
// whether the server still knows the revision, which lists returns.
func (m *monitor) lists() (doubted string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	isExpired := m.state == Synced || apierrors.IsResourceExpired(m.err) || apierrors.IsGone(m.err)
	m.expired = m.expired || m.complete && isExpired
	m.fresh = true
	if !m.complete || m.expired {
		return ""
	}
	return m.revision
}

// expires records that the server no longer knows the revision that the watch has reached.
func (m *monitor) expires() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expired = true
}

// resumes records the request for a watch. It reports whether the watch continues an earlier watch, and not
// a new list.
func (m *monitor) resumes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh := m.fresh
	m.fresh = false
	return !fresh
}

// hasExpired reports whether the next list does not continue the previous watch.
func (m *monitor) hasExpired() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.expired
}

// hears records that a part of a list has come.
func (m *monitor) hears() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = m.clock.Now()
}

// silence returns how long no part of a list has come.
func (m *monitor) silence() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock.Since(m.heard)
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
	before, wasUnserved := m.state, m.unserved
	m.enterLocked(Failing, err)
	if m.unserved && !wasUnserved {
		m.announce()
	}
	return before != Failing
}

func (m *monitor) enterLocked(s State, err error) {
	if m.state != s {
		m.state, m.since = s, m.clock.Now()
	}
	m.err = err
	m.unserved = apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
	m.warned = m.warned && m.unserved
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

// refusedFor returns the error of a server that has not served this resource for that period, once. A server withdraws a
// resource from discovery a moment before or after it refuses requests.
func (m *monitor) refusedFor(period time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.unserved || m.warned || m.clock.Since(m.since) < period {
		return nil
	}
	m.warned = true
	return m.err
}

// refused reports whether the server has answered that it does not serve this resource.
func (m *monitor) refused() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unserved
}
