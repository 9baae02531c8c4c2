package report

// Settlement reports whether collection has come to rest.
type Settlement struct {
	// Settled reports that the controllers have observed everything that was written before the
	// call, and have nothing left to do about it: what the server refuses until somebody acts is at rest.
	Settled bool `json:"settled"`
	// Unfinished lists the unfinished work if Settled is false.
	Unfinished []string `json:"unfinished"`
	// Held are the terminating objects on which these controllers have nothing left to do: they
	// have finalizers of other controllers, or wait for another object.
	Held []HeldObject `json:"held"`
}

// HeldObject is an object that is being deleted and still exists.
type HeldObject struct {
	Kind       string   `json:"kind"` // "ReplicaSet.apps"
	Namespace  string   `json:"namespace,omitempty"`
	Name       string   `json:"name"`
	UID        UID      `json:"uid"`
	Finalizers []string `json:"finalizers,omitempty"`
	// ResourceVersion is the resourceVersion of the last observation.
	ResourceVersion string `json:"resourceVersion"`
}
