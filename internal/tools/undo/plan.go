package undo

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Outcome is the result of an undo for a kept object.
type Outcome string

// The outcomes.
const (
	// Made objects are recreated, or will be in a plan.
	Made Outcome = "Made"
	// MadeBefore objects were recreated by an earlier undo, which may have been interrupted.
	MadeBefore Outcome = "MadeBefore"
	// Remade: another object has the name, and its controller reference names a controller of Kubernetes that creates
	// such objects.
	Remade Outcome = "Remade"
	// Exists: the object was never removed.
	Exists Outcome = "Exists"
	// Terminating: the object exists, and is being deleted, which cannot be undone (R19).
	Terminating Outcome = "Terminating"
	// Occupied: another object has the name.
	Occupied Outcome = "Occupied"
	// LeftOut objects are not recreated on purpose.
	LeftOut Outcome = "LeftOut"
	// Failed objects could not be created.
	Failed Outcome = "Failed"
)

// IsMissing reports whether an object should exist in the end, and does not.
func (o Outcome) IsMissing() bool { return o == Failed || o == Terminating || o == Occupied }

// Step is the part of a plan about one kept object.
type Step struct {
	Outcome Outcome
	// Why is the reason why the object is not recreated; Notes describe the parts that it loses.
	Why   string
	Notes []string
	// UID is the UID of the present object; empty if no object has the name.
	UID types.UID
	// Wave is the wave in which the object is created: after all objects of lower waves.
	Wave int

	kept  *Kept
	place Place
	// unread is the reason why it is unknown whether an object has the name.
	unread string
	// comesFromMaker is true if the present object of that name has a controller reference to an object that exists
	// again, or to a claimed one.
	comesFromMaker bool
	// postponed are the owners, by their old UIDs, that are created after the object.
	postponed map[types.UID]bool
	// has are the owner references of the present object.
	has []metav1.OwnerReference
}

// Kept returns the kept object of the step, which callers must not change.
func (s *Step) Kept() *Kept { return s.kept }

// Place returns the place of the object, before and after.
func (s *Step) Place() Place { return s.place }

func (s *Step) end(o Outcome, why string) { s.Outcome, s.Why = o, why }

func (s *Step) note(text string) {
	if !slices.Contains(s.Notes, text) {
		s.Notes = append(s.Notes, text)
	}
}

// Plan is an undo: first the plan, and then its progress. It is not safe for concurrent use.
type Plan struct {
	// Steps are sorted by wave, kind and name.
	Steps []*Step

	options Options
	steps   map[types.UID]*Step
	at      map[Place]*Step
	// present maps the former UIDs of objects that exist again to their present UIDs. Only these become owners.
	present map[types.UID]types.UID
	// remade has the kinds of objects that exist again, by their present UIDs; claimed has those of objects whose
	// controller reference names one of these, or another claimed object (remade.go).
	remade, claimed map[types.UID]schema.GroupKind
	// missingOwners maps an owner that is not among the kept objects to the reason why it is missing.
	missingOwners map[types.UID]string
	// unreadClaims maps a claim of a kept volume, which is not among the kept objects, to the reason why it is unknown
	// whether it exists.
	unreadClaims map[types.UID]string
	// relinked maps the claims, by their present UIDs, that only --relink has accepted for former ones to the volumes to which
	// they are bound; empty for none.
	relinked map[types.UID]string
}

// New plans to recreate objects in a cluster.
func New(kept []Kept, cluster Cluster, options Options) *Plan {
	p := &Plan{
		options: options, steps: make(map[types.UID]*Step, len(kept)), at: make(map[Place]*Step, len(kept)),
		present: map[types.UID]types.UID{}, missingOwners: map[types.UID]string{}, unreadClaims: map[types.UID]string{},
		remade: map[types.UID]schema.GroupKind{}, claimed: map[types.UID]schema.GroupKind{},
		relinked: map[types.UID]string{},
	}
	for n := range kept {
		s := &Step{Outcome: Made, kept: &kept[n], place: kept[n].Place()}
		p.Steps = append(p.Steps, s)
		p.steps[kept[n].UID()] = s
		p.at[s.place] = s
	}
	slices.SortFunc(p.Steps, func(a, b *Step) int { return a.place.compare(b.place) })
	p.findOwners(cluster)
	p.findClaims(cluster)
	p.findExisting(cluster, servicesWithSelector(kept))
	p.leaveOut()
	p.checkPlaces(cluster)
	p.order()
	for _, s := range p.Steps {
		if s.Outcome == Made {
			p.warn(s, cluster)
		}
	}
	slices.SortStableFunc(p.Steps, func(a, b *Step) int { return cmp.Compare(a.Wave, b.Wave) })
	return p
}

// findExisting finds the objects that exist already, or need not be created.
func (p *Plan) findExisting(cluster Cluster, services map[Place]bool) {
	var occupied []*Step
	for _, s := range p.Steps {
		e, there := cluster.Existing[s.place]
		isSame := there && (e.UID == s.kept.UID() || e.UndoneFrom == s.kept.UID())
		why := remadeByItself(s.kept, services)
		switch {
		case isSame:
			p.Found(s, e)
		case why != "":
			s.end(LeftOut, why)
		case there:
			occupied = append(occupied, s)
		case s.kept.Stays && cluster.unread(s.place) != "":
			s.unread = cluster.unread(s.place)
			s.end(LeftOut, "it was not deleted then, and could not be read: "+s.unread)
		case s.kept.Stays:
			s.end(LeftOut, "it was not deleted then, and is gone now")
		default:
			s.unread = cluster.unread(s.place)
		}
	}
	// The controller reference of an object can be judged only after its controller.
	for before := len(occupied) + 1; len(occupied) < before; {
		before = len(occupied)
		occupied = slices.DeleteFunc(occupied, func(s *Step) bool {
			_, isClaimed := p.makerOf(cluster.Existing[s.place])
			if isClaimed {
				p.Found(s, cluster.Existing[s.place])
			}
			return isClaimed
		})
	}
	for _, s := range occupied {
		p.Found(s, cluster.Existing[s.place])
	}
}

// findOwners looks for the owners that are not among the kept objects.
func (p *Plan) findOwners(cluster Cluster) {
	for _, s := range p.Steps {
		for _, owner := range s.kept.Object.GetOwnerReferences() {
			if p.steps[owner.UID] != nil || p.present[owner.UID] != "" || p.missingOwners[owner.UID] != "" {
				continue
			}
			place, _ := placeOf(owner, s.place.Namespace, cluster.Kinds)
			e, there := cluster.Existing[place]
			why := cluster.unread(place)
			switch {
			case why != "": // if it is gone, the collector would delete an object with a reference to it
				p.missingOwners[owner.UID] = "could not be read (" + why + "); the same undo adds the reference once the owner can be read"
			case !there:
				p.missingOwners[owner.UID] = "is gone"
			case e.Terminating:
				p.missingOwners[owner.UID] = "is being deleted"
			case e.UID == owner.UID || e.UndoneFrom == owner.UID || p.options.Relink:
				p.is(owner.UID, e.UID, place.Kind)
			default:
				p.missingOwners[owner.UID] = "is another object now, which only --relink makes its owner"
			}
		}
	}
}

// checkPlaces marks objects without their namespace or definition, and volumes without their claim, as failed.
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
	if _, served := cluster.Kinds[s.place.Kind]; !served && p.at[s.kept.definition()] == nil {
		if why := cluster.unreadGroup(s.place.Kind); why != "" {
			return why
		}
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
	case !there && cluster.unread(namespace) != "": // the creation decides
	case !there && p.at[namespace] == nil:
		return "its namespace is gone, and is not undone with it: create it first"
	case there && p.isTaken(namespace):
		return "another namespace has the name of its own, which only --relink takes for it"
	}
	return ""
}

// isTaken reports whether another namespace has the name of a deleted one, and does not replace it.
func (p *Plan) isTaken(namespace Place) bool {
	s := p.at[namespace]
	return s != nil && s.Outcome == Occupied && s.UID == ""
}

// is records the present UID and kind of an object that exists again.
func (p *Plan) is(old, now types.UID, kind schema.GroupKind) {
	p.present[old] = now
	p.remade[now] = kind
}

// Made records that an object has been created.
func (p *Plan) Made(s *Step, uid types.UID, owners []metav1.OwnerReference) {
	s.UID, s.has = uid, owners
	p.is(s.kept.UID(), uid, s.place.Kind)
}

// Failed records that an object could not be created.
func (p *Plan) Failed(s *Step, why string) { s.end(Failed, why) }

// Found records the object that already has the place of an object to create.
func (p *Plan) Found(s *Step, e Existing) {
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
		p.relinked[e.UID] = e.VolumeName
	}
	s.UID, s.has = e.UID, e.Owners
	p.is(old, e.UID, s.place.Kind)
}

// Doubted records that this undo may have created the object that has the place of another one: the server has given an answer
// that leaves that open.
func (p *Plan) Doubted(s *Step, answer string) {
	if s.Outcome == Occupied {
		s.end(Occupied, s.Why+"; this undo may have created that object, as the server has answered "+answer+": check it, and accept it with --relink")
	}
}

// Interrupted records that the run has ended early: the remaining objects have failed.
func (p *Plan) Interrupted() {
	for _, s := range p.Steps {
		if s.Outcome == Made && s.UID == "" {
			s.end(Failed, "the undo ended before its turn")
		}
	}
}
