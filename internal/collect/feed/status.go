package feed

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// State is the state of a monitor.
type State uint8

const (
	// Waiting monitors have not received their first list.
	Waiting State = iota
	// Synced monitors have received a list and watch from there.
	Synced
	// Failing monitors got an error for their last list or watch, and try again.
	Failing
)

func (s State) String() string {
	switch s {
	case Waiting:
		return "waiting"
	case Synced:
		return "synced"
	case Failing:
		return "failing"
	default:
		return fmt.Sprintf("State(%d)", uint8(s))
	}
}

// MonitorStatus is the status of one monitor at one moment.
type MonitorStatus struct {
	Kind     ownership.Kind
	Resource schema.GroupVersionResource
	State    State
	Since    time.Time // when it entered this state
	Err      error     // of the last request, when failing
	Complete bool      // it has received a complete list; if not, objects of the kind may be unknown
	Leaving  bool      // discovery no longer names the kind
	Revision string    // that its watch has reached
}

// Status returns the status of all monitors, ordered by kind.
func (f *Feed) Status() []MonitorStatus {
	f.mu.RLock()
	defer f.mu.RUnlock()
	statuses := make([]MonitorStatus, 0, len(f.monitors))
	for _, kind := range sortedKinds(f.monitors) {
		statuses = append(statuses, f.monitors[kind].status())
	}
	return statuses
}

func (m *monitor) status() MonitorStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return MonitorStatus{
		Kind:     m.resource.kind,
		Resource: m.resource.gvr,
		State:    m.state,
		Since:    m.since,
		Err:      m.err,
		Complete: m.complete,
		Leaving:  m.leaving,
		Revision: m.revision,
	}
}

// Unread is a resource, or a group version, of which objects may be unknown.
type Unread struct {
	Resource schema.GroupVersionResource // its field Resource is empty for a group version that discovery lacks
	Why      string
}

// String returns, for example, "secrets: forbidden".
func (u Unread) String() string {
	if u.Resource.Resource == "" {
		return "group " + u.Resource.GroupVersion().String() + ": " + u.Why
	}
	return u.Resource.GroupResource().String() + ": " + u.Why
}

// Unread returns the resources that were never listed completely, and the group versions without discovery.
func (f *Feed) Unread() []Unread {
	var all []Unread
	for _, m := range f.Status() {
		switch {
		case m.Complete:
		case m.Err != nil:
			all = append(all, Unread{m.Resource, m.Err.Error()})
		default:
			all = append(all, Unread{m.Resource, "the collector has not read it yet"})
		}
	}
	for _, gv := range f.Unanswered() {
		all = append(all, Unread{gv.WithResource(""), "discovery does not answer for it"})
	}
	return all
}
