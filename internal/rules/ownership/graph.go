// Package ownership holds the ownership graph: the observed objects, the owners that each of
// them names, and the presence of every such claim. It does no I/O, reads no clock and
// starts no goroutine: the same observations in the same order give the same answers.
//
// The main flow. The feed reports observations, and the collector the results of its reads:
//
//	Observe            an object as it is at a resourceVersion (watch event)
//	StartList, Listed,
//	Load, Replace      the objects of a list, which may come in parts
//	Refresh, Confirm   the same from a live read of the object itself
//	Forget             a DELETED watch event: evidence of absence (R3)
//	Vanish             the object is no longer where it was, without that evidence
//	SetScope           a kind is served in namespaces, cluster-wide, or no longer
//	Resolve            the answer to a live read of a claim
//	NewEpoch           all earlier absence is doubtful (R4)
//	SetTime            the current time, which becomes part of the evidence
//	Rest               after InPieces: further objects to reconsider
//
// Each of them but SetTime returns the UIDs to reconsider: every object whose decision may have
// changed, sorted, without duplicates. After InPieces, Rest returns most dependents of a crowded owner. That is level-triggered: the caller keeps keys, not
// events, and package verdict decides from the state of the graph at that time. An active object
// whose owners are all solid (R7) is not returned, since it needs no action; so a start with a
// million objects returns only the objects that need work.
//
// Identity is the UID (R1). The graph has one entry for each UID, either observed
// or only claimed. It keeps the statements of dependents about an owner as claims:
// (kind, namespace, name, UID). A presence belongs to a claim, never to a UID, as
// dependents may disagree about where a UID lives, and a bad claimant must never
// change the fate of a good one (R6). There is one exception: a DELETED event of
// a UID answers all claims on it. Only function standing derives the presence of
// a claim:
//
//	Present      an object was observed, or read live, at the claim's coordinates
//	Absent       the UID's DELETED event, or a live read of those coordinates
//	Unknown      anything else; it may be Unmapped or OutOfScope besides
//
// The metadata of the observed objects bounds the memory: the graph drops an entry that is
// neither observed nor claimed, a claim with its last reference, and the answer of a live read
// with its claim.
//
// Where to read on: observe.go (objects come, change, go), list.go (lists), link.go (references
// and claims), evidence.go (scopes, live reads, epochs, standing), reconsider.go and rest.go
// (the returned UIDs), cycle.go (R10), cut.go (objects with many owners), read.go (queries), check.go (the
// invariants), deletions.go (counts of deletions), entry.go, slab.go, names.go and
// index.go (storage).
//
// The records are stored in slabs and indexes of our own instead of Go maps. The target is
// 120 bytes per object at a million objects, names included; BenchmarkBuild measures 112. An
// Object with one Reference takes 224 bytes before its UID and its name. Records and names have no
// pointers, so that Go's own collector has almost nothing to mark in a graph of ten million objects.
package ownership

import (
	"hash/maphash"
	"strings"
)

// Graph is the ownership graph. It is not safe for concurrent use; but the methods in read.go
// change nothing and may run concurrently with each other.
type Graph struct {
	entries    slab[entryID, entry]
	claims     slab[claimID, claim]
	references slab[refID, reference]

	names names // of entries and claims

	byUUID      index
	byOddUID    map[UID]entryID      // UIDs that are not canonical UUIDs
	oddUIDs     map[entryID]UID      // the inverse
	oddVersions map[entryID]string   // resourceVersions that are not plain numbers
	times       map[entryID]int64    // when the DELETED event of an absent entry came, if SetTime was called
	laterClaims map[claimKey]claimID // the claims on an entry other than its first

	kinds      table[kindID, Kind]
	facts      []kindFacts // by kindID
	namespaces table[spaceID, string]
	versions   table[versionID, string]
	finalizers table[listID, string]
	lists      [][]string // by listID

	// answers holds the results of live reads, by the coordinates that were read. None is
	// kept for an absent entry, whose DELETED event is stronger evidence.
	answers map[claimKey]answer

	// cycles holds the members of every cycle of blocking references (R10). Each change of
	// an edge updates it, so that reading needs no search.
	cycles map[entryID]*cycle

	// due holds the deletionTimestamps of observed entries that are being deleted, and finished counts the
	// deletions that have ended, see deletions.go.
	due      map[entryID]int64
	finished map[deletionKey]uint64

	// cuts holds the objects of which not all owner references are kept, by namespace, and most the number of
	// references up to which all are kept; zero means that all always are. finishing holds the observed entries in
	// foreground and orphan deletion. See cut.go.
	cuts      map[spaceID]map[entryID]*cut
	most      int
	finishing map[entryID]struct{}
	seed      maphash.Seed

	objects int   // observed entries
	stale   int   // observed entries with the mark stale
	now     int64 // the argument of the last SetTime

	// Entries that the running call may return, see reconsider.go, and those that Rest will, see rest.go.
	certain    []entryID
	candidates []entryID
	rest       []rest
	piece      int // zero: there is no rest
}

type kindFacts struct {
	scope   Scope // while it is known, it counts as a use of the kind
	objects uint32
	claims  uint32
	list    listNumber // of the last list that began
	listed  uint32     // observed entries that this list has had
}

// New returns an empty graph, which keeps all owner references.
func New() *Graph { return NewKeeping(0) }

// NewKeeping returns an empty graph that keeps fewer owner references of an object that has more than most, see cut.go.
func NewKeeping(most int) *Graph {
	return &Graph{
		cuts:        make(map[spaceID]map[entryID]*cut),
		most:        most,
		finishing:   make(map[entryID]struct{}),
		seed:        maphash.MakeSeed(),
		entries:     newSlab[entryID, entry](),
		claims:      newSlab[claimID, claim](),
		references:  newSlab[refID, reference](),
		names:       newNames(),
		byUUID:      newIndex(),
		byOddUID:    make(map[UID]entryID),
		oddUIDs:     make(map[entryID]UID),
		oddVersions: make(map[entryID]string),
		times:       make(map[entryID]int64),
		laterClaims: make(map[claimKey]claimID),
		kinds:       newTable[kindID](cloneKind),
		facts:       make([]kindFacts, 1),
		namespaces:  newTable[spaceID](strings.Clone),
		versions:    newTable[versionID](strings.Clone),
		finalizers:  newTable[listID](strings.Clone),
		lists:       make([][]string, 1),
		answers:     make(map[claimKey]answer),
		cycles:      make(map[entryID]*cycle),
		due:         make(map[entryID]int64),
		finished:    make(map[deletionKey]uint64),
	}
}

// SetTime sets the time of the following calls, in a unit of the caller's choice. Evidence
// carries it; no decision depends on it.
func (g *Graph) SetTime(now int64) { g.now = now }
