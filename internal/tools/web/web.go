// Package web serves the diagnostics of a collector over HTTP.
//
//	/healthz /livez                             the process responds
//	/readyz                                     the controllers are synced
//	/metrics                                    for Prometheus
//	/status                                     the state of the collector, as JSON
//	/records                                    the collector's last changes, with their reasons, as JSON
//	/settled                                    whether collection is idle, as JSON: ?timeout=10s waits for it
//	/debug/controllers/garbagecollector/graph   the ownership graph: ?uid=… (repeatable), ?format=dot|json|svg
//
// Handler serves all of them. They name objects, and Handler does not authenticate requests, so
// it must be served on a loopback address behind Local, or by a server that authenticates
// requests. Probes serves only the first three lines, which name resources but no objects.
//
// Everything is read-only, except for one request:
//
//	POST /resume?kind=ReplicaSet.apps           resumes deletions that the breaker has paused
package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// The paths.
const (
	Healthz = "/healthz"
	Livez   = "/livez"
	Readyz  = "/readyz"
	Metrics = "/metrics"
	Status  = "/status"
	Records = "/records"
	Resume  = "/resume"
	Settled = "/settled"
	// Graph is the path at which upstream's controller manager serves its graph.
	Graph = "/debug/controllers/garbagecollector/graph"
)

// DefaultAddress is the address on which coppice collect serves the diagnostics by default.
const DefaultAddress = "127.0.0.1:10270"

// Source provides the diagnostics.
type Source interface {
	// Ready returns nil if the controllers are ready, otherwise the reason why they are not.
	Ready() error
	// Status returns the state of the collector; Records its last changes, the oldest first.
	Status() report.Status
	Records() []report.Record
	// Settle waits until collection is idle or ctx ends, and returns the outcome.
	Settle(ctx context.Context) report.Settlement
	// Picture returns the ownership graph, or the connected components of the given objects.
	Picture(uids ...ownership.UID) insight.Graph
	// Resume resumes the deletions of a kind, and reports whether they were paused.
	Resume(kind string) bool
	// Metrics returns the gatherer for /metrics.
	Metrics() prometheus.Gatherer
}

// Handler returns a handler for all paths.
func Handler(s Source) http.Handler {
	mux := http.NewServeMux()
	probes(mux, s)
	mux.HandleFunc("GET "+Status, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Status()) })
	mux.HandleFunc("GET "+Records, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Records()) })
	mux.Handle("GET "+Settled, notFromElsewhere(func(w http.ResponseWriter, r *http.Request) { settle(w, r, s) }))
	mux.HandleFunc("GET "+Graph, func(w http.ResponseWriter, r *http.Request) { writeGraph(w, r, s) })
	mux.HandleFunc("POST "+Resume, func(w http.ResponseWriter, r *http.Request) { resume(w, r, s) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		for _, path := range []string{Healthz, Livez, Readyz, Metrics, Status, Records, Settled, Graph} {
			_, _ = io.WriteString(w, path+"\n")
		}
	})
	// A web page can make a browser send a POST to any address; browsers include its origin.
	return guarded(http.NewCrossOriginProtection().Handler(mux))
}

// notFromElsewhere refuses requests that a page of another origin makes a browser send: the page could not read
// the answers, but they take work.
func notFromElsewhere(next http.HandlerFunc) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asIfUnsafe := r.Clone(r.Context())
		asIfUnsafe.Method = http.MethodPost
		if err := protection.Check(asIfUnsafe); err != nil {
			http.Error(w, escape.Line(err.Error()), http.StatusForbidden)
			return
		}
		next(w, r)
	})
}

// Probes returns a handler for the health checks and the metrics.
func Probes(s Source) http.Handler {
	mux := http.NewServeMux()
	probes(mux, s)
	return guarded(mux)
}

func probes(mux *http.ServeMux, s Source) {
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }
	mux.HandleFunc("GET "+Healthz, ok)
	mux.HandleFunc("GET "+Livez, ok)
	mux.HandleFunc("GET "+Readyz, func(w http.ResponseWriter, r *http.Request) {
		if err := s.Ready(); err != nil {
			http.Error(w, escape.Line("not ready: "+err.Error()), http.StatusServiceUnavailable)
			return
		}
		ok(w, r)
	})
	mux.Handle("GET "+Metrics, promhttp.HandlerFor(s.Metrics(), promhttp.HandlerOpts{}))
}

// guarded sets headers that keep browsers from interpreting, running or storing responses.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func writeJSON(w http.ResponseWriter, value any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		http.Error(w, escape.Line(err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, escape.Text(body.String())) // curl prints it on a terminal; the escapes are JSON's
}

// mostGraph is the largest graph, in bytes: the same as for other answers about the ownership graph.
const mostGraph = 64 << 20

// tooLarge refuses a graph.
func tooLarge(w http.ResponseWriter) {
	http.Error(w, escape.Sprintf("the graph would have more than %d MiB: name objects with ?uid=UID, or use coppice graph, which has no limit",
		mostGraph>>20), http.StatusRequestEntityTooLarge)
}

func writeGraph(w http.ResponseWriter, r *http.Request, s Source) {
	query := r.URL.Query()
	format, err := insight.ParseFormat(query.Get("format"))
	if err != nil {
		http.Error(w, escape.Line(err.Error()), http.StatusBadRequest)
		return
	}
	var uids []ownership.UID
	for _, uid := range query["uid"] {
		uids = append(uids, ownership.UID(uid))
	}
	picture := s.Picture(uids...)
	if picture.Bytes() > mostGraph {
		tooLarge(w)
		return
	}
	body, err := picture.Encode(format)
	if err == nil && len(body) > mostGraph {
		tooLarge(w)
		return
	}
	if err != nil {
		code := http.StatusInternalServerError
		if errors.Is(err, insight.ErrTooLarge) {
			code = http.StatusUnprocessableEntity
		}
		http.Error(w, escape.Line(err.Error()), code)
		return
	}
	w.Header().Set("Content-Type", format.ContentType())
	shown := terminal.NewWriter(w) // curl prints it on a terminal
	_, _ = shown.Write(body)
	_ = shown.Close()
}

// mostPatience bounds the wait of a request. Clients that need longer ask again.
const mostPatience = 30 * time.Second

// settle waits until collection is idle, and answers whether it is.
func settle(w http.ResponseWriter, r *http.Request, s Source) {
	patience := time.Duration(0)
	if text := r.URL.Query().Get("timeout"); text != "" {
		var err error
		if patience, err = time.ParseDuration(text); err != nil || patience < 0 {
			http.Error(w, escape.Line("timeout="+text+" is not a duration: "+Settled+"?timeout=10s"), http.StatusBadRequest)
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), max(min(patience, mostPatience), time.Second))
	defer cancel()
	writeJSON(w, s.Settle(ctx))
}

func resume(w http.ResponseWriter, r *http.Request, s Source) {
	kind := r.URL.Query().Get("kind")
	switch {
	case kind == "":
		http.Error(w, escape.Line("name the kind of the deletions to resume: "+Resume+"?kind=ReplicaSet.apps"), http.StatusBadRequest)
	case !s.Resume(kind):
		http.Error(w, escape.Line("deletions of "+kind+" are not paused"), http.StatusNotFound)
	default:
		_, _ = io.WriteString(w, escape.Sprintf("deletions of %s are resumed\n", kind))
	}
}

// Local rejects requests whose host is not a loopback address. A web page can make a browser
// resolve the page's own host name to 127.0.0.1 and read the response (DNS rebinding), but the
// browser then sends that name as the host.
func Local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			http.Error(w, "only requests to localhost are served here", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// IsLoopbackAddress reports whether an address is one of the loopback interface, with a port.
func IsLoopbackAddress(hostPort string) bool {
	_, port, err := net.SplitHostPort(hostPort)
	return err == nil && port != "" && isLoopback(hostPort)
}

func isLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = hostPort
	}
	if slices.Contains([]string{"localhost", "[::1]"}, host) {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}
