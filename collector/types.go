package collector

import "github.com/coppice-dev/coppice/collector/report"

// UID identifies an object.
type UID = report.UID

// The types of Status and Records. Package report documents their fields.
type (
	// Status is the state of a collector at one moment.
	Status = report.Status
	// ResourceStatus is the state of the watch of one resource.
	ResourceStatus = report.ResourceStatus
	// GraphStatus is the size of the ownership graph.
	GraphStatus = report.GraphStatus
	// KindStatus is one kind in the ownership graph.
	KindStatus = report.KindStatus
	// DeletionStatus is the state of the deletions of objects of one kind that have, or had, one
	// finalizer.
	DeletionStatus = report.DeletionStatus
	// QueueStatus is the state of the work queue.
	QueueStatus = report.QueueStatus
	// BarrierWait is an owner whose deletion waits for the proof that no dependent was missed.
	BarrierWait = report.BarrierWait
	// Hold is a reason why the deletion of an owner waits.
	Hold = report.Hold
	// Pause is a kind whose deletions the breaker has paused.
	Pause = report.Pause
	// Stats are counters since the creation of the collector.
	Stats = report.Stats
	// Histogram counts durations in buckets.
	Histogram = report.Histogram
	// Record is a decision that changed something on the server, and the evidence for it.
	Record = report.Record
	// RecordedObject is the object that a decision was about, as observed at the time.
	RecordedObject = report.RecordedObject
	// RecordedOwner is an owner of a recorded object, with the evidence about it.
	RecordedOwner = report.Owner
	// Action is the kind of change that was made to an object.
	Action = report.Action
	// Answer is the outcome of the request.
	Answer = report.Answer
)

// The actions.
const (
	ActionDelete          = report.ActionDelete          // the object was deleted
	ActionDetach          = report.ActionDetach          // references to absent and to waiting owners were removed
	ActionUnblock         = report.ActionUnblock         // references inside a cycle no longer block
	ActionOrphan          = report.ActionOrphan          // the reference to an owner that is being deleted was removed
	ActionRemoveFinalizer = report.ActionRemoveFinalizer // a finalizer of the garbage collector was removed
)

// The possible answers. Refused requests change nothing and are not recorded.
const (
	AnswerDone    = report.AnswerDone
	AnswerUnknown = report.AnswerUnknown // there was no response: the change may or may not have been made
	AnswerNone    = report.AnswerNone    // no request was sent (Options.ObserveOnly)
)
