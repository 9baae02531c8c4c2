package web

import (
	"io"
	"net/http"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// StandBy wraps a handler for a process that can answer only while it leads. While standsBy
// reports that this process stands by, it is healthy, serves its metrics, and answers
// other requests with the holder of the Lease. It is ready if warm returns nil: if it could lead now.
func StandBy(standsBy func() (holder string, yes bool), warm func() error, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		holder, yes := standsBy()
		switch {
		case !yes, r.URL.Path == Metrics, r.URL.Path == Healthz, r.URL.Path == Livez:
			next.ServeHTTP(w, r)
		case r.URL.Path == Readyz:
			if err := warm(); err != nil {
				http.Error(w, escape.Line("standing by: "+err.Error()), http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, escape.Sprintf("ok, standing by: %s leads\n", holder))
		default:
			http.Error(w, escape.Line("standing by: "+holder+" leads"), http.StatusServiceUnavailable)
		}
	})
}
