package protected

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

const (
	// maxParked and maxBytes bound the remembered refusals; beyond them, requests are sent as they come.
	maxParked = 10_000
	maxBytes  = 8 << 20
	// maxAnswer bounds a remembered answer, in bytes.
	maxAnswer = 16 << 10
)

// ParkingTransport keeps clients from requesting the deletion of a protected object again and again. A controller retries
// failed requests, at first at once; its DELETE of a protected object cannot succeed before that object has changed, or
// before the objects that it outlives are gone.
//
// It remembers the refusals and answers itself when the same request comes again within a minute. A request for an object
// that has changed is another one, because it names the uid and the resourceVersion that it is conditioned on. It is for
// clients that delete objects by name: requests for a collection are equal even if its objects differ.
//
// It is safe for concurrent use.
type ParkingTransport struct {
	next  http.RoundTripper
	clock clock.PassiveClock
	some  atomic.Bool // whether any request is parked

	mu     sync.Mutex
	parked map[key]answer // guarded by mu
	bytes  int            // guarded by mu; of the answers
}

// key is the digest of a request.
type key [sha256.Size]byte

// answer is a refusal.
type answer struct {
	until  time.Time
	status int
	header http.Header
	body   []byte
}

// NewParkingTransport returns a transport that sends through next.
func NewParkingTransport(next http.RoundTripper, clock clock.PassiveClock) *ParkingTransport {
	return &ParkingTransport{next: next, clock: clock, parked: make(map[key]answer)}
}

// RoundTrip implements http.RoundTripper.
func (t *ParkingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodDelete {
		return t.next.RoundTrip(r)
	}
	if t.some.Load() {
		if id, ok := keyOf(r); ok {
			if a, parked := t.find(id); parked {
				return a.response(r), nil
			}
		}
	}
	response, err := t.next.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusForbidden {
		return response, err
	}
	return response, t.park(r, response)
}

// park remembers a refusal; the response can be read as before.
func (t *ParkingTransport) park(r *http.Request, response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		_ = response.Body.Close()
		return err
	}
	rest := response.Body
	response.Body = readCloser{io.MultiReader(bytes.NewReader(body), rest), rest}
	// JSON and protobuf both contain the label literally.
	id, ok := keyOf(r)
	if !ok || len(body) == maxAnswer || !strings.Contains(string(body), protection.Label) {
		return nil
	}
	now := t.clock.Now()
	a := answer{now.Add(protection.RetryAfter), response.StatusCode, response.Header.Clone(), bytes.Clone(body)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.parked) >= maxParked || t.bytes+a.size() > maxBytes {
		t.sweepLocked(now)
	}
	if len(t.parked) < maxParked && t.bytes+a.size() <= maxBytes {
		t.bytes += a.size() - t.parked[id].size()
		t.parked[id] = a
	}
	t.some.Store(len(t.parked) > 0)
	return nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

func (t *ParkingTransport) find(id key) (answer, bool) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	a, ok := t.parked[id]
	if ok && now.Before(a.until) {
		return a, true
	}
	t.sweepLocked(now)
	t.some.Store(len(t.parked) > 0)
	return answer{}, false
}

func (t *ParkingTransport) sweepLocked(now time.Time) {
	for id, a := range t.parked {
		if !now.Before(a.until) {
			t.bytes -= a.size()
			delete(t.parked, id)
		}
	}
}

// keyOf returns the digest of a request; false if its body cannot be read twice.
func keyOf(r *http.Request) (key, bool) {
	digest := sha256.New()
	_, _ = io.WriteString(digest, r.URL.String()+"\n")
	if r.Body != nil && r.Body != http.NoBody {
		if r.GetBody == nil {
			return key{}, false
		}
		body, err := r.GetBody()
		if err != nil {
			return key{}, false
		}
		defer body.Close()
		if _, err := io.Copy(digest, body); err != nil {
			return key{}, false
		}
	}
	return key(digest.Sum(nil)), true
}

// size returns the number of bytes of an answer.
func (a answer) size() int {
	size := len(a.body)
	for name, values := range a.header {
		size += len(name)
		for _, value := range values {
			size += len(value)
		}
	}
	return size
}

func (a answer) response(r *http.Request) *http.Response {
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header.Clone(), Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r,
	}
}
