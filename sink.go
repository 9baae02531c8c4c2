package coppice

import (
	"github.com/coppice-dev/coppice/internal/feed"
	"github.com/coppice-dev/coppice/internal/ownership"
)

// sink hands the feed's observations to the collector, and tells of the namespaces
// in which something is gone: a terminating one may wait for just that.
type sink struct {
	feed.Sink
	view    func(read func(g *ownership.Graph))
	changed func(namespace string)
}

// sink is where the feed's observations go.
func (c *Collector) sink() feed.Sink {
	if c.lifecycle == nil {
		return c.collector.Sink()
	}
	return sink{c.collector.Sink(), c.collector.View, c.lifecycle.Changed}
}

// Forget implements feed.Sink. The event names a UID; the graph knows where that
// was, until it is told.
func (s sink) Forget(uid ownership.UID, resourceVersion string) {
	var object ownership.Object
	s.view(func(g *ownership.Graph) { object, _ = g.Object(uid) })
	s.Sink.Forget(uid, resourceVersion)
	if object.Namespace != "" {
		s.changed(object.Namespace)
	}
}
