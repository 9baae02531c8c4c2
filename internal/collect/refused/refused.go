// Package refused keeps the objects that a controller could not delete or change because the server refuses it (R31):
// the last refusal of each, since when, and how often.
//
//	l.Add(object, action, refusal, now)   // a request was refused
//	if l.Tell(object, refusal, now) { … } // an Event about it is due
//	l.Remove(uid)                         // a request was accepted, or none is needed any longer
//	l.Forget(uid)                         // the object is gone
//	l.Changed(now, by...)                 // a refuser has changed
//	status.Refused, status.RefusedCounts = l.Status()
//
// It counts all objects, and has the details of so many that they take at most a megabyte. A List is not safe for
// concurrent use.
package refused

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

const (
	// maxObjects and maxBytes bound the objects whose refusals are kept in full. The others are counted.
	maxObjects = 1000
	maxBytes   = 1 << 20
	// entryBytes is the size of the fields of an object without its texts.
	entryBytes = 200
	// maxChanges is the number of changes from which on an object that changes is tried once a minute.
	maxChanges = 6
	// notice is the time within which an API server applies a changed policy or webhook: it looks for policies once a
	// second.
	notice = 2 * time.Second
)

// List has the refused objects. The zero value is empty.
type List struct {
	objects map[ownership.UID]*entry
	listed  map[ownership.UID]*report.RefusedObject // the objects with details
	bytes   int                                     // of the details
	counts  map[report.RefusedCount]int             // of all objects, by kind and refuser
	told    map[ownership.UID]*told
	changed map[refusal.By]time.Time // when a refuser of a sort has last changed
}

// entry is a refused object.
type entry struct {
	kind  ownership.Kind
	by    refusal.By
	since time.Time
	count int
	// version is the resourceVersion of the last refusal, and changes the number of successive refusals at different
	// versions.
	version string
	changes int
	last    time.Time
}

// Add records that the server has refused a request about an object, and reports whether that is the first refusal.
func (l *List) Add(o ownership.Object, action report.Action, r refusal.Refusal, now time.Time) (isNew bool) {
	if l.objects == nil {
		l.objects, l.listed = make(map[ownership.UID]*entry), make(map[ownership.UID]*report.RefusedObject)
		l.counts = make(map[report.RefusedCount]int)
	}
	e, known := l.objects[o.UID]
	if !known {
		e = &entry{kind: o.Kind, since: now}
		l.objects[o.UID] = e
	}
	if changed := known && e.version != o.ResourceVersion; changed {
		e.changes = min(e.changes+1, maxChanges)
	} else {
		e.changes = 0
	}
	if known {
		l.drop(o.UID, e)
	}
	e.by, e.version, e.last = r.By, o.ResourceVersion, now
	e.count++
	l.counts[e.counted()]++
	details := &report.RefusedObject{
		Kind: o.Kind.String(), Namespace: o.Namespace, Name: o.Name, UID: report.UID(o.UID), Action: action,
		By: string(r.By), Refuser: r.Name, Binding: r.Binding, Message: r.Message,
		Since: e.since, Last: now, Count: e.count,
	}
	if len(l.listed) < maxObjects && l.bytes+bytesOf(details) <= maxBytes {
		l.listed[o.UID] = details
		l.bytes += bytesOf(details)
	}
	return !known
}

// Changed records that a refuser of some sorts was changed, created or deleted.
func (l *List) Changed(now time.Time, by ...refusal.By) {
	if l.changed == nil {
		l.changed = make(map[refusal.By]time.Time)
	}
	for _, b := range by {
		l.changed[b] = now
	}
}

// Stays reports whether the server refuses a request about an object until somebody acts, as far as is known: its last
// refusal came after the server must have noticed all changes of such refusers, and a refusal that may end by itself has
// lasted for that time.
func (l *List) Stays(uid ownership.UID) bool {
	e, known := l.objects[uid]
	if !known {
		return false
	}
	if e.by.MayPass() && e.last.Sub(e.since) < notice {
		return false
	}
	return e.last.Sub(l.changed[e.by]) >= notice
}

// Forget forgets an object that is gone.
func (l *List) Forget(uid ownership.UID) {
	l.Remove(uid)
	delete(l.told, uid)
}

// Remove removes an object: a request was accepted, or none is needed any longer.
func (l *List) Remove(uid ownership.UID) {
	if e, known := l.objects[uid]; known {
		l.drop(uid, e)
		delete(l.objects, uid)
	}
}

// Has reports whether the server has refused a request about an object.
func (l *List) Has(uid ownership.UID) bool { return l.objects[uid] != nil }

// Wait returns how long to wait before a request about an object at a version is sent again. An object that has changed
// is tried at once, and one that changes all the time less and less often.
func (l *List) Wait(uid ownership.UID, version string, now time.Time) time.Duration {
	e, known := l.objects[uid]
	if !known || e.version == version {
		return 0 // the back-off of the caller is over
	}
	wait := min(time.Minute, time.Duration(1<<e.changes-1)*time.Second)
	return max(0, e.last.Add(wait).Sub(now))
}

// drop removes an object from the counts, and its details.
func (l *List) drop(uid ownership.UID, e *entry) {
	if l.counts[e.counted()]--; l.counts[e.counted()] == 0 {
		delete(l.counts, e.counted())
	}
	if details := l.listed[uid]; details != nil {
		l.bytes -= bytesOf(details)
		delete(l.listed, uid)
	}
}

// counted returns what the object counts for.
func (e *entry) counted() report.RefusedCount {
	return report.RefusedCount{Kind: e.kind.String(), By: string(e.by)}
}

// Sweep forgets the objects of which exists returns false.
func (l *List) Sweep(exists func(uid ownership.UID) bool) {
	for uid := range l.objects {
		if !exists(uid) {
			l.Forget(uid)
		}
	}
	for uid := range l.told {
		if !exists(uid) {
			delete(l.told, uid)
		}
	}
}

// Of returns the objects that refusers of some sorts have refused.
func (l *List) Of(by ...refusal.By) []ownership.UID {
	var uids []ownership.UID
	for uid, e := range l.objects {
		if slices.Contains(by, e.by) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// UIDs returns all refused objects.
func (l *List) UIDs() []ownership.UID { return slices.Sorted(maps.Keys(l.objects)) }

// Status returns, without a look at all objects, the details, of the longest refused object first, and the number of all objects by kind and refuser.
func (l *List) Status() ([]report.RefusedObject, []report.RefusedCount) {
	objects := make([]report.RefusedObject, 0, len(l.listed))
	for _, details := range l.listed {
		objects = append(objects, *details)
	}
	slices.SortFunc(objects, func(a, b report.RefusedObject) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID))
	})
	all := make([]report.RefusedCount, 0, len(l.counts))
	for count, n := range l.counts {
		count.Objects = n
		all = append(all, count)
	}
	slices.SortFunc(all, func(a, b report.RefusedCount) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.By, b.By))
	})
	return objects, all
}

func bytesOf(d *report.RefusedObject) int {
	return entryBytes + len(d.Kind) + len(d.Namespace) + len(d.Name) + len(d.UID) + len(d.Refuser) + len(d.Binding) + len(d.Message)
}
