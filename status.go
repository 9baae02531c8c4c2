package coppice

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// UID identifies an object.
type UID = types.UID

// Status is the state of a collector at one moment. It is consistent within each part, but
// not across them.
type Status struct {
	// Synced reports whether the collector has read all objects, and collects.
	Synced bool `json:"synced"`
	// Resources are the resources that it watches, ordered by kind.
	Resources []ResourceStatus `json:"resources"`
	// ObserveOnly reports whether it changes nothing (Options.ObserveOnly).
	ObserveOnly bool `json:"observeOnly"`
	// Graph is the size of the ownership graph.
	Graph GraphStatus `json:"graph"`
	// Kinds are all kinds that are served, observed or waited for, ordered by name.
	Kinds []KindStatus `json:"kinds"`
	// Queue is the objects that wait to be looked at.
	Queue QueueStatus `json:"queue"`
	// Barrier are the owners whose foreground or orphan deletion waits for the proof that no
	// dependent was missed (rule R15). Longest waiting first.
	Barrier []BarrierWait `json:"barrier"`
	// Paused are the kinds whose deletions the breaker has paused, ordered by name.
	Paused []Pause `json:"paused"`
	// Concurrency is how many requests it sends to the server at the same time, at most.
	Concurrency int `json:"concurrency,omitempty"`
	// Stats are counters.
	Stats Stats `json:"stats"`
	// Latency is the time from the evidence that the last owner of an object is gone to the
	// response to the object's DELETE.
	Latency Histogram `json:"latency"`
}

// ResourceStatus is how one resource is watched.
type ResourceStatus struct {
	Kind     string `json:"kind"`     // "ReplicaSet.apps"
	Resource string `json:"resource"` // "replicasets.apps"
	Version  string `json:"version"`  // "v1"
	// State is "waiting" for the first list, "synced" or "failing".
	State string `json:"state"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// Error is that of the last request, when failing.
	Error string `json:"error,omitempty"`
	// Complete reports whether it was ever listed completely. If not, objects of it may be
	// unknown.
	Complete bool `json:"complete"`
	// Leaving reports that discovery does not name the resource any more.
	Leaving bool `json:"leaving,omitempty"`
	// Revision is the resourceVersion up to which it was watched.
	Revision string `json:"revision,omitempty"`
}

// GraphStatus is the size of the ownership graph.
type GraphStatus struct {
	Objects    int `json:"objects"`    // observed
	Presumed   int `json:"presumed"`   // owners that are named by dependents and were not observed
	References int `json:"references"` // from an object to its owner
	Claims     int `json:"claims"`     // distinct coordinates of owners, as dependents state them
	Answers    int `json:"answers"`    // results of live reads that are kept
	InCycles   int `json:"inCycles"`   // objects that are part of a blocking cycle
}

// KindStatus is one kind in the ownership graph.
type KindStatus struct {
	Kind    string `json:"kind"`    // "ReplicaSet.apps"
	Scope   string `json:"scope"`   // "namespaced", "cluster", or "unknown" when it is not served
	Objects int    `json:"objects"` // observed
	// Parked counts the owner references that wait for this kind to be served (rule R7).
	Parked int `json:"parked,omitempty"`
}

// QueueStatus is the work that waits.
type QueueStatus struct {
	Length int           `json:"length"` // objects that wait for a worker
	Oldest time.Duration `json:"oldest"` // how long the first of them has waited
}

// BarrierWait is an owner whose deletion waits for the proof that no dependent was missed.
type BarrierWait struct {
	Owner     string    `json:"owner"` // "ReplicaSet.apps shop/web"
	UID       UID       `json:"uid"`
	Finalizer string    `json:"finalizer"` // that will be removed
	Since     time.Time `json:"since"`
	// Rounds are how many attempts at the proof were not sufficient.
	Rounds int `json:"rounds"`
	// Holds are why; empty before the first attempt has ended.
	Holds []Hold `json:"holds,omitempty"`
}

// Hold is a reason why the deletion of an owner waits.
type Hold struct {
	// What is the kind that cannot be read, or the group version that cannot be discovered.
	What string `json:"what"`
	// Why is what is wrong with it.
	Why string `json:"why"`
}

// Pause is a kind whose deletions the breaker has paused.
type Pause struct {
	Kind    string    `json:"kind"` // "ReplicaSet.apps"
	Since   time.Time `json:"since"`
	Deleted int       `json:"deleted"` // objects of the kind that were deleted in the window before
	Objects int       `json:"objects"` // objects of the kind at the beginning of that window
}

// Stats are counters since the collector was made.
type Stats struct {
	// Requests to the API server, by verb. Events are not among them.
	Gets, Lists, Deletes, Patches int64
	// Events written.
	Events int64
	// Conflicts counts the writes that were refused because the object had changed.
	Conflicts int64
	// Hot counts how often a write was put off because the object changed too often (rule R12).
	Hot int64
	// Paused counts the deletions that the breaker did not let pass.
	Paused int64
	// Tripped counts how often the breaker paused a kind.
	Tripped int64
	// Epochs counts the breaks in the server's history (rule R4).
	Epochs int64
	// Rounds counts the attempts to prove that no dependent was missed (rule R15).
	Rounds int64
	// Holds counts how often an owner had to go on waiting after one.
	Holds int64
	// Decisions, by type. A repeated decision counts again.
	Keep, Verify, Park, Detach, Unblock, Delete, Await, Disown, Release int64
}

// Histogram counts durations in buckets.
type Histogram struct {
	// Bounds are the upper bounds of the buckets, ascending.
	Bounds []time.Duration `json:"bounds"`
	// Counts are those of the buckets, each without the ones below it. There is one more
	// than Bounds, for what is above all of them.
	Counts []int64       `json:"counts"`
	Sum    time.Duration `json:"sum"`
	Count  int64         `json:"count"`
}
