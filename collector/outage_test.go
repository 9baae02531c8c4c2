package collector_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
	"github.com/coppice-dev/coppice/internal/testing/wireserver"
)

// network is the way to a server. It breaks, with all open watches, at a number of DELETEs.
type network struct {
	server *wireserver.Server

	isGateway bool // something answers while the server is away

	mu      sync.Mutex
	left    int // DELETEs until it breaks
	isDown  bool
	running context.Context // ends when the network breaks
	cut     context.CancelFunc
}

func newNetwork(s *wireserver.Server, left int) *network {
	n := &network{server: s, left: left}
	n.repair()
	return n
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	running, ok := n.enter(r.Method == http.MethodDelete)
	if !ok && n.isGateway {
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody, Header: http.Header{}}, nil
	}
	if !ok {
		return nil, errors.New("connection refused")
	}
	ctx, cancel := context.WithCancel(r.Context())
	context.AfterFunc(running, cancel)
	return n.server.RoundTrip(r.WithContext(ctx))
}

func (n *network) enter(deletes bool) (context.Context, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if deletes {
		if n.left--; n.left == 0 {
			n.isDown = true
			n.cut()
		}
	}
	return n.running, !n.isDown
}

func (n *network) repair() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isDown = false
	n.running, n.cut = context.WithCancel(context.Background())
}

func (n *network) broken() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.isDown
}

// R4: a server fails in the middle of thousands of deletions, and comes back from a backup in which their owner exists.
// None of its dependents is deleted by what was known before, although each has the UID and the resourceVersion that it
// had, and although the watches continue only later.
func TestR4_BackupRestoredDuringAnOutage(t *testing.T) {
	asItWas, raised := func(*wireserver.Server) {}, func(s *wireserver.Server) {
		for range 100_000 {
			s.Tick()
		}
		s.Compact()
	}
	for name, test := range map[string]struct {
		restored  func(*wireserver.Server)
		isGateway bool
	}{
		"with its revisions": {asItWas, false}, "with its revisions, behind a gateway": {asItWas, true},
		"with higher revisions": {raised, false}, "with higher revisions, behind a gateway": {raised, true},
	} {
		t.Run(name, func(t *testing.T) {
			const dependents = 1000
			s := wireserver.New(kinds()...)
			family(s, "web", dependents)
			synctest.Test(t, func(t *testing.T) {
				network := newNetwork(s, dependents/3)
				network.isGateway = test.isGateway
				defer func() { network.cut() }()
				c, err := collector.New(&rest.Config{Host: "http://server", Transport: network}, collector.Options{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- c.Run(ctx) }()
				advance(5 * time.Second)
				restore := s.Backup()
				s.Remove("configmaps", "web")
				for seconds := 0; !network.broken() && seconds < 600; seconds++ {
					advance(time.Second)
				}
				if !network.broken() {
					t.Fatal("the collector deletes nothing")
				}
				advance(10 * time.Minute)
				restore()
				test.restored(s)
				network.repair()
				advance(10 * time.Minute)
				if got, wrong := len(s.UIDs("secrets")), s.Wrong(); got != dependents || len(wrong) > 0 {
					t.Errorf("%d of %d dependents are there; %d were deleted although they have an owner", got, dependents, len(wrong))
				}
				s.Remove("configmaps", "web")
				advance(10 * time.Minute)
				if got := len(s.UIDs("secrets")); got > 0 {
					t.Errorf("%d dependents are left after their owner has been deleted again", got)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("Run = %v", err)
				}
			})
		})
	}
}

// A server fails in the middle of thousands of deletions. The log gets one line a minute, regardless of the queue;
// the collector reports that it is not ready; and it deletes the rest when the server is back.
func TestOutageInTheMiddleOfACascade(t *testing.T) {
	const dependents, minutes = 3000, 10
	s := wireserver.New(kinds()...)
	family(s, "web", dependents)
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork(s, dependents/3)
		defer func() { network.cut() }()
		var logs transcript.Transcript
		c, err := collector.New(&rest.Config{Host: "http://server", Transport: network}, collector.Options{
			Logger: slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		advance(5 * time.Second)
		s.Remove("configmaps", "web")
		for seconds := 0; !network.broken(); seconds++ {
			if seconds > 600 {
				t.Fatal("the collector deletes nothing")
			}
			advance(time.Second)
		}
		advance(minutes * time.Minute)
		if got := strings.Count(logs.String(), "\n"); got < 1 || got > minutes+1 {
			t.Errorf("%d lines in %d minutes, want one a minute:\n%s", got, minutes, logs.String())
		}
		if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "cannot be reached since") {
			t.Errorf("while the server is away, Ready() = %v", err)
		}
		if left := len(s.UIDs("secrets")); left < dependents/2 {
			t.Errorf("%d objects are left: the network did not break in the middle", left)
		}
		network.repair()
		advance(10 * time.Minute)
		secrets(t, "when the server is back", s)
		if wrong := s.Wrong(); len(wrong) > 0 {
			t.Errorf("deleted although they have an owner: %v", wrong)
		}
		if err := c.Ready(); err != nil {
			t.Errorf("when the server is back: %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}
