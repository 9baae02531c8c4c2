package auth

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	testingclock "k8s.io/utils/clock/testing"
)

// counting accepts certificates whose first byte is not 0, and counts its calls.
type counting struct{ calls int }

func (c *counting) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	c.calls++
	raw := r.TLS.PeerCertificates[0].Raw
	if raw[0] == 0 {
		return nil, false, fmt.Errorf("certificate %x is refused", raw)
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: fmt.Sprintf("%x", raw)}}, true, nil
}

func TestCertificateIsVerifiedOncePerMinute(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	longLived := now.Add(time.Hour)
	one, other := &x509.Certificate{Raw: []byte{1}, NotAfter: longLived}, &x509.Certificate{Raw: []byte{2}, NotAfter: longLived}
	brief, bad := &x509.Certificate{Raw: []byte{3}, NotAfter: now.Add(10 * time.Second)}, &x509.Certificate{Raw: []byte{0}, NotAfter: longLived}
	tests := map[string]struct {
		shown []*x509.Certificate // one by one, with step between them
		step  time.Duration
		calls int
	}{
		"the same":              {[]*x509.Certificate{one, one, one}, time.Second, 1},
		"the same, later":       {[]*x509.Certificate{one, one}, cachedFor, 2},
		"two":                   {[]*x509.Certificate{one, other, one, other}, time.Second, 2},
		"expired meanwhile":     {[]*x509.Certificate{brief, brief}, 10 * time.Second, 2},
		"refused is not cached": {[]*x509.Certificate{bad, bad}, time.Second, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			next, clock := &counting{}, testingclock.NewFakePassiveClock(now)
			v := newCertificateCache(next, clock)
			for _, certificate := range test.shown {
				response, ok, err := v.AuthenticateRequest(request(t, "/", certificate))
				if accepted := certificate.Raw[0] != 0; ok != accepted || (err == nil) != accepted {
					t.Fatalf("certificate %x: %t, %v", certificate.Raw, ok, err)
				}
				if want := fmt.Sprintf("%x", certificate.Raw); ok && response.User.GetName() != want {
					t.Errorf("certificate %s is that of %s", want, response.User.GetName())
				}
				clock.SetTime(clock.Now().Add(test.step))
			}
			if next.calls != test.calls {
				t.Errorf("verified %d times, want %d", next.calls, test.calls)
			}
		})
	}
}

func TestCertificateWithOthersIsVerifiedEachTime(t *testing.T) {
	now := time.Now()
	next := &counting{}
	v := newCertificateCache(next, testingclock.NewFakePassiveClock(now))
	r := request(t, "/", &x509.Certificate{Raw: []byte{1}, NotAfter: now.Add(time.Hour)})
	r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, &x509.Certificate{Raw: []byte{2}})
	for range 2 {
		if _, ok, err := v.AuthenticateRequest(r); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if next.calls != 2 {
		t.Errorf("verified %d times, want 2", next.calls)
	}
}

func TestCertificateCacheIsBounded(t *testing.T) {
	now := time.Now()
	v := newCertificateCache(&counting{}, testingclock.NewFakePassiveClock(now))
	for i := range 2 * maxCached {
		certificate := &x509.Certificate{Raw: []byte{1, byte(i), byte(i >> 8)}, NotAfter: now.Add(time.Hour)}
		if _, ok, err := v.AuthenticateRequest(request(t, "/", certificate)); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if len(v.users) > maxCached {
		t.Errorf("%d certificates are cached", len(v.users))
	}
}
