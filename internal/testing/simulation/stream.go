package simulation

import (
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// stream is the list and watch of one resource by one instance: its position in the resource's
// log.
type stream struct {
	told     bool // the sink knows that the kind is served
	unknown  bool // its discovery fails
	listed   bool
	position int // of the next event in the log
	seen     int // revision up to which the sink has received all events
	epoch    int // of the resource, when it was listed
}

// list lists a resource without the last stale watch events, as from a lagging cache. The list is
// not older than the stream's last observed revision.
func (w *cluster) list(i, stale int) bool {
	r, st := w.server.resources[i], &w.in.streams[i]
	if st.listed && st.epoch == r.epoch {
		stale = min(stale, len(r.log)-st.position)
	}
	return w.travel(i, stale)
}

// travel lists a resource from a server that may lag behind the previous one: the stream goes back
// in time.
func (w *cluster) travel(i, stale int) bool {
	r, st := w.server.resources[i], &w.in.streams[i]
	if !r.watched || !r.served || r.broken || !st.told {
		return false
	}
	position := max(0, len(r.log)-stale)
	seen := w.server.revision
	if position < len(r.log) {
		seen = r.log[position].revision - 1
	}
	if st.listed && (st.epoch != r.epoch || seen < st.seen) {
		// The feed detects both: that the server no longer knows the revision of its watch, and
		// that revisions go backwards (R4).
		w.logf("  a new epoch")
		w.in.collector.Sink().NewEpoch()
		w.in.trusts = w.server.restored
	}
	st.listed, st.position, st.epoch, st.seen = true, position, r.epoch, seen
	for _, worker := range w.in.workers {
		worker.seen[i] = min(worker.seen[i], st.seen) // it may have forgotten
	}
	w.logf("  list of %s at %d", r.short, st.seen)
	feed.Replace(w.in.collector.Sink(), r.kind, r.listAt(position))
	return true
}

// restore restores a backup that is back revisions old. All connections of watches and requests are
// cut.
func (w *cluster) restore(back int) bool {
	if !w.server.restore(w.server.revision - back) {
		return false
	}
	for i := range w.in.streams {
		w.in.streams[i].seen = 0 // the observed writes are undone
	}
	w.ghosts = nil
	for _, worker := range w.in.workers {
		c := worker.call
		c.executed = true
		c.void()
	}
	return true
}

// deliver delivers the next watch event of a resource.
func (w *cluster) deliver(i int) bool {
	if !w.hasEvent(i) {
		return false
	}
	st := &w.in.streams[i]
	v := w.server.resources[i].log[st.position]
	st.position++
	st.seen = v.revision
	w.pass(v)
	return true
}

// repeat delivers the last watch event of a resource once more.
func (w *cluster) repeat(i int) bool {
	r, st := w.server.resources[i], &w.in.streams[i]
	if !st.listed || st.epoch != r.epoch || st.position == 0 {
		return false
	}
	w.pass(r.log[st.position-1])
	return true
}

func (w *cluster) pass(v *version) {
	sink := w.in.collector.Sink()
	if w.log != nil {
		w.logf("  %s %s", map[bool]string{true: "DELETED", false: "saw"}[v.gone], versionText(v))
	}
	if v.gone {
		sink.Forget(v.UID, v.ResourceVersion)
		return
	}
	sink.Observe(v.Object)
}

// hasEvent reports whether a watch event can be delivered.
func (w *cluster) hasEvent(i int) bool {
	r, st := w.server.resources[i], &w.in.streams[i]
	return st.listed && st.epoch == r.epoch && !r.broken && st.position < len(r.log)
}

// notice lets the feed discover a change of a resource: that it is served, that it is no longer
// served, or that it was defined again.
func (w *cluster) notice(i int) bool {
	r, st := w.server.resources[i], &w.in.streams[i]
	sink := w.in.collector.Sink()
	switch {
	case r.served && !st.told:
		st.unknown = false
		w.learn(i)
		w.list(i, 0)
	case !r.served && st.unknown:
		st.unknown = false
	case !r.served && st.told:
		*st = stream{}
		w.logf("  %s is served no more", r.short)
		feed.Replace(sink, r.kind, nil)
		sink.SetScope(r.kind, ownership.ScopeUnknown)
	case r.served && st.listed && st.epoch != r.epoch:
		w.list(i, 0)
	default:
		return false
	}
	return true
}

// learn lets the feed discover that a resource is served. It is not listed yet.
func (w *cluster) learn(i int) {
	r, st := w.server.resources[i], &w.in.streams[i]
	if !r.served || st.told || st.unknown {
		return
	}
	st.told = true
	w.logf("  %s is served", r.short)
	w.in.collector.Sink().SetScope(r.kind, r.scope)
}

// oldest returns the resource with the oldest pending watch event, or -1 if no event is pending.
func (w *cluster) oldest() int {
	oldest := -1
	for i, r := range w.server.resources {
		if w.hasEvent(i) && (oldest < 0 ||
			r.log[w.in.streams[i].position].revision < w.server.resources[oldest].log[w.in.streams[oldest].position].revision) {
			oldest = i
		}
	}
	return oldest
}
