// Package story tells deletions as stories: who asked for what to be deleted, what goes with it, what
// stays, and what it still waits for.
//
//	b := story.NewBook()
//	b.Requested(request)            // by the API server, if it is ours: who asks
//	b.Seen(object, home, now)       // by the collector, from its watches: marked, or changed since
//	b.Gone(object, home, now)       // home is the UID of its namespace
//	b.Stayed(object, owners, now)   // by the collector, when it has removed references to owners that go
//
// A story begins with an object that is marked or removed, and that belongs to no other story: its root. An
// object belongs to the story of its owners, of its namespace, or of the CustomResourceDefinition of its
// kind, if that is being deleted or was. Roots that one request names, as a DELETE of a collection does, have
// one story. The story of an object is found when the object is first heard of, so that it costs a few lookups
// and no search.
//
// What is kept is bounded (limits): the oldest stories that are done are forgotten first, those of a single
// object before others, since controllers delete single objects all the time. Of a story that has more
// objects than can be kept the rest is counted.
//
// The package is pure: it reads no clock, and starts nothing. A Book is safe for concurrent use; those who
// tell it something wait no longer for those who read than it takes to copy what has changed.
package story

import (
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// limits bound what a Book keeps.
type limits struct {
	stories int // in all
	singles int // of one object, which are done
	objects int // in all stories
	bytes   int // of the texts in all objects: names, UIDs, finalizers
}

// bounds are the limits: 5 MB for the objects, 16 MB at most for their texts, and 2 MB for 100 000 further
// objects. Of those, the book keeps a hash and the story, as long as it keeps the story.
func bounds() limits { return limits{stories: 500, singles: 200, objects: 15_000, bytes: 16 << 20} }

const (
	// mostOwners is how many owners are kept of an object, and as many that it has lost. All count for the story that
	// it belongs to.
	mostOwners = 16
	// mostText is how much is kept of a text that a client chooses, in bytes.
	mostText = 253
)

const (
	// settle is how long nothing has happened in a story that is done: dependents are deleted after their
	// owners are gone, so that there is a moment in which nothing is left to wait for.
	settle = time.Second
	// lag is how much later than that of a namespace the removals of its contents may be heard of: they come
	// from other watches.
	lag = 5 * time.Second
	// rateWindow is the time over which the rate is taken, in seconds.
	rateWindow = 5
)

// Ref names an object.
type Ref struct {
	Kind      string `json:"kind"` // "ReplicaSet.apps"
	Namespace string `json:"namespace,omitempty"`
	// NamespaceUID is the UID of the namespace; empty if it is not certain, as another one may have had the name before.
	NamespaceUID ownership.UID `json:"namespaceUID,omitempty"`
	Name         string        `json:"name"`
	UID          ownership.UID `json:"uid,omitempty"`
}

// String names the object as a person would.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// By is who asked for a deletion.
type By struct {
	User  string `json:"user"`
	Agent string `json:"agent,omitempty"` // the program: the User-Agent up to its first space
}

// Request is a DELETE of an object, as the API server has it.
type Request struct {
	// Key is the same for all objects that one request is for.
	Key    string
	UID    ownership.UID
	By     By
	Policy string // the propagation policy; empty if none was asked for
}

// Summary is a story in a line.
type Summary struct {
	ID   ownership.UID `json:"id"` // the UID of the root
	Root Ref           `json:"root"`
	// Roots are all objects that were asked for, if there are several, up to some; More is how many besides
	// Root.
	Roots  []Ref      `json:"roots,omitempty"`
	More   int        `json:"more,omitempty"`
	Policy string     `json:"policy,omitempty"`
	By     *By        `json:"by,omitempty"` // nil: not known
	Began  time.Time  `json:"began"`
	Ended  *time.Time `json:"ended,omitempty"`
	Done   bool       `json:"done,omitempty"`
	// Gone are removed, Waiting marked and not gone, Kept stay: they have lost an owner, or are protected.
	Gone    int `json:"gone"`
	Waiting int `json:"waiting"`
	Kept    int `json:"kept"`
	// Rate is how many objects have gone in a second, lately.
	Rate     float64 `json:"rate,omitempty"`
	WaitsFor string  `json:"waitsFor,omitempty"` // in words
}

// Owner is an owner reference of an object in a story.
type Owner struct {
	UID      ownership.UID `json:"uid"`
	Blocking bool          `json:"blocking,omitempty"`
}

// Hold is a finalizer that an object waits for.
type Hold struct {
	Finalizer string `json:"finalizer"`
}

// Object is an object of a story.
type Object struct {
	Ref

	Owners []Owner `json:"owners,omitempty"`
	// In is the namespace, or the definition, that the object goes with, if it is not an owner.
	In         ownership.UID `json:"in,omitempty"`
	Marked     *time.Time    `json:"marked,omitempty"`
	Gone       *time.Time    `json:"gone,omitempty"`
	GraceUntil *time.Time    `json:"graceUntil,omitempty"` // the deletionTimestamp, while it is not gone
	Fate       string        `json:"fate,omitempty"`       // "kept" of what stays
	Protected  bool          `json:"protected,omitempty"`  // it stays because it is protected (R28)
	KeptBy     []Ref         `json:"keptBy,omitempty"`     // owners that keep it
	Lost       []Ref         `json:"lost,omitempty"`       // owners that it has lost, and stays
	Holds      []Hold        `json:"holds,omitempty"`
}

// FateKept is the fate of an object that stays.
const FateKept = "kept"
