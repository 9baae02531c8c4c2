package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// The end of a connection is no error. A repeated error is logged some times, and after a minute with the number
// of its dropped repetitions.
func TestLibrariesLogNoNoise(t *testing.T) {
	var out strings.Builder
	h := newLibraryLog(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}), nil).WithAttrs([]slog.Attr{slog.String("from", "library")})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	log := func(text string, attrs ...slog.Attr) {
		r := slog.NewRecord(at, slog.LevelError, text, 0)
		r.AddAttrs(attrs...)
		if err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	log("Error proxying data: write tcp 127.0.0.1:1->127.0.0.1:2: use of closed network connection")
	log("Unhandled Error", slog.Any("err", errors.New("read: use of closed network connection")))
	if out.Len() > 0 {
		t.Errorf("a client that hangs up is an error: %s", out.String())
	}
	for i := range 4800 {
		log(fmt.Sprintf("failing closed %d", i))
	}
	log("another error")
	at = at.Add(time.Minute)
	log("failing closed 4801")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 12 || !strings.Contains(lines[10], "another error") || !strings.Contains(lines[11], "notLogged=4790") || !strings.Contains(lines[0], "from=library") {
		t.Errorf("%d lines:\n%s", len(lines), out.String())
	}
}

// The memory for the kinds of messages is bounded.
func TestKindsOfMessagesAreBounded(t *testing.T) {
	s := &repeated{kinds: map[string]*kind{}}
	for i := range 10 * mostKinds {
		s.add(strings.Repeat("x", i), time.Time{})
		s.add(string(rune('a'+i%26))+strings.Repeat("y", i), time.Time{})
	}
	if len(s.kinds) > mostKinds {
		t.Errorf("%d kinds are kept", len(s.kinds))
	}
}

// Messages of libraries after the process has begun to stop are no errors; they are logged at level debug.
func TestLibrariesAreQuietWhenTheProcessStops(t *testing.T) {
	for level, want := range map[slog.Level]string{slog.LevelError: "before ", slog.LevelDebug: "before after "} {
		var out strings.Builder
		stopped := make(chan struct{})
		plain := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.MessageKey {
				return a
			}
			return slog.Attr{}
		}})
		h := slog.New(newLibraryLog(plain, stopped)).With("from", "library").WithGroup("g")
		h.Error("before")
		close(stopped)
		h.Error("after", "err", errors.New("http: Handler timeout"))
		if got := strings.NewReplacer("msg=", "", "\n", " ").Replace(out.String()); got != want {
			t.Errorf("%s: %q, want %q", level, got, want)
		}
	}
}
