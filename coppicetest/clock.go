package coppicetest

import (
	"net/http"
	"net/url"
	"testing"
	"time"
)

// Advance moves the clock of the simulated nodes forward: events that were due in that time, such
// as the end of a grace period, happen at once. Settled waits for them. Advance needs
// WithMovableClock.
func (p *Plane) Advance(t testing.TB, by time.Duration) {
	t.Helper()
	path := "/coppice/nodes/clock?" + url.Values{"advance": {by.String()}}.Encode()
	if err := p.api.do(t.Context(), request{method: http.MethodPost, path: path}, nil); err != nil {
		if isCode(err, http.StatusNotFound) {
			t.Fatalf("advance: the clock cannot be moved: start the plane with WithMovableClock")
		}
		t.Fatalf("advance: %v", err)
	}
}
