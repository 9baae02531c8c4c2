package coppice

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
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
	text, err := web.Picture(c.Collector, of...).Encode(f)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// Metrics returns the metrics of the collector for the caller to register. Their names begin with
// coppice_. Handler and ProbeHandler also serve them, without registration.
func (c *Collector) Metrics() prometheus.Collector { return c.metrics }

// Metrics returns the metrics of the controller for the caller to register. They may share a
// registry with a Collector's metrics.
func (c *NamespaceController) Metrics() prometheus.Collector { return c.metrics }

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
func (c Controllers) Handler() http.Handler { return web.Handler(web.Of(c.inside())) }

// ProbeHandler returns a handler for /healthz, /livez, /readyz and /metrics, which name
// resources but no objects.
func (c Controllers) ProbeHandler() http.Handler { return web.Probes(web.Of(c.inside())) }
