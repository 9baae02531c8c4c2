package web

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
)

// Of returns the Source of controllers. Without a collector the graph and the records are empty.
func Of(c metrics.Controllers) Source { return source{c} }

type source struct{ metrics.Controllers }

// Records implements Source.
func (s source) Records() []report.Record {
	if s.Collector == nil {
		return []report.Record{}
	}
	return s.Collector.Records()
}

// Picture implements Source.
func (s source) Picture(uids ...ownership.UID) insight.Graph {
	if s.Collector == nil {
		return insight.Whole(func(read func(g *ownership.Graph)) { read(ownership.New()) })
	}
	return Picture(s.Collector, uids...)
}

// Picture returns the ownership graph of a collector, or the connected components of some objects.
func Picture(c *collector.Collector, uids ...ownership.UID) insight.Graph {
	view := c.Parts().Engine.View
	if len(uids) == 0 {
		return insight.Whole(view)
	}
	return insight.Component(view, uids...)
}

// Metrics implements Source.
func (s source) Metrics() prometheus.Gatherer { return metrics.Gatherer(s.Controllers.Metrics...) }
