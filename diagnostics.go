package coppice

import (
	"context"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
	"github.com/coppice-dev/coppice/internal/tools/web"
)

// GraphFormat is a format of the ownership graph.
type GraphFormat string

// The supported formats.
const (
	GraphDOT  GraphFormat = "dot"  // for Graphviz
	GraphJSON GraphFormat = "json" // objects and references, with the decision about each object
	GraphSVG  GraphFormat = "svg"  // an image
	GraphTree GraphFormat = "tree" // indented text, dependents below their owners
	// GraphMermaid is a flowchart of Mermaid, which many wikis draw.
	GraphMermaid GraphFormat = "mermaid"
)

// WriteGraph writes the ownership graph: all objects that own or are owned, or, if uids are given,
// all objects that are connected with those. A graph of more than 5000 objects cannot be drawn as
// SVG; the error is then ErrGraphTooLarge.
func (c *Collector) WriteGraph(w io.Writer, format GraphFormat, uids ...UID) error {
	f, err := insight.ParseFormat(string(format))
	if err != nil {
		return err
	}
	of := make([]ownership.UID, len(uids))
	for i, uid := range uids {
		of[i] = ownership.UID(uid)
	}
	text, err := c.picture(of...).Encode(f)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func (c *Collector) picture(uids ...ownership.UID) insight.Graph {
	if len(uids) == 0 {
		return insight.Whole(c.inside().Collector.View)
	}
	return insight.Component(c.inside().Collector.View, uids...)
}

// Metrics returns the metrics of the collector for the caller to register. Their names begin with
// coppice_. Handler and ProbeHandler also serve them, without registration.
func (c *Collector) Metrics() prometheus.Collector { return c.metrics }

// Metrics returns the metrics of the controller for the caller to register. They may share a
// registry with a Collector's metrics.
func (c *NamespaceController) Metrics() prometheus.Collector { return c.metrics }

// reading returns the values behind the metrics.
func (c *Collector) reading() metrics.Reading {
	return metrics.Reading{Synced: c.Synced(), Monitors: c.inside().Feed.Status(), Collector: c.inside().Collector.Status()}
}

// Handler returns a handler for:
//
//	/healthz /livez /readyz                      health checks; readyz: whether it is synced
//	/metrics                                     for Prometheus
//	/status /records                             Status and Records as JSON
//	/debug/controllers/garbagecollector/graph    the ownership graph: ?uid= (repeatable), ?format=dot|json|svg
//	POST /resume?kind=ReplicaSet.apps            Resume
//
// The responses name objects, and requests are not authenticated: serve it only behind
// authentication, or where others cannot reach it.
func (c *Collector) Handler() http.Handler { return Controllers{Collector: c}.Handler() }

// ProbeHandler returns a handler for /healthz, /livez, /readyz and /metrics, which name
// resources but no objects.
func (c *Collector) ProbeHandler() http.Handler { return Controllers{Collector: c}.ProbeHandler() }

// ProbeHandler returns a handler for /healthz, /livez, /readyz and /metrics.
func (c *NamespaceController) ProbeHandler() http.Handler {
	return Controllers{Namespaces: c}.ProbeHandler()
}

// Handler returns the handler of the collector, except that /readyz and /metrics cover all of the
// controllers. Without a collector the graph and the records are empty.
func (c Controllers) Handler() http.Handler { return web.Handler(source{c}) }

// ProbeHandler returns a handler for /healthz, /livez, /readyz and /metrics, which name
// resources but no objects.
func (c Controllers) ProbeHandler() http.Handler { return web.Probes(source{c}) }

// source implements web.Source.
type source struct{ Controllers }

// Status implements web.Source.
func (s source) Status() any {
	status := Status{
		Resources: []ResourceStatus{}, Kinds: []KindStatus{}, Deletions: []DeletionStatus{}, Barrier: []BarrierWait{}, Paused: []Pause{},
	}
	if s.Collector != nil {
		status = s.Collector.Status()
	}
	status.Synced = s.Synced()
	return status
}

// Settle implements web.Source.
func (s source) Settle(ctx context.Context) any { return s.Controllers.Settle(ctx) }

// Records implements web.Source.
func (s source) Records() any {
	if s.Collector == nil {
		return []Record{}
	}
	return s.Collector.Records()
}

// Picture implements web.Source.
func (s source) Picture(uids ...ownership.UID) insight.Graph {
	if s.Collector == nil {
		return insight.Whole(func(read func(g *ownership.Graph)) { read(ownership.New()) })
	}
	return s.Collector.picture(uids...)
}

// Resume implements web.Source.
func (s source) Resume(kind string) bool {
	return s.Collector != nil && s.Collector.Resume(schema.ParseGroupKind(kind))
}

// Metrics implements web.Source.
func (s source) Metrics() prometheus.Gatherer {
	var sets []prometheus.Collector
	if s.Collector != nil {
		sets = append(sets, s.Collector.metrics)
	}
	if s.Namespaces != nil {
		sets = append(sets, s.Namespaces.metrics)
	}
	return metrics.Gatherer(sets...)
}
