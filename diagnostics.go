package coppice

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-dev/coppice/internal/insight"
	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/web"
)

// WriteGraph writes who owns whom, as dot, json or svg: everything that owns or is
// owned, or all that is connected with the objects named.
func (c *Collector) WriteGraph(w io.Writer, format string, uids ...ownership.UID) error {
	f, err := insight.ParseFormat(format)
	if err != nil {
		return err
	}
	text, err := c.picture(uids...).Encode(f)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func (c *Collector) picture(uids ...ownership.UID) insight.Graph {
	if len(uids) == 0 {
		return insight.Whole(c.view)
	}
	return insight.Around(c.view, uids...)
}

// view runs a function on the ownership graph while nothing changes it. Without a
// collector the graph is empty.
func (c *Collector) view(read func(g *ownership.Graph)) {
	if c.collector == nil {
		read(ownership.New())
		return
	}
	c.collector.View(read)
}

// Handler serves:
//
//	/healthz /livez /readyz                      whether it runs; whether it is synced
//	/metrics                                     for Prometheus
//	/status /records                             Status and Records as JSON
//	/debug/controllers/garbagecollector/graph    the graph: ?uid= (repeatable), ?format=dot|json|svg
//	POST /resume?kind=ReplicaSet.apps            Resume
//
// The answers name objects, and nobody is asked who he is: serve them where only
// those get to who may know.
func (c *Collector) Handler() http.Handler { return web.Handler(source{c}) }

// ProbeHandler serves /healthz, /livez, /readyz and /metrics, which name resources
// but no object.
func (c *Collector) ProbeHandler() http.Handler { return web.Probes(source{c}) }

// source answers the questions of package web.
type source struct{ *Collector }

// Status implements web.Source.
func (s source) Status() any { return s.Collector.Status() }

// Records implements web.Source.
func (s source) Records() any { return s.Collector.Records() }

// Picture implements web.Source.
func (s source) Picture(uids ...ownership.UID) insight.Graph { return s.picture(uids...) }

// Metrics implements web.Source.
func (s source) Metrics() prometheus.Gatherer { return s.metrics.Gatherer() }
