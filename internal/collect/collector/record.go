package collector

import (
	"time"

	"github.com/coppice-dev/coppice/internal/collect/collectionreason"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// Record is one decision that changed an object: the action and its evidence.
type Record struct {
	Number uint64         `json:"number"` // counts from 1
	Time   time.Time      `json:"time"`
	Object RecordedObject `json:"object"`
	Action Action         `json:"action"`
	// Decision is the decision in words: "delete Background: owners absent: ReplicaSet.apps web".
	Decision string `json:"decision"`
	// Policy is the policy of a delete, or of the owner's deletion that the action is part of.
	Policy verdict.Propagation `json:"policy,omitempty"`
	// Owners are the object's owners, in the stored order; for an orphaned object only the owner that is deleted.
	// MoreOwners is how many were left out.
	Owners     []RecordedOwner `json:"owners,omitempty"`
	MoreOwners int             `json:"moreOwners,omitempty"`
	Answer     Answer          `json:"answer"`
	Error      string          `json:"error,omitempty"` // when the answer is not known
}

// Action is the kind of change that was made.
type Action string

// The actions.
const (
	ActionDelete          Action = "delete"           // the object was deleted
	ActionDetach          Action = "detach"           // references to absent and to waiting owners were removed
	ActionUnblock         Action = "unblock"          // references inside a cycle no longer block
	ActionOrphan          Action = "orphan"           // the reference to an owner that is deleted was removed
	ActionRemoveFinalizer Action = "remove-finalizer" // a finalizer of the collector was removed
)

// Answer is the result of the request.
type Answer string

// The answers. A write that the server refuses changes nothing, and is not recorded.
const (
	AnswerDone    Answer = "done"
	AnswerUnknown Answer = "unknown"  // no answer: the request may have been carried out or not
	AnswerNone    Answer = "observed" // no request was sent (Config.ObserveOnly)
)

// RecordedObject is the object in the state on which the decision was made.
type RecordedObject struct {
	Kind      string `json:"kind"` // "ReplicaSet.apps"
	Namespace string `json:"namespace,omitempty"`
	// NamespaceUID is the UID of the namespace; empty if it is uncertain, because another namespace may have had the
	// name before.
	NamespaceUID    ownership.UID `json:"namespaceUID,omitempty"`
	Name            string        `json:"name"`
	UID             ownership.UID `json:"uid"`
	ResourceVersion string        `json:"resourceVersion"`
}

// RecordedOwner is an owner with its state at the time of the decision.
type RecordedOwner = collectionreason.Owner

// maxText bounds texts that contain names chosen by users, in bytes.
const maxText = 1024

// record records a request that has changed an object, or may have: err is its error.
func (c *Collector) record(r Record, err error) {
	switch {
	case err == nil:
		r.Answer = AnswerDone
	case client.IsRefusal(err):
		return
	default:
		r.Answer, r.Error = AnswerUnknown, ownership.Excerpt(err.Error(), maxText)
		r.Object.NamespaceUID = c.state.homeAt(r.Object.Namespace, r.Object.ResourceVersion)
	}
	r.Time = c.clock.Now()
	c.journal.add(r)
	if c.config.Stories != nil && (r.Action == ActionDetach || r.Action == ActionOrphan) {
		r.tell(c.config.Stories)
	}
}

// tell records in the stories that an object stays although it has lost owners.
func (r *Record) tell(b *story.Book) {
	var keptBy, lost []story.Ref
	for i := range r.Owners {
		o := &r.Owners[i]
		owner := story.Ref{Kind: o.Kind, Namespace: o.Namespace, NamespaceUID: r.HomeOf(o.Namespace), Name: o.Name, UID: o.UID}
		if o.Standing == verdict.Solid.String() && r.Action == ActionDetach {
			keptBy = append(keptBy, owner)
		} else {
			lost = append(lost, owner)
		}
	}
	object := story.Ref{
		Kind: r.Object.Kind, Namespace: r.Object.Namespace, NamespaceUID: r.Object.NamespaceUID, Name: r.Object.Name, UID: r.Object.UID,
	}
	b.Stayed(object, keptBy, lost, r.Time)
}

// HomeOf returns the UID of the namespace of an owner; empty if it is uncertain. Owners are in the namespace of the
// object, or cluster-scoped.
func (r *Record) HomeOf(namespace string) ownership.UID {
	if namespace == "" || namespace != r.Object.Namespace {
		return ""
	}
	return r.Object.NamespaceUID
}

// recordOf returns the record of a decision, without the answer. It is called before the request: the observations up
// to then determine the namespace of the object that the request finds.
func (c *Collector) recordOf(f verdict.Facts, d verdict.Decision) Record {
	r := Record{Action: actionOf(d), Object: c.recorded(f.Object), Decision: ownership.Excerpt(d.String(), maxText), Policy: policyOf(f.Object, d)}
	r.Owners, r.MoreOwners = collectionreason.OwnersOf(f.Owners)
	r.MoreOwners += f.Object.MoreOwners
	return r
}

// reason returns the reason that is passed to the server's audit log.
func (r Record) reason() collectionreason.Reason {
	return collectionreason.Reason{Decision: r.Decision, Policy: r.Policy, Owners: r.Owners, MoreOwners: r.MoreOwners}
}

// actionOf returns the action of a decision; empty if it changes nothing.
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
	case verdict.RemoveFinalizer:
		return ActionRemoveFinalizer
	}
	return ""
}

// policyOf returns the propagation policy of a deletion, or of the owner's deletion that a decision is part of.
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

// recordOfOrphan returns the record of a dependent that is detached from an owner, as recordOf does.
func (c *Collector) recordOfOrphan(dependent, owner ownership.Object) Record {
	revision, _ := client.Revision(owner.ResourceVersion)
	return Record{
		Action: ActionOrphan, Object: c.recorded(dependent), Policy: verdict.Orphan,
		Decision: ownership.Excerpt("detach from "+client.RefOf(owner).String()+", which orphans its dependents", maxText),
		Owners: []RecordedOwner{{
			Kind: owner.Kind.String(), Namespace: owner.Namespace, Name: owner.Name, UID: owner.UID,
			Standing: owner.Phase.String(), Evidence: ownership.Observation.String(), Revision: revision,
		}},
	}
}

func (c *Collector) recorded(o ownership.Object) RecordedObject {
	return RecordedObject{
		Kind: o.Kind.String(), Namespace: o.Namespace, NamespaceUID: c.state.homeNow(o.Namespace), Name: o.Name, UID: o.UID,
		ResourceVersion: o.ResourceVersion,
	}
}
