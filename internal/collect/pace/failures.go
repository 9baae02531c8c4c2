package pace

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

const (
	// firstSilence is the time from the first line about a failure to the second one; it doubles with each line, up to
	// longestSilence.
	firstSilence, longestSilence = time.Minute, 30 * time.Minute
	// mostAlike is the number of lines in a minute about different objects that fail for the same reason.
	mostAlike = 10
	// mostFailures bounds the failures that are kept.
	mostFailures = 4096
	// longestReason bounds the part of an error, in bytes, that distinguishes reasons.
	longestReason = 256
	// longestText bounds each text of a line, in bytes: webhooks answer with texts of any length.
	longestText = 2048
)

// Failures logs failures that repeat. Repeated failures of an object for the same reason are logged with back-off,
// and failures of several objects for the same reason only a few times a minute. NewFailures makes one. It is safe
// for concurrent use.
type Failures struct {
	log   *slog.Logger
	clock clock.PassiveClock

	mu      sync.Mutex
	known   map[failure]*silence  // guarded by mu
	reasons map[string]*alikeness // guarded by mu
}

// failure is the key of a repeated failure: its message, its object and its reason.
type failure struct{ object, reason string }

// silence is the time in which a failure is not logged again.
type silence struct {
	until  time.Time
	length time.Duration
	silent int // failures that were not logged since the last line
}

// alikeness counts the lines about objects that fail for one reason.
type alikeness struct {
	since  time.Time
	logged int
	silent int // failures that were not logged since the last line
}

// NewFailures returns a Failures that has logged nothing yet.
func NewFailures(log *slog.Logger, clock clock.PassiveClock) *Failures {
	return &Failures{log: log, clock: clock, known: map[failure]*silence{}, reasons: map[string]*alikeness{}}
}

// Warn logs a failure of an object, unless the same failure was logged recently. The line has the attributes and the
// error, the number of times that the object has failed since its last line (repeated), and the number of other
// objects that were left out (alike). Long texts are cut.
func (f *Failures) Warn(ctx context.Context, message, object string, err error, attributes ...any) {
	if all, isDue := f.line(message, object, err, attributes); isDue {
		f.log.WarnContext(ctx, message, all...) //nolint:sloglint // the constant is that of the caller
	}
}

// Info is Warn for a failure that is routine, such as that of a probe.
func (f *Failures) Info(ctx context.Context, message, object string, err error, attributes ...any) {
	if all, isDue := f.line(message, object, err, attributes); isDue {
		f.log.InfoContext(ctx, message, all...) //nolint:sloglint // the constant is that of the caller
	}
}

// line counts a failure and returns the attributes of its line. It reports whether the line is due.
func (f *Failures) line(message, object string, err error, attributes []any) (all []any, isDue bool) {
	repeated, alike, isDue := f.add(failure{object, message + ": " + reasonOf(err, object)})
	if !isDue {
		return nil, false
	}
	all = slices.Clone(attributes)
	for i, attribute := range all {
		if text, ok := attribute.(string); ok {
			all[i] = ownership.Excerpt(text, longestText)
		}
	}
	all = append(all, "error", Brief(err))
	if repeated > 0 {
		all = append(all, "repeated", repeated)
	}
	if alike > 0 {
		all = append(all, "alike", alike)
	}
	return all, true
}

// Brief returns the text of an error for the log. Long texts are cut: a server may answer with texts of any length.
func Brief(err error) string { return ownership.Excerpt(err.Error(), longestText) }

// add counts a failure. It reports whether the failure must be logged, and how many were not logged.
func (f *Failures) add(what failure) (repeated, alike int, isDue bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	s := f.known[what]
	switch {
	case s == nil || now.Sub(s.until) > s.length: // it is new, or has not failed for long
		f.makeRoomLocked(now)
		s = &silence{}
		f.known[what] = s
	case now.Before(s.until):
		s.silent++
		return 0, 0, false
	}
	s.length = min(max(firstSilence, 2*s.length), longestSilence)
	s.until = now.Add(s.length)

	a := f.reasons[what.reason]
	if a == nil {
		a = &alikeness{since: now}
		f.reasons[what.reason] = a
	}
	if now.Sub(a.since) >= time.Minute {
		a.since, a.logged = now, 0
	}
	if a.logged++; a.logged > mostAlike {
		a.silent++
		s.silent++
		return 0, 0, false
	}
	repeated, alike = s.silent, a.silent
	s.silent, a.silent = 0, 0
	return repeated, alike, true
}

// makeRoomLocked forgets, when the maps are full, the objects that have not failed for a long time, and all objects
// if that is not enough.
func (f *Failures) makeRoomLocked(now time.Time) {
	if len(f.known) < mostFailures && len(f.reasons) < mostFailures {
		return
	}
	for what, s := range f.known {
		if now.Sub(s.until) > s.length {
			delete(f.known, what)
		}
	}
	clear(f.reasons)
	if len(f.known) >= mostFailures/2 {
		clear(f.known)
	}
}

// reasonOf returns the text of an error without numbers and without the names of the object, so that the same failure
// of another object has the same reason. An answer of a server counts without the words around it, which may name
// the object that was tried first.
func reasonOf(err error, object string) string {
	text := err.Error()
	names := strings.FieldsFunc(object, func(r rune) bool { return r == '/' })
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok {
		text = answer.ErrStatus.Message
		if details := answer.ErrStatus.Details; details != nil {
			names = append(names, details.Name)
		}
	}
	text = text[:min(len(text), 4*longestReason)]
	for _, name := range names {
		if name != "" {
			text = strings.ReplaceAll(text, name, "")
		}
	}
	text = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
	return strings.Clone(text[:min(len(text), longestReason)])
}
