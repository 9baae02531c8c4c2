package undo

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Outcome is what becomes of a kept object.
type Outcome string

// The outcomes.
const (
	// Made objects are made again; in a plan, they are to be.
	Made Outcome = "Made"
	// MadeBefore were made again by an earlier undo, which may have been interrupted.
	MadeBefore Outcome = "MadeBefore"
	// Remade: another object has the name, and its owner reference names a controller of Kubernetes that makes such objects.
	Remade Outcome = "Remade"
	// Exists are there still, and were never gone.
	Exists Outcome = "Exists"
	// Terminating are there still, and are being deleted: that is never taken back (R19).
	Terminating Outcome = "Terminating"
	// Occupied are those whose name another object has.
	Occupied Outcome = "Occupied"
	// LeftOut are not made on purpose.
	LeftOut Outcome = "LeftOut"
	// Failed could not be made.
	Failed Outcome = "Failed"
)

// IsMissing reports whether an object should be there in the end, and is not.
func (o Outcome) IsMissing() bool { return o == Failed || o == Terminating || o == Occupied }

// Step is what is done about one kept object.
type Step struct {
	Outcome Outcome
	// Why says why it is not made; Notes what of it does not come back.
	Why   string
	Notes []string
	// UID is that of the object that is there now; empty if none is.
	UID types.UID
	// Wave is when it is made: after all those with a lower one.
	Wave int

	kept  *Kept
	place Place
	// comesFromMaker is true if the object that has the name says that something there again made it.
	comesFromMaker bool
	// postponed are the owners, by their old UIDs, that come later than the object.
	postponed map[types.UID]bool
	// has are the references of the object that is there.
	has []metav1.OwnerReference
}

// Kept returns the object that the step is about, which must not be changed.
func (s *Step) Kept() *Kept { return s.kept }

// Place returns where the object was, and is again.
func (s *Step) Place() Place { return s.place }

func (s *Step) end(o Outcome, why string) { s.Outcome, s.Why = o, why }

func (s *Step) note(text string) {
	if !slices.Contains(s.Notes, text) {
		s.Notes = append(s.Notes, text)
	}
}

// Plan is an undo, first as planned, and then as far as it has come. It is not safe for concurrent use.
type Plan struct {
	// Steps are sorted by wave, kind and name.
	Steps []*Step

	options Options
	steps   map[types.UID]*Step
	at      map[Place]*Step
	// now has the UIDs of objects that are there again, by their former UIDs. Only these become owners.
	now map[types.UID]types.UID
	// again has the kinds of objects that are there again, by their present UIDs; claimed has those of objects whose
	// controller reference leads to one of these, or to another claimed object (remade.go).
	again, claimed map[types.UID]schema.GroupKind
	// lost says of owners that are not among what is kept why they are not there.
	lost map[types.UID]string
}

// New plans to make objects again in a cluster.
func New(kept []Kept, cluster Cluster, options Options) *Plan {
	p := &Plan{
		options: options, steps: make(map[types.UID]*Step, len(kept)), at: make(map[Place]*Step, len(kept)),
		now: map[types.UID]types.UID{}, lost: map[types.UID]string{},
		again: map[types.UID]schema.GroupKind{}, claimed: map[types.UID]schema.GroupKind{},
	}
	for n := range kept {
		s := &Step{Outcome: Made, kept: &kept[n], place: kept[n].Place()}
		p.Steps = append(p.Steps, s)
		p.steps[kept[n].UID()] = s
		p.at[s.place] = s
	}
	slices.SortFunc(p.Steps, func(a, b *Step) int { return a.place.compare(b.place) })
	p.meetOwners(cluster)
	p.meet(cluster, servicesWithSelector(kept))
	p.leaveOut()
	p.checkPlaces(cluster)
	p.order()
	for _, s := range p.Steps {
		if s.Outcome == Made {
			p.warn(s, cluster.Existing)
		}
	}
	slices.SortStableFunc(p.Steps, func(a, b *Step) int { return cmp.Compare(a.Wave, b.Wave) })
	return p
}

// meet finds out which of the objects are there, or need not be.
func (p *Plan) meet(cluster Cluster, services map[Place]bool) {
	var others []*Step
	for _, s := range p.Steps {
		e, there := cluster.Existing[s.place]
		isSame := there && (e.UID == s.kept.UID() || e.UndoneFrom == s.kept.UID())
		why := remadeByItself(s.kept, services)
		switch {
		case isSame:
			p.Met(s, e)
		case why != "":
			s.end(LeftOut, why)
		case there:
			others = append(others, s)
		case s.kept.Stays:
			s.end(LeftOut, "it was not deleted then, and is gone now")
		}
	}
	// An object's controller reference says something once its controller is known.
	for before := len(others) + 1; len(others) < before; {
		before = len(others)
		others = slices.DeleteFunc(others, func(s *Step) bool {
			_, isClaimed := p.makerOf(cluster.Existing[s.place])
			if isClaimed {
				p.Met(s, cluster.Existing[s.place])
			}
			return isClaimed
		})
	}
	for _, s := range others {
		p.Met(s, cluster.Existing[s.place])
	}
}

// meetOwners finds out which owners are there that are not among what is kept.
func (p *Plan) meetOwners(cluster Cluster) {
	for _, s := range p.Steps {
		for _, owner := range s.kept.Object.GetOwnerReferences() {
			if p.steps[owner.UID] != nil || p.now[owner.UID] != "" || p.lost[owner.UID] != "" {
				continue
			}
			place, _ := placeOf(owner, s.place.Namespace, cluster.Kinds)
			e, there := cluster.Existing[place]
			switch {
			case !there:
				p.lost[owner.UID] = "is gone"
			case e.Terminating:
				p.lost[owner.UID] = "is being deleted"
			case e.UID == owner.UID || e.UndoneFrom == owner.UID || p.options.Relink:
				p.is(owner.UID, e.UID, place.Kind)
			default:
				p.lost[owner.UID] = "is another object now, which only --relink makes its owner"
			}
		}
	}
}

// checkPlaces fails objects without their namespace or definition, and volumes without their claim.
func (p *Plan) checkPlaces(cluster Cluster) {
	for _, why := range []func(*Step) string{func(s *Step) string { return p.noPlace(s, cluster) }, p.claimMissing} {
		for _, s := range p.Steps {
			if s.Outcome != Made {
				continue
			}
			if why := why(s); why != "" {
				s.end(Failed, why)
			}
		}
	}
}

func (p *Plan) noPlace(s *Step, cluster Cluster) string {
	if _, served := cluster.Kinds[s.place.Kind]; !served && p.at[definitionOf(s)] == nil {
		return fmt.Sprintf("the server does not serve %s", s.place.Kind)
	}
	if s.place.Namespace == "" {
		return ""
	}
	namespace := Place{Kind: namespaceKind, Name: s.place.Namespace}
	e, there := cluster.Existing[namespace]
	switch {
	case there && e.Terminating:
		return "its namespace is still being deleted: undo this once it is gone"
	case !there && p.at[namespace] == nil:
		return "its namespace is gone, and is not undone with it: create it first"
	case there && p.isTaken(namespace):
		return "another namespace has the name of its own, which only --relink takes for it"
	}
	return ""
}

// isTaken reports whether another namespace has the name of one that was deleted, and does not stand for it.
func (p *Plan) isTaken(namespace Place) bool {
	s := p.at[namespace]
	return s != nil && s.Outcome == Occupied && s.UID == ""
}

// definitionOf returns where the CustomResourceDefinition of an object is, if it has one.
func definitionOf(s *Step) Place {
	return Place{Kind: definitionKind, Name: s.kept.Resource.GroupResource().String()}
}

// is notes that the object that had a UID is there again under another one.
func (p *Plan) is(old, now types.UID, kind schema.GroupKind) {
	p.now[old] = now
	p.again[now] = kind
}

// Made tells that an object has been created.
func (p *Plan) Made(s *Step, uid types.UID, owners []metav1.OwnerReference) {
	s.UID, s.has = uid, owners
	p.is(s.kept.UID(), uid, s.place.Kind)
}

// Failed tells that an object could not be created.
func (p *Plan) Failed(s *Step, why string) { s.end(Failed, why) }

// Met tells what is at the place of an object that was to be created.
func (p *Plan) Met(s *Step, e Existing) {
	old := s.kept.UID()
	switch {
	case e.UID == old && !e.Terminating:
		s.end(Exists, "")
	case e.UID == old:
		s.end(Terminating, "it is still being deleted: undo this once it is gone")
		return
	case s.kept.Stays:
		s.end(LeftOut, "another object has its name")
		return
	case e.Terminating:
		s.end(Occupied, "another object has its name, and is being deleted: undo this once it is gone")
		return
	case e.UndoneFrom == old:
		s.end(MadeBefore, "")
	default:
		p.taken(s, e)
		if !p.options.Relink {
			return
		}
	}
	s.UID, s.has = e.UID, e.Owners
	p.is(old, e.UID, s.place.Kind)
}

// Interrupted tells that the run has ended before everything was tried.
func (p *Plan) Interrupted() {
	for _, s := range p.Steps {
		if s.Outcome == Made && s.UID == "" {
			s.end(Failed, "its turn had not come")
		}
	}
}
