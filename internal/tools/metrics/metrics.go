// Package metrics exports the state of a controller as Prometheus metrics.
//
// A Set belongs to one controller and is a prometheus.Collector; nothing is registered globally.
// Most metrics are read at each scrape (reading.go). Requests are counted by a round tripper that
// wraps the client's (Transport).
//
// No label contains the name of an object. Finalizers are the only labels that users choose, and no more
// than a thousand are counted separately. This limit and the number of resources bound the number of time
// series.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/process"
)

// The values of the label "controller", which distinguishes metrics that several controllers have.
// They are the names of the same controllers in kube-controller-manager; CustomResourceFinalizer is a part of the API
// server.
const (
	GarbageCollector        = process.GarbageCollector
	NamespaceController     = process.NamespaceController
	CustomResourceFinalizer = "custom-resource-finalizer"
)

// Set contains the metrics of one controller. Create one with New or ForNamespaces.
type Set struct {
	prometheus.Collector // the metrics that are read at each scrape

	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

// New returns the metrics of a garbage collector. read returns its state.
func New(read func() report.Status) *Set {
	return newSet(GarbageCollector, reading{read, descriptions()})
}

// ForNamespaces returns the metrics of a namespace controller. refused returns the number of objects that the server
// refuses to delete.
func ForNamespaces(isSynced func() bool, refused func() []report.RefusedCount) *Set {
	return newSet(NamespaceController, ofNamespaces{isSynced, refused, map[string]*prometheus.Desc{
		"synced":          prometheus.NewDesc("coppice_synced", syncedHelp, nil, labels(NamespaceController)),
		"refused_objects": refusedObjects(NamespaceController),
	}})
}

// ForDefinitions returns the metrics of the server's deletion of instances. refused returns the number of definitions
// whose instances the server cannot delete.
func ForDefinitions(refused func() []report.RefusedCount) prometheus.Collector {
	return ofDefinitions{refused, map[string]*prometheus.Desc{"refused_objects": refusedObjects(CustomResourceFinalizer)}}
}

// ofDefinitions exports the state of the server's deletion of instances as metrics.
type ofDefinitions struct {
	refused      func() []report.RefusedCount
	descriptions map[string]*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (d ofDefinitions) Describe(to chan<- *prometheus.Desc) {
	for _, one := range d.descriptions {
		to <- one
	}
}

// Collect implements prometheus.Collector.
func (d ofDefinitions) Collect(to chan<- prometheus.Metric) {
	output{to, d.descriptions}.refused(d.refused())
}

// ofNamespaces exports the state of a namespace controller as metrics.
type ofNamespaces struct {
	isSynced     func() bool
	refused      func() []report.RefusedCount
	descriptions map[string]*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (n ofNamespaces) Describe(to chan<- *prometheus.Desc) {
	for _, d := range n.descriptions {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (n ofNamespaces) Collect(to chan<- prometheus.Metric) {
	o := output{to, n.descriptions}
	o.gauge("synced", number(n.isSynced()))
	o.refused(n.refused())
}

func newSet(controller string, state prometheus.Collector) *Set {
	return &Set{
		Collector: state,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coppice_requests_total", ConstLabels: labels(controller),
			Help: "Requests to the API server, by verb and HTTP status code; the code is \"none\" when there was no response.",
		}, []string{"verb", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coppice_request_duration_seconds", ConstLabels: labels(controller),
			Help:    "Duration of requests to the API server, without watches.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"verb"}),
	}
}

func labels(controller string) prometheus.Labels { return prometheus.Labels{"controller": controller} }

// Describe implements prometheus.Collector.
func (s *Set) Describe(to chan<- *prometheus.Desc) {
	s.Collector.Describe(to)
	s.requests.Describe(to)
	s.durations.Describe(to)
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(to chan<- prometheus.Metric) {
	s.Collector.Collect(to)
	s.requests.Collect(to)
	s.durations.Collect(to)
}

// Gatherer returns a gatherer of the metrics of the given controllers, of the process and of the Go
// runtime.
func Gatherer(sets ...prometheus.Collector) prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(sets...)
	return registry
}
