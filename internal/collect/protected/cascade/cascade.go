// Package cascade marks the requests of a controller that deletes objects because other objects were deleted,
// so that our server recognizes them under any user (R28). Other servers ignore the mark, and go by the user.
// The mark can only cause more refusals.
package cascade

import "net/http"

// Header is the header of such a request.
const Header = "Coppice-Cascade"

// Transport marks the DELETEs that are sent through it.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		r = r.Clone(r.Context())
		r.Header.Set(Header, "true")
	}
	return t.next.RoundTrip(r)
}

// Marked reports whether a request is part of a cascade.
func Marked(r *http.Request) bool { return r.Header.Get(Header) != "" }
