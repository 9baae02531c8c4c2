// Package story records deletions as stories: the request, the objects that are deleted with it, the objects that
// stay, and the objects that the deletion still waits for.
//
//	b := story.NewBook()
//	b.Requested(request)                // by the API server, if it is ours: the requesting user
//	b.Seen(object, home, now)           // by the collector, from its watches: marked, or changed since
//	b.Gone(object, home, now)           // home is the UID of its namespace
//	b.Stayed(object, keptBy, lost, now) // by the collector, when it has removed references to owners that go
//	b.Refused(object, home, refusal, now) // by a controller whose request was refused (R31), and RefusalEnded
//
// A story begins with an object that is marked or removed, and that belongs to no other story: its root. An object
// belongs to the story of its owners, of its namespace, or of the CustomResourceDefinition of its kind, if one of
// these is being deleted or is gone. All roots of one request, such as a DELETE of a collection, share one story. The
// story of an object is determined when the object is first observed, which takes a few lookups and no search.
//
// Each event passes through three parts: the membership finds the story of the object (membership.go); the story
// records the state of the object (entry.go), and the position of the change for its readers (journal.go); the
// retention keeps the Book within its limits (retention.go). A Reader has a view of the result: the part that its
// user may see (reader.go, visible.go, waits.go).
//
// The Book's size is bounded (limits): the oldest completed stories are forgotten first, stories of a single object
// before others, since controllers delete single objects all the time. Objects of a story beyond the limit are only
// counted.
//
// The package is pure: it reads no clock, starts no goroutine, and has no lock. Package storybook shares a Book.
package story

import (
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Ref names an object.
type Ref struct {
	Kind      string `json:"kind"` // "ReplicaSet.apps"
	Namespace string `json:"namespace,omitempty"`
	// NamespaceUID is the UID of the namespace; empty if it is uncertain, because another namespace may have had the
	// name before.
	NamespaceUID ownership.UID `json:"namespaceUID,omitempty"`
	Name         string        `json:"name"`
	UID          ownership.UID `json:"uid,omitempty"`
}

// String names the object for people.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// By is the user and the program that requested a deletion.
type By struct {
	User  string `json:"user"`
	Agent string `json:"agent,omitempty"` // the program: the User-Agent up to its first space
}

// Request is a DELETE of an object, as the API server has it.
type Request struct {
	// Key is the same for all objects of one request.
	Key    string
	UID    ownership.UID
	By     By
	Policy string // the propagation policy; empty if the request has none
}

// Summary is a story in one line.
type Summary struct {
	ID   ownership.UID `json:"id"` // the UID of the root
	Root Ref           `json:"root"`
	// Roots are the requested objects, up to a limit, if there are several; More is how many there are besides Root.
	Roots  []Ref      `json:"roots,omitempty"`
	More   int        `json:"more,omitempty"`
	Policy string     `json:"policy,omitempty"`
	By     *By        `json:"by,omitempty"` // nil: unknown
	Began  time.Time  `json:"began"`
	Ended  *time.Time `json:"ended,omitempty"`
	Done   bool       `json:"done,omitempty"`
	// Gone objects are removed, Waiting objects are marked and not gone, or the server refuses to delete or to change
	// them (R31), Kept objects stay: they have lost an owner, or are protected.
	Gone    int `json:"gone"`
	Waiting int `json:"waiting"`
	Kept    int `json:"kept"`
	// Rate is the recent number of removed objects per second.
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
	// In is the namespace, or the definition, that the object is deleted with, if it is not an owner.
	In         ownership.UID `json:"in,omitempty"`
	Marked     *time.Time    `json:"marked,omitempty"`
	Gone       *time.Time    `json:"gone,omitempty"`
	GraceUntil *time.Time    `json:"graceUntil,omitempty"` // the deletionTimestamp, while it is not gone
	Fate       string        `json:"fate,omitempty"`       // "kept" if the object stays
	Protected  bool          `json:"protected,omitempty"`  // it stays because it is protected (R28)
	KeptBy     []Ref         `json:"keptBy,omitempty"`     // owners that keep it
	Lost       []Ref         `json:"lost,omitempty"`       // owners that it has lost; it stays
	Holds      []Hold        `json:"holds,omitempty"`
	Refusal    *Refusal      `json:"refusal,omitempty"` // the last one, also when it has ended
}

// FateKept is the fate of an object that stays.
const FateKept = "kept"
