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
