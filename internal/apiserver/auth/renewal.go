package auth

import (
	"context"
	"net"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/utils/clock"
)

// renewalCheck is the interval between checks of whether certificates are due, in wall-clock time: a
// machine may have slept for a month.
const renewalCheck = time.Hour

// dueAt returns when a certificate must be replaced: when a third of its lifetime is left, so that there is
// time to notice failed renewals.
func dueAt(from, until time.Time) time.Time { return until.Add(-until.Sub(from) / 3) }

// KeepFresh calls renew whenever the last pair is due, until ctx ends. If renew fails, KeepFresh calls
// failed with the error, and renew again an hour later.
func KeepFresh(ctx context.Context, c clock.WithTicker, current Pair, renew func() (Pair, error), failed func(error)) {
	ticker := c.NewTicker(renewalCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if c.Now().Round(0).Before(current.Due) { // without the monotonic clock, which stops during sleep
			continue
		}
		fresh, err := renew()
		if err != nil {
			failed(err)
			continue
		}
		current = fresh
	}
}

// ServingCertificate is a server's certificate. It is replaced before it expires, while the server serves.
type ServingCertificate struct {
	authority *Authority
	address   net.IP
	also      []string // additional names and addresses
	clock     clock.WithTicker
	failed    func(error)

	mu        sync.Mutex
	pair      Pair                           // guarded by mu
	listeners []dynamiccertificates.Listener // guarded by mu
}

var (
	_ dynamiccertificates.CertKeyContentProvider = (*ServingCertificate)(nil)
	_ dynamiccertificates.ControllerRunner       = (*ServingCertificate)(nil)
)

// NewServingCertificate issues the first certificate. failed is called when renewal fails.
func NewServingCertificate(a *Authority, address net.IP, c clock.WithTicker, failed func(error), also ...string) (*ServingCertificate, error) {
	pair, err := a.Serving(address, also...)
	if err != nil {
		return nil, err
	}
	return &ServingCertificate{authority: a, address: address, clock: c, failed: failed, also: also, pair: pair}, nil
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (s *ServingCertificate) Name() string { return "serving" }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (s *ServingCertificate) CurrentCertKeyContent() (certificate, key []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pair.Certificate, s.pair.Key
}

// AddListener implements dynamiccertificates.Notifier.
func (s *ServingCertificate) AddListener(l dynamiccertificates.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, l)
}

// RunOnce implements dynamiccertificates.ControllerRunner. A certificate exists already.
func (s *ServingCertificate) RunOnce(context.Context) error { return nil }

// Run implements dynamiccertificates.ControllerRunner. The server runs it.
func (s *ServingCertificate) Run(ctx context.Context, _ int) {
	s.mu.Lock()
	current := s.pair
	s.mu.Unlock()
	KeepFresh(ctx, s.clock, current, s.renew, s.failed)
}

func (s *ServingCertificate) renew() (Pair, error) {
	pair, err := s.authority.Serving(s.address, s.also...)
	if err != nil {
		return Pair{}, err
	}
	s.mu.Lock()
	s.pair = pair
	listeners := s.listeners
	s.mu.Unlock()
	for _, l := range listeners {
		l.Enqueue()
	}
	return pair, nil
}
