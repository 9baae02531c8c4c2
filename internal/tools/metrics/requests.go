package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Transport returns a round tripper that counts requests. It is for rest.Config.Wrap.
func (s *Set) Transport(next http.RoundTripper) http.RoundTripper { return counted{next, s} }

type counted struct {
	next http.RoundTripper
	set  *Set
}

// RoundTrip implements http.RoundTripper.
func (t counted) RoundTrip(r *http.Request) (*http.Response, error) {
	verb := verbOf(r)
	began := time.Now() //nolint:forbidigo // only measured, never decided on
	response, err := t.next.RoundTrip(r)
	code := "none"
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	t.set.requests.WithLabelValues(verb, code).Inc()
	if verb != "watch" {
		t.set.durations.WithLabelValues(verb).Observe(time.Since(began).Seconds())
	}
	return response, err
}

// WrappedRoundTripper implements net.RoundTripperWrapper of k8s.io/apimachinery.
func (t counted) WrappedRoundTripper() http.RoundTripper { return t.next }

// verbOf returns the verb of a request, as named in RBAC rules, or "discover" for a request that is
// not about objects.
func verbOf(r *http.Request) string {
	named, ok := namesObject(r.URL.Path)
	switch {
	case !ok:
		return "discover"
	case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
		return "watch"
	case r.Method == http.MethodGet && named:
		return "get"
	case r.Method == http.MethodGet:
		return "list"
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	case r.Method == http.MethodDelete && !named:
		return "deletecollection"
	}
	return strings.ToLower(r.Method)
}

// namesObject reports whether a path names an object rather than a collection; ok is false if it
// names neither.
func namesObject(path string) (named, ok bool) {
	resource, ok := resourceOf(path)
	if !ok {
		return false, false
	}
	parts := strings.Split(resource, "/")
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	return len(parts) > 1, parts[0] != ""
}

// resourceOf returns the part of a path after /api/v1/ or /apis/group/version/. The server may have a
// path prefix.
func resourceOf(path string) (resource string, ok bool) {
	for _, root := range []struct {
		text  string
		parts int // of the group and version
	}{{"/apis/", 2}, {"/api/", 1}} {
		_, after, found := strings.Cut(path, root.text)
		if parts := strings.SplitN(after, "/", root.parts+1); found && len(parts) == root.parts+1 {
			return parts[root.parts], true
		}
	}
	return "", false
}
