package cli

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// A library may log the same message for thousands of requests, for example if a webhook fails them.
const (
	repetitions = 10 // of one message per minute
	mostKinds   = 256
	longestKind = 120 // bytes
)

// libraryLog is a handler for the log of libraries. It drops messages about clients that have closed their
// connections, all but the first repetitions of a message within a minute, and messages that libraries log while the
// process stops: that their requests, caches and leases were cut off.
type libraryLog struct {
	slog.Handler

	seen    *repeated
	stopped <-chan struct{} // closed when the process stops
}

// newLibraryLog returns a handler that drops these messages and passes the other records on. stopped is closed when
// the process stops.
func newLibraryLog(to slog.Handler, stopped <-chan struct{}) slog.Handler {
	return libraryLog{to, &repeated{kinds: map[string]*kind{}}, stopped}
}

// Handle implements slog.Handler.
func (h libraryLog) Handle(ctx context.Context, r slog.Record) error {
	noise := h.isStopping() || saysHungUp(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		noise = noise || saysHungUp(a.Value.String())
		return !noise
	})
	if noise && !h.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	passes, dropped := h.seen.add(r.Message, r.Time)
	if !passes {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("notLogged", dropped))
	}
	return h.Handler.Handle(ctx, r)
}

func (h libraryLog) isStopping() bool {
	select {
	case <-h.stopped:
		return true
	default:
		return false
	}
}

// saysHungUp reports whether a text is about a connection that was closed at the end of an exec or a port-forward.
func saysHungUp(text string) bool { return strings.Contains(text, "use of closed network connection") }

// WithAttrs implements slog.Handler.
func (h libraryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraryLog{h.Handler.WithAttrs(attrs), h.seen, h.stopped}
}

// WithGroup implements slog.Handler.
func (h libraryLog) WithGroup(name string) slog.Handler {
	return libraryLog{h.Handler.WithGroup(name), h.seen, h.stopped}
}

// repeated counts messages by their kind. It is safe for concurrent use.
type repeated struct {
	mu    sync.Mutex
	kinds map[string]*kind // guarded by mu
}

// kind counts the messages that differ in numbers only.
type kind struct {
	since   time.Time
	passed  int
	dropped int // messages dropped since the last one that passed
}

// add counts a message. It reports whether the handler logs the message, and how many of its kind were dropped since
// the last logged one.
func (s *repeated) add(message string, at time.Time) (passes bool, dropped int) {
	name := kindOf(message)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[name]
	if k == nil {
		if len(s.kinds) >= mostKinds {
			clear(s.kinds)
		}
		k = &kind{since: at}
		s.kinds[name] = k
	}
	if at.Sub(k.since) >= time.Minute {
		k.since, k.passed = at, 0
	}
	if k.passed++; k.passed > repetitions {
		k.dropped++
		return false, 0
	}
	dropped, k.dropped = k.dropped, 0
	return true, dropped
}

// kindOf returns the beginning of a message without digits.
func kindOf(message string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, message[:min(len(message), longestKind)])
}
