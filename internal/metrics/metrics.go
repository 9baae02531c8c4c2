// Package metrics gives what a collector counts the form that Prometheus reads.
//
// A Set belongs to one collector and has a registry of its own; nothing is global.
// Most of it is read when it is asked for (Reading). Requests are counted here, by a
// transport around the client's (Transport).
//
// No name of an object is ever a label, nor is any text that a user could choose at
// will: the number of time series is bounded by the number of resources.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/coppice-dev/coppice/internal/collector"
	"github.com/coppice-dev/coppice/internal/feed"
)

// Reading is how a collector is doing at the moment it is asked.
type Reading struct {
	Synced    bool
	Monitors  []feed.MonitorStatus
	Collector collector.Status
}

// Set is the metrics of one collector. Make one with New.
type Set struct {
	registry *prometheus.Registry

	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

// New returns the metrics of a collector that read tells of.
func New(read func() Reading) *Set {
	s := &Set{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coppice_requests_total", Help: "Requests to the API server, by verb and HTTP status code; the code is \"none\" when there was no answer.",
		}, []string{"verb", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coppice_request_duration_seconds", Help: "Time to the answer of a request, watches left out.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"verb"}),
	}
	s.registry.MustRegister(s.requests, s.durations, reading{read, descriptions()},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Gatherer is what a handler reads.
func (s *Set) Gatherer() prometheus.Gatherer { return s.registry }
