package collector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// outage is what happens to a request while a server is away.
type outage uint8

const (
	// refuses requests at once.
	refuses outage = iota
	// swallows requests: they end by their own timeouts. Open watches end when the server is back, as for all that follows.
	swallows
	// delays requests until the server is back, as a connection that is being opened does.
	delays
)

// page is an answer of a load balancer, or of an API server that is not ready.
type page struct {
	code        int
	contentType string
	body        string
}

// backend returns an answer of a load balancer.
func backend(code int) *page { return &page{code, "text/plain", "default backend"} }

// starting returns an answer of an API server that has not read who may do what.
func starting(code int, reason string) *page {
	return &page{code, "application/json", fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)}
}

func (p *page) response(r *http.Request) *http.Response {
	return &http.Response{StatusCode: p.code, Body: io.NopCloser(strings.NewReader(p.body)), Header: http.Header{"Content-Type": {p.contentType}}, Request: r}
}

// network is the way to a server. It breaks, with all open watches, at a number of DELETEs.
type network struct {
	server *wireserver.Server

	outage outage

	mu      sync.Mutex
	front   *page // answers in place of the server; nil: nothing does; guarded by mu, and so is all below
	onAway  *page // becomes front when it breaks
	left    int   // DELETEs until it breaks
	isDown  bool
	running context.Context // ends when the network breaks
	cut     context.CancelFunc
	back    chan struct{} // closed when it is repaired
}

func newNetwork(s *wireserver.Server, left int) *network {
	n := &network{server: s, left: left}
	n.repair()
	return n
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	running, back, front, ok := n.enter(r.Method == http.MethodDelete)
	switch {
	case front != nil:
		return front.response(r), nil
	case ok:
	case n.outage == swallows:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case n.outage == delays:
		select {
		case <-back:
			return n.RoundTrip(r)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	default:
		return nil, errors.New("connection refused")
	}
	ctx, cancel := context.WithCancel(r.Context())
	context.AfterFunc(running, cancel)
	response, err := n.server.RoundTrip(r.WithContext(ctx))
	if err == nil && n.outage != refuses {
		response.Body = &silent{response.Body, r.Context(), running, back}
	}
	return response, err
}

// silent is an answer that does not end before the network is repaired.
type silent struct {
	io.ReadCloser

	request, running context.Context
	back             <-chan struct{}
}

// Read implements io.Reader.
func (s *silent) Read(part []byte) (int, error) {
	n, err := s.ReadCloser.Read(part)
	if s.running.Err() != nil {
		select {
		case <-s.back:
		case <-s.request.Done():
		}
		return 0, errors.New("connection reset")
	}
	return n, err
}

func (n *network) enter(deletes bool) (running context.Context, back <-chan struct{}, front *page, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if deletes {
		if n.left--; n.left == 0 {
			n.isDown, n.front = true, n.onAway
			n.cut()
		}
	}
	return n.running, n.back, n.front, !n.isDown
}

// answer makes a page the answer to all requests; nil: the server answers.
func (n *network) answer(p *page) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.front = p
}

func (n *network) repair() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isDown = false
	if n.back != nil {
		close(n.back)
	}
	n.back = make(chan struct{})
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
	const short, long = 10 * time.Second, 10 * time.Minute
	for name, test := range map[string]struct {
		restored func(*wireserver.Server)
		front    *page // answers while the server is away
		outage   outage
		lasts    time.Duration
		starting *page // answers for some seconds after the restore
	}{
		"with its revisions":                        {restored: asItWas, lasts: long},
		"with its revisions, behind a gateway":      {restored: asItWas, front: backend(http.StatusServiceUnavailable), lasts: long},
		"with higher revisions":                     {restored: raised, lasts: long},
		"with higher revisions, behind a gateway":   {restored: raised, front: backend(http.StatusServiceUnavailable), lasts: long},
		"requests hang":                             {restored: asItWas, outage: swallows, lasts: long},
		"requests hang, with higher revisions":      {restored: raised, outage: swallows, lasts: long},
		"requests hang, and end after the restore":  {restored: asItWas, outage: swallows, lasts: 20 * time.Second},
		"requests hang, and arrive after a restore": {restored: asItWas, outage: delays, lasts: 20 * time.Second},

		"a front answers 401":                        {restored: asItWas, front: backend(http.StatusUnauthorized), lasts: short},
		"a front answers 403":                        {restored: asItWas, front: backend(http.StatusForbidden), lasts: short},
		"a front answers 404":                        {restored: asItWas, front: backend(http.StatusNotFound), lasts: short},
		"a front answers 429":                        {restored: asItWas, front: backend(http.StatusTooManyRequests), lasts: short},
		"a front answers 500":                        {restored: asItWas, front: backend(http.StatusInternalServerError), lasts: short},
		"a front redirects":                          {restored: asItWas, front: backend(http.StatusFound), lasts: short},
		"a front has a page":                         {restored: asItWas, front: &page{http.StatusOK, "text/html; charset=utf-8", "<html>"}, lasts: short},
		"a front answers 401 for long":               {restored: asItWas, front: backend(http.StatusUnauthorized), lasts: long},
		"a front answers 404 for long":               {restored: asItWas, front: backend(http.StatusNotFound), lasts: long},
		"a front answers 403, with higher revisions": {restored: raised, front: backend(http.StatusForbidden), lasts: short},
		"nobody is known at first":                   {restored: asItWas, lasts: long, starting: starting(http.StatusUnauthorized, "Unauthorized")},
		"nobody may do anything at first":            {restored: asItWas, lasts: long, starting: starting(http.StatusForbidden, "Forbidden")},
		"nothing is served at first":                 {restored: asItWas, lasts: long, starting: backend(http.StatusNotFound)},
		"nobody may do anything, and requests hang":  {restored: asItWas, outage: swallows, lasts: long, starting: starting(http.StatusForbidden, "Forbidden")},
		"nobody is known at first, and higher":       {restored: raised, lasts: long, starting: starting(http.StatusUnauthorized, "Unauthorized")},
		"nobody may do anything, behind a gateway":   {restored: asItWas, front: backend(http.StatusServiceUnavailable), lasts: long, starting: starting(http.StatusForbidden, "Forbidden")},
	} {
		t.Run(name, func(t *testing.T) {
			const dependents = 1000
			s := wireserver.New(kinds()...)
			family(s, "web", dependents)
			synctest.Test(t, func(t *testing.T) {
				network := newNetwork(s, dependents/3)
				network.onAway, network.outage = test.front, test.outage
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
				advance(test.lasts)
				restore()
				test.restored(s)
				if test.starting != nil {
					network.answer(test.starting)
					advance(5 * time.Second)
					if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "cannot be verified after an outage: ") {
						t.Errorf("while the server refuses all requests, Ready() = %v", err)
					}
				}
				network.answer(nil)
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
