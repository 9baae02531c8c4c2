package auditreason

import "net/http"

// CascadeHeader is the header of a DELETE that a controller sends because other objects were deleted. Our server
// recognizes the DELETE by it under any user (R28). Other servers ignore the header, and go by the user. Any client can
// send it, so it may only cause more refusals.
const CascadeHeader = "Coppice-Cascade"

// MarkCascade returns a round tripper that adds the CascadeHeader to each DELETE.
func MarkCascade(next http.RoundTripper) http.RoundTripper { return cascade{next} }

type cascade struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t cascade) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		r = r.Clone(r.Context())
		r.Header.Set(CascadeHeader, "true")
	}
	return t.next.RoundTrip(r)
}

// IsCascade reports whether a DELETE has the header of a collector or of a namespace controller.
func IsCascade(r *http.Request) bool {
	return r.Header.Get(Header) != "" || r.Header.Get(CascadeHeader) != ""
}
