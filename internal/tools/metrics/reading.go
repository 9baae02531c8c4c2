package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/feed"
)

const syncedHelp = "Whether the controller has read the state of the server and works."

// descriptions returns the descriptions of the metrics that are read at each scrape, by name.
func descriptions() map[string]*prometheus.Desc {
	described := map[string]*prometheus.Desc{
		"synced":          prometheus.NewDesc("coppice_synced", syncedHelp, nil, labels(GarbageCollector)),
		"refused_objects": refusedObjects(GarbageCollector),
	}
	for _, d := range []struct {
		name, help string
		labels     []string
	}{
		{"observe_only", "Whether the collector only decides, and changes nothing on the server.", nil},
		{"graph_objects", "Objects in the ownership graph.", []string{"resource"}},
		{"graph_presumed_owners", "Owners that are named by references and were not observed.", nil},
		{"graph_references", "Owner references in the ownership graph.", nil},
		{"parked_kinds", "Kinds that owner references name and no API serves; objects wait for them.", nil},
		{"parked_references", "Owner references that name such a kind.", nil},
		{"terminating_objects", "Objects that are being deleted, by a finalizer that they still have, empty if they have none.", []string{"resource", "finalizer"}},
		{"terminating_oldest_seconds", "How long ago the first of these objects should have been gone.", []string{"resource", "finalizer"}},
		{"terminated_total", "Objects that lost the finalizer while they were being deleted, or are gone.", []string{"resource", "finalizer"}},
		{"queue_depth", "Objects that wait to be reconsidered.", nil},
		{"queue_oldest_seconds", "How long the first of the waiting objects has waited.", nil},
		{"cascade_seconds", "Time from the evidence that the last owner of an object is gone to the response to the object's DELETE.", nil},
		{"concurrency", "Requests that the collector sends to the server at the same time, at most.", nil},
		{"decisions_total", "Decisions about objects. A repeated decision counts again.", []string{"decision"}},
		{"conflicts_total", "Writes refused because the object had changed since the decision.", nil},
		{"hot_objects_total", "Objects put off because they changed too often to be written.", nil},
		{"events_total", "Events written.", nil},
		{"epochs_total", "Breaks in the server's history: it went back in time, or is another one.", nil},
		{"monitor_state", "1 for the state that the monitor of a resource is in, 0 for the others.", []string{"resource", "state"}},
		{"barrier_owners", "Owners whose deletion waits for the proof that no dependent was missed.", nil},
		{"barrier_oldest_seconds", "How long the first of these owners has waited.", nil},
		{"barrier_held_owners", "Owners whose deletion cannot be completed, by the kind or group version that cannot be read.", []string{"by"}},
		{"barrier_rounds_total", "Rounds of lists that were made for that proof.", nil},
		{"barrier_holds_total", "How often an owner had to go on waiting after a round.", nil},
		{"breaker_paused", "1 for each kind whose deletions the breaker has paused.", []string{"kind"}},
		{"breaker_trips_total", "How often the deletions of a kind were paused.", nil},
		{"breaker_refusals_total", "Deletions that were not sent because their kind was paused.", nil},
	} {
		described[d.name] = prometheus.NewDesc("coppice_"+d.name, d.help, d.labels, nil)
	}
	return described
}

// refusedObjects describes the number of objects that the server refuses to delete or to change for a controller.
func refusedObjects(controller string) *prometheus.Desc {
	return prometheus.NewDesc("coppice_refused_objects", "Objects that the server refuses to delete or to change, by the sort of refuser.",
		[]string{"kind", "by"}, labels(controller))
}

// reading exports the status of a collector as metrics.
type reading struct {
	read         func() report.Status
	descriptions map[string]*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (r reading) Describe(to chan<- *prometheus.Desc) {
	for _, d := range r.descriptions {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (r reading) Collect(to chan<- prometheus.Metric) {
	now := r.read()
	o := output{to, r.descriptions}
	o.gauge("synced", number(now.Synced))
	o.gauge("observe_only", number(now.ObserveOnly))
	o.graph(now)
	o.deletions(now)
	o.work(now)
	o.barrier(now)
	o.gauge("concurrency", float64(now.Concurrency))
	for _, p := range now.Paused {
		o.gauge("breaker_paused", 1, p.Kind)
	}
	o.refused(now.RefusedCounts)
	o.counter("breaker_trips_total", now.Stats.Tripped)
	o.counter("breaker_refusals_total", now.Stats.Paused)
}

// output sends metrics by name.
type output struct {
	to           chan<- prometheus.Metric
	descriptions map[string]*prometheus.Desc
}

func (o output) gauge(name string, value float64, labels ...string) {
	o.to <- prometheus.MustNewConstMetric(o.descriptions[name], prometheus.GaugeValue, value, labels...)
}

func (o output) counter(name string, value int64, labels ...string) {
	o.to <- prometheus.MustNewConstMetric(o.descriptions[name], prometheus.CounterValue, float64(value), labels...)
}

func (o output) histogram(name string, h report.Histogram) {
	buckets := make(map[float64]uint64, len(h.Bounds))
	below := uint64(0)
	for i, bound := range h.Bounds {
		below += uint64(h.Counts[i])
		buckets[bound.Seconds()] = below
	}
	o.to <- prometheus.MustNewConstHistogram(o.descriptions[name], uint64(h.Count), h.Sum.Seconds(), buckets)
}

// graph sends the size of the graph and the state of the monitors. It counts objects by resource:
// unlike the kinds in owner references, the server names the resources.
func (o output) graph(now report.Status) {
	objects := make(map[string]int, len(now.Kinds))
	parkedKinds, parkedReferences := 0, 0
	for _, k := range now.Kinds {
		objects[k.Kind] = k.Objects
		if k.Parked > 0 {
			parkedKinds++
			parkedReferences += k.Parked
		}
	}
	for _, m := range now.Resources {
		o.gauge("graph_objects", float64(objects[m.Kind]), m.Resource)
		for _, state := range []feed.State{feed.Waiting, feed.Synced, feed.Failing} {
			o.gauge("monitor_state", number(m.State == state.String()), m.Resource, state.String())
		}
	}
	o.gauge("graph_presumed_owners", float64(now.Graph.Presumed))
	o.gauge("graph_references", float64(now.Graph.References))
	o.gauge("parked_kinds", float64(parkedKinds))
	o.gauge("parked_references", float64(parkedReferences))
}

// others is the resource of deletions that are not counted by resource and finalizer.
const others = "others"

// deletions sends the counts of deletions. A resource that is no longer served is left out, together with
// its counts.
func (o output) deletions(now report.Status) {
	resources := map[string]string{"": others}
	for _, m := range now.Resources {
		resources[m.Kind] = m.Resource
	}
	for _, d := range now.Deletions {
		resource, ok := resources[d.Kind]
		if !ok {
			continue
		}
		age := time.Duration(0)
		if !d.Oldest.IsZero() {
			age = max(0, time.Since(d.Oldest))
		}
		o.gauge("terminating_objects", float64(d.Objects), resource, d.Finalizer)
		o.gauge("terminating_oldest_seconds", age.Seconds(), resource, d.Finalizer)
		o.counter("terminated_total", int64(d.Gone), resource, d.Finalizer)
	}
}

// work sends the length of the queue and the counters.
func (o output) work(c report.Status) {
	o.gauge("queue_depth", float64(c.Queue.Length))
	o.gauge("queue_oldest_seconds", c.Queue.Oldest.Seconds())
	o.histogram("cascade_seconds", c.Latency)
	s := c.Stats
	for decision, n := range map[string]int64{
		"keep": s.Keep, "verify": s.Verify, "park": s.Park, "detach": s.Detach, "unblock": s.Unblock,
		"delete": s.Delete, "await": s.Await, "disown": s.Disown, "remove-finalizer": s.RemoveFinalizer,
	} {
		o.counter("decisions_total", n, decision)
	}
	o.counter("conflicts_total", s.Conflicts)
	o.counter("hot_objects_total", s.Hot)
	o.counter("events_total", s.Events)
	o.counter("epochs_total", s.Epochs)
}

// barrier sends the number of owners that wait for the proof that no dependent was missed (R15),
// and their reasons.
func (o output) barrier(c report.Status) {
	var oldest time.Duration
	held := make(map[string]int)
	for _, w := range c.Barrier {
		oldest = max(oldest, time.Since(w.Since))
		for _, hold := range w.Holds {
			held[hold.What]++
		}
	}
	o.gauge("barrier_owners", float64(len(c.Barrier)))
	o.gauge("barrier_oldest_seconds", oldest.Seconds())
	for what, n := range held {
		o.gauge("barrier_held_owners", float64(n), what)
	}
	o.counter("barrier_rounds_total", c.Stats.Rounds)
	o.counter("barrier_holds_total", c.Stats.Holds)
}

// refused sends the number of objects that the server refuses to delete or to change.
func (o output) refused(counts []report.RefusedCount) {
	for _, r := range counts {
		o.gauge("refused_objects", float64(r.Objects), r.Kind, r.By)
	}
}

// number returns the value of a boolean gauge.
func number(yes bool) float64 { //nolint:revive // it only converts the flag
	if yes {
		return 1
	}
	return 0
}
