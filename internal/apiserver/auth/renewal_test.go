package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
)

func TestDueAt(t *testing.T) {
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	if got, want := dueAt(noon, noon.Add(90*time.Hour)), noon.Add(60*time.Hour); !got.Equal(want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// heard counts the notifications of a listener.
type heard struct{ times int }

func (h *heard) Enqueue() { h.times++ }

// A server that runs for three years never presents an invalid certificate.
func TestServingCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority, err := LoadAuthority(t.TempDir(), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewServingCertificate(authority, nil, clock.RealClock{}, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		news := &heard{}
		s.AddListener(news)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go s.Run(ctx, 1)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority.Certificate())
		shown := sets.New[string]()
		for began := time.Now(); time.Since(began) < 3*365*24*time.Hour; time.Sleep(7 * 24 * time.Hour) {
			synctest.Wait()
			certificate, key := s.CurrentCertKeyContent()
			shown.Insert(string(certificate))
			cert := parse(t, Pair{Certificate: certificate, Key: key})
			if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "localhost", CurrentTime: time.Now()}); err != nil {
				t.Fatalf("after %s: %v", time.Since(began), err)
			}
			if left := time.Until(cert.NotAfter); left < certValidity/4 {
				t.Fatalf("after %s, %s are left", time.Since(began), left)
			}
		}
		if shown.Len() != news.times+1 || shown.Len() < 4 || shown.Len() > 6 {
			t.Errorf("%d were shown, %d announced", shown.Len(), news.times)
		}
	})
}

// A failed renewal is tried again.
func TestRenewalIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		due := time.Now().Add(10 * time.Hour)
		var tries, failures atomic.Int32
		go KeepFresh(ctx, clock.RealClock{}, Pair{Due: due}, func() (Pair, error) {
			if tries.Add(1) < 3 {
				return Pair{}, errors.New("not now")
			}
			return Pair{Due: due.Add(10 * time.Hour)}, nil
		}, func(error) { failures.Add(1) })
		time.Sleep(9*time.Hour + time.Minute)
		synctest.Wait()
		if got := tries.Load(); got != 0 {
			t.Errorf("%d tries before it is due", got)
		}
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		if tries.Load() != 3 || failures.Load() != 2 {
			t.Errorf("%d tries, %d failures", tries.Load(), failures.Load())
		}
	})
}

// No certificate outlives its authority, and loading an expired authority is an error.
func TestAuthorityExpires(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "pki"), time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	a, err := LoadAuthority(dir, clock)
	if err != nil {
		t.Fatal(err)
	}
	end := a.cert.NotAfter
	now = end.Add(-24 * time.Hour)
	if a, err = LoadAuthority(dir, clock); err != nil {
		t.Fatal(err)
	}
	if cert := admin(t, a); cert.NotAfter.After(end) {
		t.Errorf("it is good until %s, its authority until %s", cert.NotAfter, end)
	}
	now = end
	if _, err := LoadAuthority(dir, clock); err == nil || !strings.Contains(err.Error(), "expired at "+end.Format(time.RFC3339)) {
		t.Errorf("%v", err)
	}
}
