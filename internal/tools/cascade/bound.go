package cascade

import (
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// Users decide how many objects a cascade has, and how long their names are. A cascade keeps a few dozen megabytes at
// most, and a report has a few hundred kilobytes.
const (
	// mostMembers and mostMemberBytes bound the UIDs of members. Further members count only while they exist.
	mostMembers     = 500_000
	mostMemberBytes = 32 << 20
	// mostRoots is the number of requested objects that a report names.
	mostRoots = 100
	// mostStays is the number of objects that stay and are named.
	mostStays = 1000
	// mostCauses is the number of causes in a report, and mostObjects the number of objects that it names for a cause.
	mostCauses, mostObjects = 32, 8
	// mostUnread is the number of unread resources in a report.
	mostUnread = 100
	// mostText is the limit of a text, in bytes.
	mostText = 1024
)

// members is a set of UIDs with a bound.
type members struct {
	uids  map[ownership.UID]bool
	bytes int
}

func (m *members) has(uid ownership.UID) bool { return m.uids[uid] }

func (m *members) add(uid ownership.UID) {
	if uid == "" || m.uids[uid] || len(m.uids) >= mostMembers || m.bytes+len(uid) > mostMemberBytes {
		return
	}
	if m.uids == nil {
		m.uids = map[ownership.UID]bool{}
	}
	m.uids[uid] = true
	m.bytes += len(uid)
}

func (m *members) remove(uid ownership.UID) {
	if m.uids[uid] {
		delete(m.uids, uid)
		m.bytes -= len(uid)
	}
}

func bounded(r explain.Ref) explain.Ref {
	r.Kind, r.Namespace, r.Name = ownership.Excerpt(r.Kind, mostText), ownership.Excerpt(r.Namespace, mostText), ownership.Excerpt(r.Name, mostText)
	return r
}

// boundedCauses returns the first causes, each with its first objects, and the number of the others.
func boundedCauses(all []explain.Group) (causes []explain.Group, more int) {
	causes = slices.Clone(all[:min(len(all), mostCauses)])
	for n := range causes {
		g := &causes[n]
		if extra := len(g.Objects) - mostObjects; extra > 0 {
			g.Objects, g.More = g.Objects[:mostObjects], g.More+extra
		}
	}
	return causes, len(all) - len(causes)
}
