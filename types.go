package coppice

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	light "github.com/coppice-dev/coppice/collector"
)

// UID identifies an object.
type UID = types.UID

// A Collector uses the types of package collector, which documents their fields.
type (
	// Options are the options of a collector. The zero value is usable.
	Options = light.Options
	// Breaker limits how many objects of one kind may be deleted before a person has to intervene. The
	// zero value sets no limit.
	Breaker = light.Breaker
	// Status is the state of a collector at one moment.
	Status = light.Status
	// ResourceStatus is the state of the watch of one resource.
	ResourceStatus = light.ResourceStatus
	// GraphStatus is the size of the ownership graph.
	GraphStatus = light.GraphStatus
	// KindStatus is one kind in the ownership graph.
	KindStatus = light.KindStatus
	// DeletionStatus is the state of the deletions of objects of one kind that have, or had, one
	// finalizer.
	DeletionStatus = light.DeletionStatus
	// QueueStatus is the state of the work queue.
	QueueStatus = light.QueueStatus
	// BarrierWait is an owner whose deletion waits for the proof that no dependent was missed.
	BarrierWait = light.BarrierWait
	// Hold is a reason why the deletion of an owner waits.
	Hold = light.Hold
	// Pause is a kind whose deletions the breaker has paused.
	Pause = light.Pause
	// Stats are counters since the creation of the collector.
	Stats = light.Stats
	// Histogram counts durations in buckets.
	Histogram = light.Histogram
	// Record is a decision that changed something on the server, and the evidence for it.
	Record = light.Record
	// RecordedObject is the object that a decision was about, as observed at the time.
	RecordedObject = light.RecordedObject
	// RecordedOwner is an owner of a recorded object, with the evidence about it.
	RecordedOwner = light.RecordedOwner
	// Action is the kind of change that was made to an object.
	Action = light.Action
	// Answer is the outcome of the request.
	Answer = light.Answer
)

// The actions.
const (
	ActionDelete          = light.ActionDelete          // the object was deleted
	ActionDetach          = light.ActionDetach          // references to absent and to waiting owners were removed
	ActionUnblock         = light.ActionUnblock         // references inside a cycle no longer block
	ActionOrphan          = light.ActionOrphan          // the reference to an owner that is being deleted was removed
	ActionRemoveFinalizer = light.ActionRemoveFinalizer // a finalizer of the garbage collector was removed
)

// The possible answers. Refused requests change nothing and are not recorded.
const (
	AnswerDone    = light.AnswerDone
	AnswerUnknown = light.AnswerUnknown // there was no response: the change may or may not have been made
	AnswerNone    = light.AnswerNone    // no request was sent (Options.ObserveOnly)
)

// DefaultIgnore returns the resources that are ignored unless Options.Ignore is set: the Events of
// both groups. There are many of them, and they own nothing.
func DefaultIgnore() []schema.GroupResource { return light.DefaultIgnore() }
