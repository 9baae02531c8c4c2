package undo

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Nothing proves which controller created an object: the creator writes its controller reference, its annotations and
// the name of the field manager. So the reference decides only the text of the report. Such an object becomes no
// owner and gets no volume, unless the user requests it (Options.Relink).

// makers has the kinds whose Kubernetes controllers adopt every object with a controller reference to them, and the
// kinds that they create. These controllers correct or replace such objects, so the report does not count them as
// missing.
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

// makerOf returns the kind of the controller that an object's controller reference names, if that controller exists
// again, or is claimed.
func (p *Plan) makerOf(e Existing) (schema.GroupKind, bool) {
	for _, owner := range e.Owners {
		if owner.Controller == nil || !*owner.Controller {
			continue
		}
		if kind, isAgain := p.remade[owner.UID]; isAgain {
			return kind, true
		}
		if kind, isClaimed := p.claimed[owner.UID]; isClaimed {
			return kind, true
		}
	}
	return schema.GroupKind{}, false
}

// taken sets the outcome of a step whose name another object has.
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
		s.end(Occupied, "another object has its name, and names a "+maker.String()+" as its controller: check whether it has the deleted content")
	default:
		s.end(Occupied, "another object has its name")
	}
}

// IsDefaultAccount reports whether the object is the service account that every namespace has. An undo gives the new
// one the content of the deleted one.
func (s *Step) IsDefaultAccount() bool {
	return s.place.Kind.Group == "" && s.place.Kind.Kind == "ServiceAccount" && s.place.Name == "default"
}

// hasMadeNamespaceOf reports whether the namespace of an object was recreated.
func (p *Plan) hasMadeNamespaceOf(s *Step) bool {
	namespace := p.at[Place{Kind: namespaceKind, Name: s.place.Namespace}]
	return namespace != nil && (namespace.Outcome == Made || namespace.Outcome == MadeBefore)
}
