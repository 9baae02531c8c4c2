package feed

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// source makes the lists and watches of a monitor's Reflector, and records how each request
// was answered.
type source struct {
	monitor *monitor
	store   *store
	client  metadata.Getter
	log     *slog.Logger
}

var _ cache.ListerWatcherWithContext = (*source)(nil)

// ListWithContext implements cache.ListerWatcherWithContext.
func (s *source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if revision, resumes := s.monitor.resumesFrom(); resumes {
		return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: revision}}, nil
	}
	s.lists(ctx)
	list, err := s.patientList(ctx, options)
	if err != nil {
		s.failed(ctx, err)
		return nil, err
	}
	return list, nil
}

// lists records the request for a list, which follows errors of the watch. They have not shown whether the list continues
// the watched history. Neither does an error of the server for the list at the watched revision: the history is doubted. If
// no server has answered, that is an outage, after which VerifyHistory compares the history.
func (s *source) lists(ctx context.Context) {
	doubted := s.monitor.lists()
	if doubted == "" {
		return
	}
	hasForgotten, err := s.hasForgotten(ctx, doubted, s.patientList)
	if hasForgotten || err != nil && !errors.Is(err, errNoFormerLists) && !refusal.IsUnanswered(err) {
		s.monitor.expires()
	}
}

// patience is how often a list is repeated that a busy server has refused, before the kind counts
// as unreadable.
const patience = 5

// patientList lists, and tries again after the delay that a busy server (429) requests: a server
// that has just started refuses some of the simultaneous lists of all kinds.
func (s *source) patientList(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	for range patience {
		list, err := s.client.List(ctx, options)
		if !apierrors.IsTooManyRequests(err) {
			return list, err
		}
		seconds, _ := apierrors.SuggestsClientDelay(err)
		select {
		case <-s.monitor.clock.After(time.Duration(max(seconds, 1)) * time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.client.List(ctx, options)
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (s *source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	streamed := options.SendInitialEvents != nil && *options.SendInitialEvents
	if _, resumes := s.monitor.resumesFrom(); streamed && resumes {
		return nil, errResumes
	}
	if streamed {
		s.lists(ctx)
		s.monitor.resumes() // the stream is the watch: the next one resumes it
	} else if s.monitor.resumes() {
		s.check(ctx, options.ResourceVersion)
	}
	var w watch.Interface
	var err error
	if streamed && s.store.takesParts() {
		w, err = s.open(ctx, options, newParts(s.store))
	} else {
		w, err = s.client.Watch(ctx, options)
	}
	switch {
	case streamed && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)):
		// The Reflector would wait before it tries again, and would not end with ctx
		// meanwhile. After an error that it does not recognize it sends a plain list.
		return nil, opaqueError{err}
	case streamed:
		// Only the end of the list counts, or the answer to the plain list that follows an error: a
		// server may not support lists by watch.
	case err != nil:
		s.failed(ctx, err)
	default:
		s.monitor.watching()
	}
	return w, err
}

// check reads the server's current revision before a watch is resumed from a revision. A server
// that was reset to an earlier revision would not report that: it accepts the watch, and sends no
// event until its new history has passed the revision (R4).
func (s *source) check(ctx context.Context, revision string) {
	_, _ = s.compare(ctx, numberOf(revision)) // after an error the watch will fail as well
}

// errResumes makes the Reflector request a plain list; the watch is resumed in its place.
var errResumes = errors.New("the watch is resumed")

// opaqueError has the message of another error, but does not wrap it.
type opaqueError struct{ err error }

func (e opaqueError) Error() string { return e.err.Error() }

func (s *source) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the request was cancelled
	}
	// An unreachable server is logged once for all kinds. A kind that is not served any more is logged if discovery goes
	// on to include it (warnOfRefused).
	if s.monitor.failed(err) && !pace.IsUnreachable(err) && !s.monitor.refused() {
		warnOfUnread(ctx, s.log, s.monitor.resource.kind, err)
	}
}

func warnOfUnread(ctx context.Context, log *slog.Logger, kind ownership.Kind, err error) {
	log.WarnContext(ctx, "kind cannot be read", "kind", kind.String(), "error", pace.Brief(err))
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

// quiet returns a logger with which the Reflector logs at debug level only: the monitor itself logs
// important events, once.
func quiet(log *slog.Logger) klog.Logger { return logr.FromSlogHandler(quietHandler{log.Handler()}) }

type quietHandler struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, min(level, slog.LevelDebug))
}

// Handle implements slog.Handler. It checks the level again: logr does not before it logs an error.
func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = min(r.Level, slog.LevelDebug)
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
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
