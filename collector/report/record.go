package report

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Record is a decision that changed something on the server, and the evidence for it.
type Record struct {
	Number uint64         `json:"number"` // counts from 1
	Time   time.Time      `json:"time"`   // of the response
	Object RecordedObject `json:"object"`
	Action Action         `json:"action"`
	// Decision is the decision in words: "delete Background: owners absent: ReplicaSet.apps web".
	Decision string `json:"decision"`
	// Policy is the propagation policy of the delete, or of the owner's deletion that the action is part of.
	Policy metav1.DeletionPropagation `json:"policy,omitempty"`
	// Owners are the object's owners, in the stored order; when the object is orphaned, only the
	// owner that is being deleted.
	Owners []Owner `json:"owners,omitempty"`
	// MoreOwners is the number of owners that were omitted from Owners.
	MoreOwners int    `json:"moreOwners,omitempty"`
	Answer     Answer `json:"answer"`
	Error      string `json:"error,omitempty"` // if the Answer is AnswerUnknown
}

// NamespaceUID returns the UID of a namespace that an owner of the object is in. It is empty if the UID is not certain,
// and for cluster-scoped owners: owners are in the namespace of the object, or cluster-scoped.
func (r *Record) NamespaceUID(namespace string) UID {
	if namespace == "" || namespace != r.Object.Namespace {
		return ""
	}
	return r.Object.NamespaceUID
}

// Action is the kind of change that was made to an object.
type Action string

// The actions.
const (
	ActionDelete          Action = "delete"           // the object was deleted
	ActionDetach          Action = "detach"           // references to absent and to waiting owners were removed
	ActionUnblock         Action = "unblock"          // references inside a cycle no longer block
	ActionOrphan          Action = "orphan"           // the reference to an owner that is being deleted was removed
	ActionRemoveFinalizer Action = "remove-finalizer" // a finalizer of the garbage collector was removed

	// ActionDeleteInstances is the deletion of the instances of a CustomResourceDefinition. It is refused alone: the server
	// makes no records of it.
	ActionDeleteInstances Action = "delete-instances"
)

// Answer is the outcome of the request.
type Answer string

// The possible answers. Refused requests change nothing and are not recorded.
const (
	AnswerDone    Answer = "done"
	AnswerUnknown Answer = "unknown"  // there was no response: the change may or may not have been made
	AnswerNone    Answer = "observed" // no request was sent (Options.ObserveOnly)
)

// RecordedObject is the object that a decision was about, as observed at the time.
type RecordedObject struct {
	Kind      string `json:"kind"` // "ReplicaSet.apps"
	Namespace string `json:"namespace,omitempty"`
	// NamespaceUID is the UID of the object's namespace. It is empty if the UID is not certain: another namespace
	// may have had the name before.
	NamespaceUID    UID    `json:"namespaceUID,omitempty"`
	Name            string `json:"name"`
	UID             UID    `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

// Owner is an owner of a recorded object, with the evidence about it.
type Owner struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       UID    `json:"uid"`
	// Standing is the state of the owner reference: "solid", "waiting", "dangling", … (rules R5,
	// R7).
	Standing string `json:"standing"`
	// Evidence is "observation", "deleted event", "live read", or "none" if nothing was known
	// (rule R3).
	Evidence string `json:"evidence"`
	// Revision is the resourceVersion of the observation or of the event.
	Revision uint64 `json:"revision,omitempty"`
	// Time is when the event or the response to the live read arrived.
	Time time.Time `json:"time,omitzero"`
}
