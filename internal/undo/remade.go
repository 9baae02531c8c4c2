package undo

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Nothing proves who made an object: everybody who may create one may write its controller reference, its annotations and
// the name of a field manager. So the reference decides what the report says, and no more. No reference and no volume leads
// to such an object, unless the user has asked for it (Options.Relink).

// makers are Kubernetes' controllers that take every object for their own that has a controller reference to theirs, with
// the kinds of what they make. They mend what they find, or replace it: nothing of what was kept is missing.
//
//nolint:gochecknoglobals // a table
var makers = map[schema.GroupKind][]schema.GroupKind{
	{Group: "apps", Kind: "Deployment"}:  {{Group: "apps", Kind: "ReplicaSet"}},
	{Group: "apps", Kind: "ReplicaSet"}:  {podKind},
	{Group: "apps", Kind: "StatefulSet"}: {podKind, {Group: "apps", Kind: "ControllerRevision"}},
	{Group: "apps", Kind: "DaemonSet"}:   {podKind, {Group: "apps", Kind: "ControllerRevision"}},
	{Kind: "ReplicationController"}:      {podKind},
	{Group: "batch", Kind: "CronJob"}:    {jobKind},
	jobKind:                              {podKind},
	serviceKind:                          {{Group: "discovery.k8s.io", Kind: "EndpointSlice"}},
}

// makerOf returns the kind of the object that is there again, or says so in turn, and that has made an object, as its
// controller reference says.
func (p *Plan) makerOf(e Existing) (schema.GroupKind, bool) {
	for _, owner := range e.Owners {
		if owner.Controller == nil || !*owner.Controller {
			continue
		}
		if kind, isAgain := p.again[owner.UID]; isAgain {
			return kind, true
		}
		if kind, isClaimed := p.claimed[owner.UID]; isClaimed {
			return kind, true
		}
	}
	return schema.GroupKind{}, false
}

// taken says what is made of another object that has the name.
func (p *Plan) taken(s *Step, e Existing) {
	maker, isClaimed := p.makerOf(e)
	if isClaimed {
		p.claimed[e.UID] = s.place.Kind
		s.comesFromMaker = true
	}
	switch {
	case isClaimed && slices.Contains(makers[maker], s.place.Kind), s.IsDefaultAccount() && p.hasMadeNamespaceOf(s):
		s.end(Remade, "")
	case isClaimed:
		s.end(Occupied, "another object has its name, which "+maker.String()+" made, as its owner reference says: see whether it has what this one had")
	default:
		s.end(Occupied, "another object has its name")
	}
}

// IsDefaultAccount reports whether the object is the service account that every namespace has. If it is
// remade, it has to be given what it had.
func (s *Step) IsDefaultAccount() bool {
	return s.place.Kind.Group == "" && s.place.Kind.Kind == "ServiceAccount" && s.place.Name == "default"
}

// hasMadeNamespaceOf reports whether the namespace of an object was made again.
func (p *Plan) hasMadeNamespaceOf(s *Step) bool {
	namespace := p.at[Place{Kind: namespaceKind, Name: s.place.Namespace}]
	return namespace != nil && (namespace.Outcome == Made || namespace.Outcome == MadeBefore)
}
