package apiserver

import (
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// crossOrigin is the answer to a request that may be forged.
const crossOrigin = "a browser seems to send this request for a page of another origin, perhaps with the client certificate of its user: " +
	"use a page of this server or a program; a proxy that sends it must remove the headers Origin and Sec-Fetch-Site"

// sameOrigin refuses writes that a browser sends for the page of another origin: it may send a user's client certificate
// with them.
func sameOrigin(handler http.Handler) http.Handler {
	return http.NewCrossOriginProtection().Handler(handler)
}

// withoutForgery refuses requests that a browser sends for the page of another origin, without asking the server first, and
// authenticates with the client certificate of its user: a page could run a command in a pod, or read a watch. Upstream
// serves them. A request without a certificate cannot be forged, because a browser adds no token by itself.
//
// It serves programs that name an origin on a loopback address (isOfProgram).
func withoutForgery(handler http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isForgeable(r) {
			asWrite := r.WithContext(r.Context())
			asWrite.Method = http.MethodPost // CrossOriginProtection lets every GET pass, also that of a WebSocket
			if err := protection.Check(asWrite); err != nil && !isOfProgram(r.Header) {
				http.Error(w, escape.Line(crossOrigin), http.StatusForbidden)
				return
			}
		}
		handler.ServeHTTP(w, r)
	})
}

// isOfProgram reports whether a program, and no browser, sends a request with an origin on a loopback address. Programs that
// need an Origin for a WebSocket, such as the conformance tests of Kubernetes, send http://localhost, and no User-Agent.
// The page of any port of the machine has such an origin, too, and Chromium sends no Sec-Fetch-Site with a WebSocket. But
// all browsers send a User-Agent that begins with "Mozilla/", and their scripts cannot change that. So a page behind
// `kubectl proxy` is refused like any other page.
func isOfProgram(header http.Header) bool {
	if header.Get("Sec-Fetch-Site") != "" || strings.HasPrefix(header.Get("User-Agent"), "Mozilla/") {
		return false
	}
	origin, err := url.Parse(header.Get("Origin"))
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(origin.Hostname())
	return err == nil && address.IsLoopback() || strings.EqualFold(origin.Hostname(), "localhost")
}

// isForgeable reports whether a page of another origin could make a browser send a request, have it authenticated, and do harm.
// A browser sends other methods and types of content only if the server allows it.
func isForgeable(r *http.Request) bool {
	if r.TLS != nil && len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	return r.Header.Get("Upgrade") != "" || r.Method == http.MethodPost && isForm(r.Header.Get("Content-Type"))
}

// isForm reports whether a body has one of the content types that forms have, or none that browsers know as another one.
// Resources take a body without a type as JSON; pods, services and nodes get any body through their proxies.
func isForm(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return true
	}
	switch media {
	case "application/x-www-form-urlencoded", "multipart/form-data", "text/plain":
		return true
	}
	return false
}
