package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// shared is the server for tests that do not need their own. Each test uses its own namespaces.
var shared struct {
	once   sync.Once
	server *server
	err    error
}

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // tests provoke errors
	eventually.SideBySide(4)
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if left := leftGoroutines(); left != "" {
		fmt.Fprintf(os.Stderr, "goroutines of this module are left behind:\n%s\n", left)
		code = max(code, 1)
	}
	os.Exit(code)
}

// leftGoroutines returns the stacks of goroutines of this module that do not end.
func leftGoroutines() string {
	var left []string
	if eventually.True(func() bool {
		left = left[:0]
		buffer := make([]byte, 16<<20)
		for i, stack := range strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
			if i > 0 && strings.Contains(stack, "github.com/coppice-dev/coppice/") { // the first is this one
				left = append(left, stack)
			}
		}
		return len(left) == 0
	}) {
		return ""
	}
	return strings.Join(left, "\n\n")
}

// server is an API server under test, on a store that is not synced to disk.
type server struct {
	*apiserver.Server
	url       string
	authority *auth.Authority
	store     *etcd.Store
	config    *rest.Config

	// intercept, if not nil, is put in front of the handlers of the next server.
	intercept func(http.Handler) http.Handler

	dir     string
	ends    context.CancelFunc
	ended   chan error
	stopped sync.Once
}

// sharedServer returns the server that most tests share.
func sharedServer(t *testing.T) *server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = start(nil) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// startServer starts a server for one test. change, if not nil, changes its configuration.
func startServer(t *testing.T, change func(*apiserver.Config)) *server {
	t.Helper()
	s, err := start(change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start starts a server and waits until it is ready.
func start(change func(*apiserver.Config)) (*server, error) {
	dir, err := os.MkdirTemp("", "apiserver-test-*")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, ended: make(chan error, 1)}
	if s.store, err = etcd.Open(context.Background(), etcd.Options{Dir: filepath.Join(dir, "etcd"), Ephemeral: true}); err != nil {
		return nil, err
	}
	if s.authority, err = auth.LoadAuthority(filepath.Join(dir, "pki"), time.Now); err != nil {
		return nil, err
	}
	return s, s.serve(change)
}

// serve starts a server on the store that s has, and waits until it is ready.
func (s *server) serve(change func(*apiserver.Config)) error {
	if err := s.launch(change); err != nil {
		return err
	}
	return s.awaitReady()
}

// launch starts a server on the store that s has.
func (s *server) launch(change func(*apiserver.Config)) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.url = "https://" + listener.Addr().String()
	c := apiserver.Config{
		Listener: listener, Store: s.store, Authority: s.authority, Version: version.Kubernetes(), Now: time.Now, Features: apiserver.AllFeatures(),
		ConnectionGrace: 50 * time.Millisecond, // no test needs the connections of a server that it stops
	}
	c.Features.ServiceAccounts = false // no controller creates the accounts
	if change != nil {
		change(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.ends = cancel
	if s.Server, err = apiserver.New(ctx, c); err != nil {
		cancel()
		return errors.Join(err, listener.Close(), s.store.Close(), os.RemoveAll(s.dir))
	}
	s.config = s.Client()
	if s.intercept != nil {
		s.Intercept(s.intercept)
	}
	go func() { s.ended <- s.Run(ctx) }()
	return nil
}

func (s *server) awaitReady() error {
	select {
	case <-s.Ready():
		return nil
	case err := <-s.ended:
		s.ended <- err
		return errors.Join(errors.New("the server ended before it was ready"), s.stop())
	case <-time.After(eventually.Patience):
		return errors.Join(errors.New("the server does not become ready"), s.stop())
	}
}

// restart stops the server and starts another on its store.
func (s *server) restart(t *testing.T) {
	t.Helper()
	s.end(t)
	if err := s.serve(nil); err != nil {
		t.Fatal(err)
	}
}

// end stops the server, and keeps its store.
func (s *server) end(t *testing.T) {
	t.Helper()
	s.ends()
	select {
	case err := <-s.ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(eventually.Patience):
		t.Fatal("the server does not stop")
	}
}

// stop stops the server and closes its store.
func (s *server) stop() error {
	var err error
	s.stopped.Do(func() {
		s.ends()
		select {
		case err = <-s.ended:
		case <-time.After(eventually.Patience):
			err = errors.New("the server does not stop")
		}
		err = errors.Join(err, s.store.Close(), os.RemoveAll(s.dir))
	})
	return err
}

func disableCollector(c *apiserver.Config) { c.Features.Collector = false }
