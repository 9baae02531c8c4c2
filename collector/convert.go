package collector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/feed"
)

// The types of the public API are our own, so that the internal ones can change.
// convert_test.go checks that no field is lost.

// Status returns the state of the collector.
func (c *Collector) Status() Status {
	s := statusOf(c.cluster.Collector.Status())
	s.Synced = c.Synced()
	since, err := c.cluster.Asleep()
	s.AsleepSince = since
	if err != nil {
		s.ProbeError = err.Error()
	}
	s.Resources = each(c.cluster.Feed.Status(), resourceStatusOf)
	return s
}

// Records returns the last decisions that changed something on the server, oldest first. With
// Options.ObserveOnly they are decisions that would have changed something.
func (c *Collector) Records() []Record { return each(c.cluster.Collector.Records(), recordOf) }

// each converts a list; the result is not nil, so that it is [] in JSON.
func each[From, To any](all []From, convert func(From) To) []To {
	converted := make([]To, len(all))
	for i := range all {
		converted[i] = convert(all[i])
	}
	return converted
}

// optional converts a list that is left out of JSON when it is empty.
func optional[From, To any](all []From, convert func(From) To) []To {
	if len(all) == 0 {
		return nil
	}
	return each(all, convert)
}

func statusOf(s collector.Status) Status {
	return Status{
		ObserveOnly: s.ObserveOnly,
		Graph:       GraphStatus(s.Graph),
		Kinds:       each(s.Kinds, func(k collector.KindStatus) KindStatus { return KindStatus(k) }),
		Deletions:   each(s.Deletions, func(d collector.DeletionStatus) DeletionStatus { return DeletionStatus(d) }),
		Queue:       QueueStatus(s.Queue),
		Barrier:     each(s.Barrier, barrierWaitOf),
		Paused:      each(s.Paused, func(p collector.Pause) Pause { return Pause(p) }),
		Concurrency: s.Concurrency,
		Stats:       statsOf(s.Stats),
		Latency:     Histogram(s.Latency),
	}
}

func barrierWaitOf(w collector.BarrierWait) BarrierWait {
	return BarrierWait{
		Owner: w.Owner, UID: UID(w.UID), Finalizer: w.Finalizer, Since: w.Since, Rounds: w.Rounds,
		Holds: optional(w.Holds, func(h collector.Hold) Hold { return Hold(h) }),
	}
}

func statsOf(s collector.Stats) Stats {
	return Stats{
		Gets: s.Gets, Lists: s.Lists, Deletes: s.Deletes, Patches: s.Patches, Events: s.Events,
		Conflicts: s.Conflicts, Hot: s.Hot, Paused: s.Paused, Tripped: s.Tripped, Epochs: s.Epochs,
		Rounds: s.Rounds, Holds: s.Holds,
		Keep: s.Keep, Verify: s.Verify, Park: s.Park, Detach: s.Detach, Unblock: s.Unblock,
		Delete: s.Delete, Await: s.Await, Disown: s.Disown, RemoveFinalizer: s.RemoveFinalizer,
	}
}

func recordOf(r collector.Record) Record {
	return Record{
		Number: r.Number, Time: r.Time, Action: Action(r.Action), Decision: r.Decision,
		Object: RecordedObject{
			Kind: r.Object.Kind, Namespace: r.Object.Namespace, NamespaceUID: UID(r.Object.NamespaceUID), Name: r.Object.Name,
			UID: UID(r.Object.UID), ResourceVersion: r.Object.ResourceVersion,
		},
		Policy: metav1.DeletionPropagation(r.Policy),
		Owners: optional(r.Owners, recordedOwnerOf), MoreOwners: r.MoreOwners,
		Answer: Answer(r.Answer), Error: r.Error,
	}
}

func recordedOwnerOf(o collector.RecordedOwner) RecordedOwner {
	return RecordedOwner{
		Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: UID(o.UID),
		Standing: o.Standing, Evidence: o.Evidence, Revision: o.Revision, Time: o.Time,
	}
}

func resourceStatusOf(m feed.MonitorStatus) ResourceStatus {
	r := ResourceStatus{
		Kind: m.Kind.String(), Resource: m.Resource.GroupResource().String(), Version: m.Resource.Version,
		State: m.State.String(), Since: m.Since,
		Complete: m.Complete, Leaving: m.Leaving, Revision: m.Revision,
	}
	if m.Err != nil {
		r.Error = m.Err.Error()
	}
	return r
}
