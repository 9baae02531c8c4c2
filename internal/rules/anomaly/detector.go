// Package anomaly finds API clients that have acted on an old state: it compares the events that the watches of a client
// had shown with the writes of that client. A client is known by its user and its program alone, so a test
// and the operator in its process may be one client. Where that leaves a doubt, the client is taken to know a state:
// a false alarm is worse than a missed one.
package anomaly

import (
	"fmt"
	"time"
)

// Client is a client of the API. The zero value is the control plane itself, or an observer; no rule accuses it.
type Client struct{ User, Program string }

// Kind is the rule that found an anomaly.
type Kind string

// The kinds of anomalies.
const (
	// DuplicateChild: a client created a child for an owner that had one for the same purpose already, which the
	// client's watch had not shown.
	DuplicateChild Kind = "duplicate-child"
	// SuccessorDeleted: a client deleted an object of whose name it knew only an earlier object.
	SuccessorDeleted Kind = "successor-deleted"
	// LiveChildDeleted: a client deleted the child of an owner that exists, and that the client's watch had not shown.
	LiveChildDeleted Kind = "live-child-deleted"
	// EntryLost: a client removed a finalizer, label, annotation or owner reference that somebody else had added, and
	// that the client had not seen.
	EntryLost Kind = "entry-lost"
	// ConflictRepeated: a client repeated a write that had a conflict, without reading the object again.
	ConflictRepeated Kind = "conflict-repeated"
	// FinalizerEarly: a client removed its finalizer while an object that it removes with it is still there.
	FinalizerEarly Kind = "finalizer-early"
	// NoRest: clients lead an object back to the same states again and again.
	NoRest Kind = "no-rest"
	// Storm: a client repeats a write that is refused, without longer and longer pauses.
	Storm Kind = "storm"
)

// Anomaly is one finding.
type Anomaly struct {
	Time   time.Time
	Kind   Kind
	Client Client
	Object Name
	Text   string // a sentence with the resourceVersions
}

// Name identifies an object by its name.
type Name struct{ Resource, Namespace, Name string } // Resource has its group, such as deployments.apps

// String returns, for example, "deployments.apps shop/frontend".
func (n Name) String() string {
	if n.Namespace == "" {
		return n.Resource + " " + n.Name
	}
	return n.Resource + " " + n.Namespace + "/" + n.Name
}

// mostLives, mostSeen and mostFound bound what a Detector keeps: about 40 MB. It forgets everything but its findings
// when one of the first two is reached, and then knows only objects that are written after that. mostText bounds a
// value of a label or annotation that is compared, in bytes.
const (
	mostLives = 1 << 13
	mostSeen  = 1 << 17
	mostFound = 256
	mostText  = 253
)

// Detector is fed with the requests of all clients, in about the order in which they happen. It is not safe for
// concurrent use.
type Detector struct {
	lives     map[string]*life // by UID
	current   map[Name]*life
	former    map[Name]*life   // the latest life of a name before the current one
	deleting  map[string]*life // by UID; objects that exist and are being deleted
	knowledge knowledge
	cleaned   map[cleaning]bool
	conflicts map[attempt]*conflicts
	refusals  map[attempt]*recent
	accused   map[string]bool

	found   []Anomaly
	dropped int
}

// NewDetector returns a detector that knows no object.
func NewDetector() *Detector {
	d := &Detector{}
	d.forget()
	return d
}

// forget drops all but the findings and the open watches, of which it still knows the state.
func (d *Detector) forget() {
	open := d.knowledge.watches
	d.lives, d.current, d.former, d.deleting = map[string]*life{}, map[Name]*life{}, map[Name]*life{}, map[string]*life{}
	d.knowledge = newKnowledge()
	d.cleaned, d.accused = map[cleaning]bool{}, map[string]bool{}
	d.conflicts, d.refusals = map[attempt]*conflicts{}, map[attempt]*recent{}
	for number, w := range open {
		d.knowledge.watches[number] = w
		d.knowledge.list(w.client, w.scope, w.version)
	}
}

// bound forgets everything if that is too much.
func (d *Detector) bound() {
	if len(d.lives) >= mostLives || d.knowledge.size() >= mostSeen || len(d.conflicts)+len(d.refusals)+len(d.accused)+len(d.cleaned) >= 2*mostLives {
		d.forget()
	}
}

// Found returns the anomalies, the oldest first, and how many more there were.
func (d *Detector) Found() (found []Anomaly, dropped int) { return d.found, d.dropped }

// accuse keeps an anomaly, once for each key.
func (d *Detector) accuse(key string, a Anomaly) {
	key = string(a.Kind) + " " + key
	if a.Client == (Client{}) || d.accused[key] {
		return
	}
	d.accused[key] = true
	if len(d.found) == mostFound {
		d.dropped++
		return
	}
	d.found = append(d.found, a)
}

// at describes an object with its resourceVersion, for people.
func at(n Name, version uint64) string { return fmt.Sprintf("%s (resourceVersion %d)", n, version) }
