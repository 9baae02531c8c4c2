package simulation

import (
	"strings"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// Op is the kind of a step.
type Op string

// The ops of users.
const (
	Create     Op = "create"     // Ref, UID, Owners, Finalizers
	Delete     Op = "delete"     // Ref, Policy
	Own        Op = "own"        // Ref, Owners: adds references, or replaces those with the same UID
	Disown     Op = "disown"     // Ref, Owners: removes the references with these UIDs
	Finalize   Op = "finalize"   // Ref, Finalizers: adds them
	Unfinalize Op = "unfinalize" // Ref, Finalizers: removes them
)

// The ops of the server and its watches.
const (
	Deliver  Op = "deliver"  // Kind: the next watch event
	Repeat   Op = "repeat"   // Kind: the last watch event once more
	Relist   Op = "relist"   // Kind, Stale: the watch broke and events were lost
	Travel   Op = "travel"   // Kind, Stale: the same, and the list may be older than the last observed revision
	Restore  Op = "restore"  // Stale: a backup, so many revisions old; all watches are cut
	Break    Op = "break"    // Kind: its objects cannot be read or written
	Mend     Op = "mend"     // Kind
	Withdraw Op = "withdraw" // the resource is no longer served, its objects are lost
	Serve    Op = "serve"    // Kind
	Notice   Op = "notice"   // Kind: the feed observes the change
)

// The ops of the collector.
const (
	Collect Op = "collect" // UID: a worker takes the key, and goes on up to its first request
	Execute Op = "execute" // UID: the worker's request is carried out, its answer not yet there
	Answer  Op = "answer"  // UID: the answer arrives; the request is carried out, unless it was before
	Fail    Op = "fail"    // UID, Failure: the request is answered without being carried out
	Lose    Op = "lose"    // UID: the request is carried out, its answer lost
	Drop    Op = "drop"    // UID: the request times out, and is carried out by a later Haunt
	Haunt   Op = "haunt"   // the oldest request whose sender is gone is executed
	Wake    Op = "wake"    // UID: the back-off of the key is over
	// Crash, with Stale, Kind and Failure, is a cold restart: the lists are stale, one kind cannot
	// be listed, nor discovered when Failure is "undiscovered". Requests in flight arrive later
	// (Haunt), or never when Failure is "lost".
	Crash Op = "crash"
)

// The ops that stand for many steps in an ordinary order.
const (
	CatchUp Op = "catchup" // all watch events are delivered
	Work    Op = "work"    // all keys are processed, without watch events
	Settle  Op = "settle"  // both, until nothing is left to do
)

// Step is one event. The op decides which fields are used.
type Step struct {
	Op         Op
	Ref        client.Ref
	UID        ownership.UID
	Owners     []ownership.Reference
	Finalizers []string
	Policy     verdict.Propagation // empty: no policy
	Kind       string              // short name of a resource
	Stale      int
	Failure    string
}

// Settings are the assumptions of a schedule.
type Settings struct {
	// Admission: the server refuses new references to an owner that is in
	// foreground or orphan deletion.
	Admission bool
	// Newest: the server reports the last write of each kind (R15).
	Newest bool
	// Workers is the number of keys that are processed concurrently; 0: a few.
	Workers int
	// Piece is the number of dependents of one owner that are queued at once: 1, or 0 for all that a history has.
	Piece int
	// NoBarrier turns the barrier off (R15), to show that it is needed.
	NoBarrier bool
}

// Schedule determines a history completely.
type Schedule struct {
	Settings Settings
	Steps    []Step
}

// isUser reports whether an op is a user's.
func (o Op) isUser() bool {
	switch o {
	case Create, Delete, Own, Disown, Finalize, Unfinalize:
		return true
	default:
		return false
	}
}

// String returns the schedule in the form that Parse reads.
func (s Schedule) String() string {
	var b strings.Builder
	if s.Settings.Admission {
		b.WriteString("admission\n")
	}
	if s.Settings.Newest {
		b.WriteString("newest\n")
	}
	if s.Settings.Piece == 1 {
		b.WriteString("piecemeal\n")
	}
	for _, step := range s.Steps {
		b.WriteString(step.String())
		b.WriteByte('\n')
	}
	return b.String()
}
