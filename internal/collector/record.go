package collector

import (
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/verdict"
)

// Record is one decision that changed the world: what was done to which object,
// and on what evidence.
type Record struct {
	Number uint64         `json:"number"` // counts from 1
	Time   time.Time      `json:"time"`
	Object RecordedObject `json:"object"`
	Action Action         `json:"action"`
	// Decision is the decision in words: "delete Background: owners absent: ReplicaSet.apps web".
	Decision string `json:"decision"`
	// Policy is that of a delete, or of the deletion of the owner that the action is a part of.
	Policy verdict.Propagation `json:"policy,omitempty"`
	// Owners are those of the object, in the stored order; of an object that is
	// orphaned only the owner that is deleted. MoreOwners were left out.
	Owners     []RecordedOwner `json:"owners,omitempty"`
	MoreOwners int             `json:"moreOwners,omitempty"`
	Answer     Answer          `json:"answer"`
	Error      string          `json:"error,omitempty"` // when the answer is not known
}

// Action is what was done.
type Action string

// The actions.
const (
	ActionDelete  Action = "delete"  // the object was deleted
	ActionDetach  Action = "detach"  // references to absent and to waiting owners were removed
	ActionUnblock Action = "unblock" // references inside a cycle do not block any more
	ActionOrphan  Action = "orphan"  // the reference to an owner that is deleted was removed
	ActionRelease Action = "release" // a finalizer of the collector's was removed
)

// Answer is what the server said.
type Answer string

// The answers. What the server refuses changes nothing, and is not recorded.
const (
	AnswerDone    Answer = "done"
	AnswerUnknown Answer = "unknown"  // there was none: it may have been done or not
	AnswerNone    Answer = "observed" // nothing was asked of it (Config.ObserveOnly)
)

// RecordedObject is an object as the decision was made on it.
type RecordedObject struct {
	Kind            string        `json:"kind"` // "ReplicaSet.apps"
	Namespace       string        `json:"namespace,omitempty"`
	Name            string        `json:"name"`
	UID             ownership.UID `json:"uid"`
	ResourceVersion string        `json:"resourceVersion"`
}

// RecordedOwner is an owner, and what was known of it.
type RecordedOwner struct {
	Kind      string        `json:"kind"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name"`
	UID       ownership.UID `json:"uid"`
	Standing  string        `json:"standing"` // "solid", "waiting", "dangling", …
	// Evidence is "observation", "deleted event" or "live read"; "none" if nothing is known.
	Evidence string `json:"evidence"`
	// Revision is the resourceVersion of the observation or of the event.
	Revision uint64 `json:"revision,omitempty"`
	// Time is when the event came, or the answer to the live read.
	Time time.Time `json:"time,omitzero"`
}

// maxRecordedOwners bounds the owners in one record: there may be thousands.
const maxRecordedOwners = 8

// journal keeps the last records.
type journal struct {
	size int // of records; 0: none are kept

	mu      sync.Mutex
	records []Record // guarded by mu; a ring once it is full
	count   uint64   // guarded by mu; of records ever made
}

// add keeps a record, in place of the oldest when there is no room, and numbers it.
func (j *journal) add(r Record) {
	if j.size <= 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r.Number = j.count + 1
	if len(j.records) < j.size {
		j.records = append(j.records, r)
	} else {
		j.records[j.count%uint64(j.size)] = r
	}
	j.count++
}

// Records are the last decisions that changed the world, in the order in which
// they were answered.
func (c *Collector) Records() []Record {
	j := &c.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	records := make([]Record, 0, len(j.records))
	if len(j.records) < j.size {
		return append(records, j.records...)
	}
	if j.size <= 0 {
		return records
	}
	oldest := j.count % uint64(j.size)
	return append(append(records, j.records[oldest:]...), j.records[:oldest]...)
}

// record notes what a request has done, or may have done: err is its error.
func (c *Collector) record(r Record, err error) {
	switch {
	case err == nil:
		r.Answer = AnswerDone
	case isRefusal(err):
		return
	default:
		r.Answer, r.Error = AnswerUnknown, err.Error()
	}
	r.Time = c.clock.Now()
	c.journal.add(r)
}

// isRefusal tells whether an error says that the request was not carried out.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
	}
	return errors.As(err, &unservedError{})
}

// recordOf is the record of a decision, without the answer.
func recordOf(f verdict.Facts, d verdict.Decision) Record {
	r := Record{Action: actionOf(d), Object: recorded(f.Object), Decision: d.String(), Policy: policyOf(f.Object, d)}
	for i, o := range f.Owners {
		if i == maxRecordedOwners {
			r.MoreOwners = len(f.Owners) - i
			break
		}
		owner := RecordedOwner{
			Kind: o.Claim.Kind.String(), Namespace: o.Claim.Namespace, Name: o.Claim.Name, UID: o.Claim.UID,
			Standing: o.Standing.String(), Evidence: o.Evidence.Source.String(), Revision: o.Evidence.Revision,
		}
		if o.Evidence.Time != 0 {
			owner.Time = time.Unix(0, o.Evidence.Time).UTC()
		}
		r.Owners = append(r.Owners, owner)
	}
	return r
}

// actionOf is what a decision amounts to; empty when it changes nothing.
func actionOf(d verdict.Decision) Action {
	switch d.(type) {
	case verdict.Keep, verdict.Verify, verdict.Reread, verdict.Park, verdict.Await:
		return ""
	case verdict.Detach:
		return ActionDetach
	case verdict.Unblock:
		return ActionUnblock
	case verdict.Delete:
		return ActionDelete
	case verdict.Disown:
		return ActionOrphan
	case verdict.Release:
		return ActionRelease
	}
	return ""
}

// policyOf is the propagation that a decision means, or is a part of.
func policyOf(o ownership.Object, d verdict.Decision) verdict.Propagation {
	if d, ok := d.(verdict.Delete); ok {
		return d.Propagation
	}
	switch o.Phase {
	case ownership.Orphaning:
		return verdict.Orphan
	case ownership.Foreground:
		return verdict.Foreground
	default:
		return ""
	}
}

// recordOfOrphan is the record of a dependent that is detached from an owner.
func recordOfOrphan(dependent, owner ownership.Object) Record {
	revision, _ := revisionOf(owner.ResourceVersion)
	return Record{
		Action: ActionOrphan, Object: recorded(dependent), Policy: verdict.Orphan,
		Decision: "detach from " + RefOf(owner).String() + ", which orphans its dependents",
		Owners: []RecordedOwner{{
			Kind: owner.Kind.String(), Namespace: owner.Namespace, Name: owner.Name, UID: owner.UID,
			Standing: owner.Phase.String(), Evidence: ownership.Observation.String(), Revision: revision,
		}},
	}
}

func recorded(o ownership.Object) RecordedObject {
	return RecordedObject{
		Kind: o.Kind.String(), Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}
}
