// Package report has the types in which a collector reports its state (Status) and its decisions (Record). They
// have no behaviour: package collector and the packages below it fill them in, and diagnostics read them.
package report

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// UID identifies an object.
type UID = types.UID

// Status is the state of a collector at one moment. Each part is consistent in itself, but not with
// the others.
type Status struct {
	// Synced reports whether the collector has read all objects and is collecting.
	Synced bool `json:"synced"`
	// Program is the program that runs the controllers; empty for another program than those of Coppice.
	Program string `json:"program,omitempty"`
	// Controllers are the controllers in this process, by their names in kube-controller-manager, as far as a deletion may
	// wait for them.
	Controllers []string `json:"controllers,omitempty"`
	// AsleepSince is the time at which the watches of an idle cluster were closed; zero if they are open
	// (Pool).
	AsleepSince time.Time `json:"asleepSince,omitzero"`
	// ProbeError is the error of the last probe of a sleeping cluster.
	ProbeError string `json:"probeError,omitempty"`
	// Resources are the resources that it watches, ordered by kind.
	Resources []ResourceStatus `json:"resources"`
	// ObserveOnly reports whether it changes nothing (Options.ObserveOnly).
	ObserveOnly bool `json:"observeOnly"`
	// Graph is the size of the ownership graph.
	Graph GraphStatus `json:"graph"`
	// Kinds are all kinds that are served, observed or waited for, ordered by name.
	Kinds []KindStatus `json:"kinds"`
	// Deletions counts current and past deletions, by kind and finalizer.
	Deletions []DeletionStatus `json:"deletions"`
	// Queue describes the queued objects.
	Queue QueueStatus `json:"queue"`
	// Barrier lists the owners whose foreground or orphan deletion waits for the proof that no
	// dependent was missed (rule R15), the longest waiting first.
	Barrier []BarrierWait `json:"barrier"`
	// Paused lists the kinds whose deletions the breaker has paused, ordered by name.
	Paused []Pause `json:"paused"`
	// Refused lists the objects that the server refuses to delete or to change (rule R31), the longest refused first: at
	// most a thousand, of a megabyte.
	Refused []RefusedObject `json:"refused"`
	// RefusedCounts counts all refused objects, ordered by kind and refuser.
	RefusedCounts []RefusedCount `json:"refusedCounts"`
	// Concurrency is the maximum number of requests that it sends to the server concurrently.
	Concurrency int `json:"concurrency,omitempty"`
	// Stats are counters.
	Stats Stats `json:"stats"`
	// Latency is the time from the evidence that the last owner of an object is gone to the
	// response to the object's DELETE.
	Latency Histogram `json:"latency"`
}

// ResourceStatus is the state of the watch of one resource.
type ResourceStatus struct {
	Kind     string `json:"kind"`     // "ReplicaSet.apps"
	Resource string `json:"resource"` // "replicasets.apps"
	Version  string `json:"version"`  // "v1"
	// State is "waiting" for the first list, "synced" or "failing".
	State string `json:"state"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// Error is the error of the last request, if failing.
	Error string `json:"error,omitempty"`
	// Complete reports whether the resource was ever listed completely. If not, objects of it may
	// be unknown.
	Complete bool `json:"complete"`
	// Leaving reports that discovery no longer includes the resource.
	Leaving bool `json:"leaving,omitempty"`
	// Revision is the resourceVersion up to which it has been watched.
	Revision string `json:"revision,omitempty"`
}

// GraphStatus is the size of the ownership graph.
type GraphStatus struct {
	Objects    int `json:"objects"`    // observed
	Presumed   int `json:"presumed"`   // owners that dependents name and that were not observed
	References int `json:"references"` // from an object to its owner
	Claims     int `json:"claims"`     // distinct coordinates of owners, as dependents state them
	Answers    int `json:"answers"`    // cached results of live reads
	InCycles   int `json:"inCycles"`   // objects that are part of a blocking cycle
}

// KindStatus is one kind in the ownership graph.
type KindStatus struct {
	Kind    string `json:"kind"`    // "ReplicaSet.apps"
	Scope   string `json:"scope"`   // "namespaced", "cluster", or "unknown" if it is not served
	Objects int    `json:"objects"` // observed
	// Parked counts the owner references that wait for this kind to be served (rule R7).
	Parked int `json:"parked,omitempty"`
}

// DeletionStatus is the state of the deletions of objects of one kind that have, or had, one
// finalizer. An object with several finalizers counts for each.
type DeletionStatus struct {
	// Kind is, for example, "Widget.example.com". It is empty for the finalizers beyond a thousand, which
	// are counted together.
	Kind string `json:"kind"`
	// Finalizer is empty for objects without finalizers.
	Finalizer string `json:"finalizer,omitempty"`
	// Objects is the number of objects that are being deleted now.
	Objects int `json:"objects"`
	// Oldest is the earliest of their deletionTimestamps: when the first of them should have been gone.
	Oldest time.Time `json:"oldest,omitzero"`
	// Gone is the number of objects that lost the finalizer while they were being deleted, or are gone.
	Gone uint64 `json:"gone"`
}

// QueueStatus is the state of the work queue.
type QueueStatus struct {
	// Length is the number of queued objects. The dependents of one owner are queued about a thousand at a time.
	Length int           `json:"length"`
	Oldest time.Duration `json:"oldest"` // how long the first of them has been queued
}

// BarrierWait is an owner whose deletion waits for the proof that no dependent was missed.
type BarrierWait struct {
	Owner     string    `json:"owner"` // "ReplicaSet.apps shop/web"
	UID       UID       `json:"uid"`
	Finalizer string    `json:"finalizer"` // that will be removed
	Since     time.Time `json:"since"`
	// Rounds is the number of attempts at the proof that were not sufficient.
	Rounds int `json:"rounds"`
	// Holds are the reasons; empty until the first attempt has ended.
	Holds []Hold `json:"holds,omitempty"`
}

// Hold is a reason why the deletion of an owner waits.
type Hold struct {
	// What names the kind that cannot be read or the group version that cannot be discovered.
	What string `json:"what"`
	// Why is the reason for that.
	Why string `json:"why"`
}

// String implements fmt.Stringer.
func (h Hold) String() string { return h.What + ": " + h.Why }

// Pause is a kind whose deletions the breaker has paused.
type Pause struct {
	Kind    string    `json:"kind"` // "ReplicaSet.apps"
	Since   time.Time `json:"since"`
	Deleted int       `json:"deleted"` // objects of the kind that were deleted in the preceding window
	Objects int       `json:"objects"` // objects of the kind at the beginning of that window
}

// Stats are counters since the creation of the collector.
type Stats struct {
	// Requests to the API server, by verb. Those that write Events are not included.
	Gets, Lists, Deletes, Patches int64
	// Events written.
	Events int64
	// Conflicts counts the writes that were rejected because the object had changed.
	Conflicts int64
	// Hot counts how often a write was deferred because the object changed too often (rule R12).
	Hot int64
	// Paused counts the deletions that the breaker prevented.
	Paused int64
	// Tripped counts how often the breaker paused a kind.
	Tripped int64
	// Epochs counts the discontinuities in the server's history (rule R4).
	Epochs int64
	// Rounds counts the attempts to prove that no dependent was missed (rule R15).
	Rounds int64
	// Holds counts how often an owner had to keep waiting after such an attempt.
	Holds int64
	// Decisions, by type. A repeated decision counts again.
	Keep, Verify, Park, Detach, Unblock, Delete, Await, Disown, RemoveFinalizer int64
}

// Histogram counts durations in buckets.
type Histogram struct {
	// Bounds are the upper bounds of the buckets, ascending.
	Bounds []time.Duration `json:"bounds"`
	// Counts are the numbers of durations in each bucket, excluding lower buckets. There is one
	// more than in Bounds, for durations above all of them.
	Counts []int64       `json:"counts"`
	Sum    time.Duration `json:"sum"`
	Count  int64         `json:"count"`
}
