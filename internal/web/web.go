// Package web answers questions about a collector over HTTP.
//
//	/healthz /livez                             the process answers
//	/readyz                                     what there is was read, and is collected
//	/metrics                                    for Prometheus
//	/status                                     how everything is doing, as JSON
//	/records                                    the last changes that were made, with their reasons, as JSON
//	/debug/controllers/garbagecollector/graph   who owns whom: ?uid=… (repeatable), ?format=dot|json|svg
//
// Handler serves all of them. They name objects, so Handler is for a place where
// only those get to who may know: an address of the loopback interface behind Local,
// or a server that asks for credentials. Probes serves the first three lines only,
// which name resources and no object.
//
// Everything is read only, but for one request:
//
//	POST /resume?kind=ReplicaSet.apps           lets deletions go on that the breaker has paused
package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/coppice-dev/coppice/internal/insight"
	"github.com/coppice-dev/coppice/internal/ownership"
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
	// Graph is where upstream's controller manager serves its graph.
	Graph = "/debug/controllers/garbagecollector/graph"
)

// Source is who knows the answers.
type Source interface {
	// Ready returns why the collector is not ready; nil if it is.
	Ready() error
	// Status and Records are turned into JSON.
	Status() any
	Records() any
	// Picture is the ownership graph, or what is connected with some objects.
	Picture(uids ...ownership.UID) insight.Graph
	// Resume lets the deletions of a kind go on; false when they were not paused.
	Resume(kind string) bool
	// Metrics are what /metrics gathers.
	Metrics() prometheus.Gatherer
}

// Handler serves all paths.
func Handler(s Source) http.Handler {
	mux := http.NewServeMux()
	probes(mux, s)
	mux.HandleFunc("GET "+Status, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Status()) })
	mux.HandleFunc("GET "+Records, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Records()) })
	mux.HandleFunc("GET "+Graph, func(w http.ResponseWriter, r *http.Request) { writeGraph(w, r, s) })
	mux.HandleFunc("POST "+Resume, func(w http.ResponseWriter, r *http.Request) { resume(w, r, s) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		for _, path := range []string{Healthz, Livez, Readyz, Metrics, Status, Records, Graph} {
			_, _ = io.WriteString(w, path+"\n")
		}
	})
	// A page on the web may have a browser send a POST, but not without saying whose it is.
	return guarded(http.NewCrossOriginProtection().Handler(mux))
}

// Probes serves the health paths and the metrics.
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
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		ok(w, r)
	})
	mux.Handle("GET "+Metrics, promhttp.HandlerFor(s.Metrics(), promhttp.HandlerOpts{}))
}

// guarded keeps browsers from taking an answer for what it is not.
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
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = body.WriteTo(w)
}

func writeGraph(w http.ResponseWriter, r *http.Request, s Source) {
	query := r.URL.Query()
	format, err := insight.ParseFormat(query.Get("format"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var uids []ownership.UID
	for _, uid := range query["uid"] {
		uids = append(uids, ownership.UID(uid))
	}
	body, err := s.Picture(uids...).Encode(format)
	if err != nil {
		code := http.StatusInternalServerError
		if large := (insight.TooLargeError{}); errors.As(err, &large) {
			code = http.StatusUnprocessableEntity
		}
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", format.ContentType())
	_, _ = w.Write(body)
}

func resume(w http.ResponseWriter, r *http.Request, s Source) {
	kind := r.URL.Query().Get("kind")
	switch {
	case kind == "":
		http.Error(w, "name the kind whose deletions are to go on: "+Resume+"?kind=ReplicaSet.apps", http.StatusBadRequest)
	case !s.Resume(kind):
		http.Error(w, "deletions of "+kind+" are not paused", http.StatusNotFound)
	default:
		_, _ = io.WriteString(w, "deletions of "+kind+" go on\n")
	}
}

// Local lets requests through that name a loopback address as their host, and no
// others. A page on the web can have a browser resolve a name of its own to
// 127.0.0.1 and read the answer; but it cannot have it say "localhost" with that.
func Local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			http.Error(w, "this address answers requests to localhost only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
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
