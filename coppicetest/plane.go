package coppicetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-dev/coppice/coppicetest/leaks"
)

// Plane is a test's control plane, or a collector that is attached to one.
type Plane struct {
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// Host is the URL of the API server.
	Host string
	// CertificateAuthority verifies the server; Certificate and Key are the administrator's. All
	// are in PEM.
	CertificateAuthority, Certificate, Key []byte

	process *process
	api     *client // the API server
	status  *client // the diagnostics of the collector
	dir     string  // the data directory; "" if attached
	audit   bool
	bare    bool // there is no collector to ask

	mu     sync.Mutex
	since  mark                    // guarded by mu
	kept   map[string]bool         // guarded by mu; the UIDs of the objects that Reset leaves
	seen   map[string]leaks.Object // guarded by mu; the objects that were read since, by UID
	plan   *string                 // guarded by mu; of the faults before Faults was called; nil if it was not
	closed bool                    // guarded by mu

	isChanged bool // guarded by mu; Keep was called, so Reset leads to another state than that of the start
}

// Start starts a control plane that stops at the end of the test. Tests that run in parallel may
// have one each. The test fails if the control plane cannot be started.
func Start(t testing.TB, options ...Option) *Plane {
	t.Helper()
	p, err := Open(t.Context(), options...)
	if err != nil {
		t.Fatalf("start a control plane: %v", err)
	}
	p.endWith(t)
	return p
}

// Open starts a control plane that the caller closes, for callers that are not a test, such as
// TestMain.
func Open(ctx context.Context, options ...Option) (*Plane, error) {
	var s settings
	for _, set := range options {
		set(&s)
	}
	if err := s.validate(); err != nil {
		return nil, err
	}
	binary, err := binaryOf(ctx, s)
	if err != nil {
		return nil, err
	}
	p := &Plane{audit: s.audit, bare: s.bare}
	p.process, err = startProcess(binary, s.command(), p.isReady)
	if err != nil {
		return nil, err
	}
	p.dir = filepath.Dir(p.Kubeconfig)
	if err := p.connect(ctx, s.definitions); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func binaryOf(ctx context.Context, s settings) (string, error) {
	if s.binary != "" {
		return s.binary, nil
	}
	return Binary(ctx)
}

// isReady reads a line of coppice up.
func (p *Plane) isReady(line string) bool {
	if path, ok := strings.CutPrefix(line, "export KUBECONFIG="); ok {
		p.Kubeconfig = unquoted(path)
	}
	return strings.HasPrefix(line, "ready ")
}

// unquoted returns a word that coppice up quotes for a shell if it has other characters than most paths.
func unquoted(word string) string {
	inner, ok := strings.CutPrefix(word, "'")
	if !ok {
		return word
	}
	return strings.ReplaceAll(strings.TrimSuffix(inner, "'"), `'\''`, "'")
}

// connect makes the clients and applies the definitions.
func (p *Plane) connect(ctx context.Context, definitions []source) error {
	if err := p.open(); err != nil {
		return err
	}
	p.status = p.api
	if err := p.apply(ctx, definitions); err != nil {
		return err
	}
	// Objects that existed before the test are no leaks, and Reset leaves them.
	return p.keep(ctx)
}

// open makes the client of the API server.
func (p *Plane) open() error {
	access, err := readKubeconfig(p.Kubeconfig)
	if err != nil {
		return err
	}
	p.Host, p.CertificateAuthority, p.Certificate, p.Key = access.server, access.authority, access.certificate, access.key
	p.api, err = newClient(access)
	return err
}

// endWith closes the plane at the end of the test. If the test has failed, its output lists the
// collected objects.
func (p *Plane) endWith(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() && !p.bare {
			p.explain(t)
		}
		if err := p.Close(); err != nil {
			t.Errorf("stop the control plane: %v", err)
		}
	})
}

// explain writes the collected objects and the logs to the output of a failed test.
func (p *Plane) explain(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), requestTimeout)
	defer cancel()
	deletions, err := p.deletions(ctx)
	if err != nil {
		t.Logf("the collected objects are unknown: %v", err)
	}
	var text strings.Builder
	for _, d := range deletions {
		fmt.Fprintf(&text, "\n  %s", d)
	}
	t.Logf("coppice made %d changes since the last mark:%s", len(deletions), text.String())
	p.explainFaults(ctx, t)
	if p.audit {
		t.Logf("the audit log:\n%s", readFile(filepath.Join(p.dir, "audit.log")))
	}
	if log := p.process.log.String(); log != "" {
		t.Logf("the log of coppice:\n%s", log)
	}
}

// Close stops the control plane and removes its data. Only callers of Open need it. A second call
// does nothing.
func (p *Plane) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return nil
	}
	for _, c := range []*client{p.api, p.status} {
		if c != nil {
			c.close()
		}
	}
	return p.process.stop()
}
