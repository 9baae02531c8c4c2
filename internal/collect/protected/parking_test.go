package protected

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

const protectedAnswer = `{"kind":"Status","code":403,"message":"pods \\"a\\" is forbidden: protected by its label coppice.dev/protect=always"}`

// server counts the requests, and answers all of them alike.
type server struct {
	requests int
	status   int
	body     string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests++
	if s.status == 0 {
		return nil, errors.New("down")
	}
	return &http.Response{StatusCode: s.status, Header: http.Header{"A": {"b"}}, Body: io.NopCloser(strings.NewReader(s.body)), Request: r}, nil
}

func send(t *testing.T, transport http.RoundTripper, method, path, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://server"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.Header.Get("A") != "b" {
		t.Errorf("header %v", response.Header)
	}
	return string(text)
}

// The same DELETE of a protected object is sent once a minute; every other request is always sent.
func TestR28_SameRequestIsSentOnceAMinute(t *testing.T) {
	s, clock := &server{status: http.StatusForbidden, body: protectedAnswer}, clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	transport := NewParkingTransport(s, clock)
	sent := func(want int, method, path, body string) {
		t.Helper()
		before := s.requests
		if got := send(t, transport, method, path, body); got != s.body {
			t.Errorf("the answer is %q", got)
		}
		if s.requests-before != want {
			t.Errorf("%s %s %s: %d requests, want %d", method, path, body, s.requests-before, want)
		}
	}
	sent(1, http.MethodDelete, "/pods/a", "version 1")
	sent(0, http.MethodDelete, "/pods/a", "version 1")
	sent(1, http.MethodPatch, "/pods/a", "version 1")
	sent(1, http.MethodDelete, "/pods/b", "version 1")
	sent(1, http.MethodDelete, "/pods/a", "version 2") // it has changed
	clock.SetTime(clock.Now().Add(59 * time.Second))
	sent(0, http.MethodDelete, "/pods/a", "version 1")
	clock.SetTime(clock.Now().Add(time.Second))
	s.status, s.body = http.StatusOK, "gone"
	sent(1, http.MethodDelete, "/pods/a", "version 1")
	sent(1, http.MethodDelete, "/pods/a", "version 1")
	if len(transport.parked) != 0 {
		t.Errorf("%d refusals are remembered after a minute", len(transport.parked))
	}
	s.status, s.body = http.StatusForbidden, "not for you"
	sent(1, http.MethodDelete, "/pods/a", "")
	sent(1, http.MethodDelete, "/pods/a", "")
	s.status = 0
	if got := send(t, transport, http.MethodDelete, "/pods/a", ""); got != "down" {
		t.Errorf("the error is %q", got)
	}
}

// No more bytes of refusals are remembered than the bound. Beyond it, requests are sent as they come.
func TestBytesOfRefusalsAreBounded(t *testing.T) {
	s, clock := &server{status: http.StatusForbidden, body: protectedAnswer + strings.Repeat(" ", maxAnswer/2)}, clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	transport := NewParkingTransport(s, clock)
	const objects = 2 * maxBytes / (maxAnswer / 2)
	for i := range objects {
		send(t, transport, http.MethodDelete, fmt.Sprint("/pods/", i), "")
	}
	if transport.bytes > maxBytes || transport.bytes < maxBytes-maxAnswer {
		t.Errorf("%d bytes are remembered, want nearly %d", transport.bytes, maxBytes)
	}
	for i := range objects {
		send(t, transport, http.MethodDelete, fmt.Sprint("/pods/", i), "")
	}
	if s.requests < objects*3/2 {
		t.Errorf("%d requests were sent for %d objects, twice", s.requests, objects)
	}
	clock.SetTime(clock.Now().Add(time.Minute))
	send(t, transport, http.MethodDelete, "/pods/0", "")
	if n := len(transport.parked); n != 1 || transport.bytes > maxAnswer {
		t.Errorf("%d refusals with %d bytes are remembered after a minute", n, transport.bytes)
	}
}
