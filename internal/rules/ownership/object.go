package ownership

// UID is the identity of an object (R1). Objects with the same name and different UIDs are
// different objects.
type UID string

// Kind is a group and a kind, without a version: every served version of a group and kind leads
// to the same objects (R1).
type Kind struct {
	Group string
	Kind  string
}

// String returns the kind as Kubernetes users write it: "ReplicaSet.apps", "Pod".
func (k Kind) String() string {
	if k.Group == "" {
		return k.Kind
	}
	return k.Kind + "." + k.Group
}

// Scope says whether the objects of a kind live in namespaces.
type Scope uint8

const (
	// ScopeUnknown is the scope of a kind that is not served, as far as the graph knows.
	ScopeUnknown Scope = iota
	// Namespaced objects live in a namespace.
	Namespaced
	// Cluster objects do not live in a namespace.
	Cluster
)

func (s Scope) String() string {
	switch s {
	case Namespaced:
		return "namespaced"
	case Cluster:
		return "cluster"
	default:
		return "unknown"
	}
}

// Phase is the stage of an object's deletion. It is derived from deletionTimestamp and finalizers
// in one place (PhaseOf), and never stored as a set of flags.
type Phase uint8

const (
	// Active objects are not being deleted.
	Active Phase = iota
	// Orphaning objects are being deleted and carry the finalizer "orphan".
	Orphaning
	// Foreground objects are being deleted and carry "foregroundDeletion".
	Foreground
	// Terminating objects are being deleted, with no finalizer of the collector.
	Terminating
)

func (p Phase) String() string {
	switch p {
	case Orphaning:
		return "orphaning"
	case Foreground:
		return "foreground"
	case Terminating:
		return "terminating"
	default:
		return "active"
	}
}

// The finalizers that the collector owns (R16). It never touches any other.
const (
	FinalizerOrphan     = "orphan"
	FinalizerForeground = "foregroundDeletion"
)

// PhaseOf returns the phase. Where both finalizers are present, orphan wins (TR-04).
//
//nolint:revive // not a control flag: the first half of the question
func PhaseOf(deleting bool, finalizers []string) Phase {
	if !deleting {
		return Active
	}
	phase := Terminating
	for _, f := range finalizers {
		switch f {
		case FinalizerOrphan:
			return Orphaning
		case FinalizerForeground:
			phase = Foreground
		}
	}
	return phase
}

// Flag is an optional boolean of an owner reference. Unset and False mean the
// same to the collector, but a reference is written back as it was read.
type Flag uint8

const (
	// Unset flags are not written at all.
	Unset Flag = iota
	// False flags are written as false.
	False
	// True flags are written as true.
	True
)

// Reference is an owner reference as a dependent states it.
type Reference struct {
	APIVersion         string
	Kind               string
	Name               string
	UID                UID
	Controller         Flag
	BlockOwnerDeletion Flag
}

// OwnerKind returns the group and kind that the reference names.
func (r Reference) OwnerKind() Kind {
	for i := range len(r.APIVersion) {
		if r.APIVersion[i] == '/' {
			return Kind{Group: r.APIVersion[:i], Kind: r.Kind}
		}
	}
	return Kind{Kind: r.Kind}
}

// Blocking reports whether the reference holds a foreground deletion of its owner.
func (r Reference) Blocking() bool { return r.BlockOwnerDeletion == True }

// Object is one observation: the metadata of an object at one resourceVersion.
type Object struct {
	UID             UID
	Kind            Kind
	Namespace       string // empty for a cluster-scoped object
	Name            string
	ResourceVersion string
	Phase           Phase
	Finalizers      []string    // as stored, foreign ones included
	Owners          []Reference // as stored, in order
	// MoreOwners is the number of references that the graph does not keep, so that Owners lacks them (cut.go). It is
	// zero in observations.
	MoreOwners int
	// Due is the deletionTimestamp, in seconds since 1970: when the object should be gone. It is zero if
	// the object is not being deleted. No decision depends on it.
	Due int64
	// Protected means that the object's label protects it from deletion (R28). No decision depends on
	// it: the server decides whether the object may be deleted.
	Protected bool
}

// Claim is the identity of an owner as a dependent states it: coordinates and UID. Namespace is
// empty for a cluster-scoped kind, else the dependent's own (R5).
type Claim struct {
	Kind      Kind
	Namespace string
	Name      string
	UID       UID
}

// String returns the claim as "ReplicaSet.apps default/web (uid)".
func (c Claim) String() string {
	name := c.Name
	if c.Namespace != "" {
		name = c.Namespace + "/" + c.Name
	}
	return c.Kind.String() + " " + name + " (" + string(c.UID) + ")"
}

// Presence is the state of knowledge about a claim (R2).
type Presence uint8

const (
	// Unknown claims must be verified by a live read before any decision.
	Unknown Presence = iota
	// Present claims name an object that was observed, or read live, at those coordinates.
	Present
	// Absent claims have evidence (R3): a DELETED watch event of that UID, or a
	// live read that answered 404 or another UID at those coordinates.
	Absent
)

func (p Presence) String() string {
	switch p {
	case Present:
		return "present"
	case Absent:
		return "absent"
	default:
		return "unknown"
	}
}

// Obstacle is the reason why an Unknown claim cannot be verified by a live read.
type Obstacle uint8

const (
	// Verifiable claims have coordinates that a live read can ask for.
	Verifiable Obstacle = iota
	// Unmapped claims name a kind that no API serves now (R7).
	Unmapped
	// OutOfScope claims name a namespaced owner of a cluster-scoped dependent: there is no
	// namespace in which the owner could be looked up (R5).
	OutOfScope
)

// Source is the origin of a presence.
type Source uint8

const (
	// NoSource is the source of a claim that is Unknown.
	NoSource Source = iota
	// Observation of the owner at the claim's coordinates.
	Observation
	// DeletedEvent is the DELETED watch event of the UID.
	DeletedEvent
	// LiveRead of the claim's coordinates.
	LiveRead
)

func (s Source) String() string {
	switch s {
	case Observation:
		return "observation"
	case DeletedEvent:
		return "deleted event"
	case LiveRead:
		return "live read"
	default:
		return "none"
	}
}

// Evidence is the basis of the presence of a claim (R2, R3).
type Evidence struct {
	Source Source
	// Revision is the resourceVersion of the observation or of the event if it is a number, else
	// zero.
	Revision uint64
	// Time is when the event or the answer came, as set by SetTime; zero for an observation.
	Time int64
}

// Owner is an owner reference of an object with the presence of its claim.
type Owner struct {
	Reference Reference
	Claim     Claim
	Presence  Presence
	Phase     Phase    // of the owner; counts only when Present
	Obstacle  Obstacle // counts only when Unknown
	Evidence  Evidence // the basis of Presence
	// Elsewhere is the namespace in which the owner was observed, if the dependent may not have
	// an owner there (R5). Otherwise it is empty.
	Elsewhere string
	// InCycle is true if the owner is in foreground deletion and in the same cycle of blocking
	// references as the dependent (R10).
	InCycle bool
	// Stale is true if the owner was observed in an earlier epoch, and not since (R4).
	Stale bool
}
