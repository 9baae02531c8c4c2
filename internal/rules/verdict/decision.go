package verdict

import (
	"fmt"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Propagation is the propagation policy of a DELETE.
type Propagation string

// The propagation policies, as the API names them.
const (
	Background Propagation = "Background"
	Foreground Propagation = "Foreground"
	Orphan     Propagation = "Orphan"
)

// Decision is the action to take on one object: one of the types below. Each stands for at most
// one write, or for the reads that are needed to decide; only Disown stands for one write to each
// dependent.
//
//sumtype:decl
type Decision interface {
	decision()
	// String returns the decision in words, for logs and golden files.
	String() string
}

type (
	// Keep leaves the object as it is.
	Keep struct{ Reason string }
	// Verify requests live reads of Unknown claims (R7). Each is named once, in order. There may
	// be ten thousand; they can be read in portions, since each answer returns the object again.
	Verify struct{ Claims []ownership.Claim }
	// Reread requests live reads of observed objects that were being deleted in an earlier epoch
	// (R4). Each answer returns the object again.
	Reread struct{ Objects []ownership.UID }
	// Park waits for kinds that no API serves now; the object is reconsidered when one appears (R7).
	Park struct{ Kinds []ownership.Kind }
	// Detach removes the references to the owners in Remove. Remaining is the list to write
	// (R9). An object may refer to one UID both correctly and incorrectly; then Remaining
	// keeps the correct reference.
	Detach struct {
		Remove    []ownership.UID
		Remaining []ownership.Reference
		Reason    string
	}
	// Unblock sets blockOwnerDeletion to false on the references inside a cycle. Owners is the
	// list to write (R10). Cycle is shared with the graph and must not be changed.
	Unblock struct {
		Cycle  []ownership.UID
		Owners []ownership.Reference
	}
	// Delete deletes the object (R10, R11).
	Delete struct {
		Propagation Propagation
		Reason      string
	}
	// Await leaves an object in foreground deletion until its blocking dependents are gone (R14).
	// Blocking names some of them, MaxBlocking at most.
	Await struct{ Blocking []ownership.UID }
	// Disown detaches every dependent's reference to this object, which is being orphaned (R13).
	Disown struct{ Dependents []ownership.UID }
	// RemoveFinalizer removes the collector's finalizer. Remaining is the list to write (R13, R14).
	RemoveFinalizer struct {
		Finalizer string
		Remaining []string
	}
)

func (Keep) decision()            {}
func (Verify) decision()          {}
func (Reread) decision()          {}
func (Park) decision()            {}
func (Detach) decision()          {}
func (Unblock) decision()         {}
func (Delete) decision()          {}
func (Await) decision()           {}
func (Disown) decision()          {}
func (RemoveFinalizer) decision() {}

// String returns, for example, "keep: held by ReplicaSet.apps web".
func (d Keep) String() string { return "keep: " + d.Reason }

// String returns, for example, "verify ReplicaSet.apps default/web (uid)".
func (d Verify) String() string { return "verify " + list(d.Claims) }

// String returns, for example, "reread uid, uid".
func (d Reread) String() string { return "reread " + list(d.Objects) }

// String returns, for example, "park on Widget.example.com".
func (d Park) String() string { return "park on " + list(d.Kinds) }

// String returns, for example, "detach from uid: held by …; owners absent: …".
func (d Detach) String() string { return "detach from " + list(d.Remove) + ": " + d.Reason }

// String returns, for example, "unblock the cycle uid, uid".
func (d Unblock) String() string { return "unblock the cycle " + list(d.Cycle) }

// String returns, for example, "delete Background: owners absent: ReplicaSet.apps web".
func (d Delete) String() string { return "delete " + string(d.Propagation) + ": " + d.Reason }

// String returns, for example, "await uid, uid".
func (d Await) String() string { return "await " + list(d.Blocking) }

// String returns, for example, "disown uid, uid".
func (d Disown) String() string { return "disown " + list(d.Dependents) }

// String returns, for example, "remove-finalizer orphan".
func (d RemoveFinalizer) String() string { return "remove-finalizer " + d.Finalizer }

// maxNamed bounds the number of names in a sentence: an object may have ten thousand owners.
const maxNamed = 5

// list names the first few, and says how many more there are.
func list[T any](all []T) string {
	var text strings.Builder
	for n, one := range all {
		if n == maxNamed {
			fmt.Fprintf(&text, " and %d more", len(all)-n)
			break
		}
		if n > 0 {
			text.WriteString(", ")
		}
		fmt.Fprint(&text, one)
	}
	return text.String()
}
