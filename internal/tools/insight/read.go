package insight

import (
	"maps"
	"slices"

	"github.com/dustin/go-humanize/english"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// View runs a function on the ownership graph while nothing changes it. It is called several
// times for one Graph, each time briefly.
type View func(read func(g *ownership.Graph))

// batch is the number of objects read in one call of a View, which takes a fraction of a
// millisecond.
const batch = 256

// Sees reports whether the user may see the objects of a kind in a namespace. It is not called while the
// ownership graph is locked, so it may send requests.
type Sees func(kind ownership.Kind, namespace string) bool

// Looker reads the parts of an ownership graph that a user may see. It reads neither other objects nor the objects
// behind them, as if they did not exist.
type Looker struct {
	View View
	// Sees is nil for a user who sees everything.
	Sees Sees
	// Prepare is called before Sees for all locations of a graph, so that their rights can be checked at once. It may be
	// nil.
	Prepare func([]ownership.Location)
}

// Whole returns all objects with owner references or dependents, and missing owners. Other objects
// are left out (GB-08).
func Whole(view View) Graph { return Looker{View: view}.Whole() }

// Component returns the connected components of the given objects: their owners and dependents, and the
// owners and dependents of these in turn (GB-09). Unknown UIDs are left out.
func Component(view View, uids ...ownership.UID) Graph { return Looker{View: view}.Component(uids...) }

// Owners returns the given objects, their owners, and the owners of these in turn. Unknown UIDs are
// left out.
func Owners(view View, uids ...ownership.UID) Graph { return Looker{View: view}.Owners(uids...) }

// Dependents returns the given objects, their dependents, and the dependents of these in turn. It also
// returns other owners of the dependents, but does not follow them. Unknown UIDs are left out.
func Dependents(view View, uids ...ownership.UID) Graph {
	return Looker{View: view}.Dependents(uids...)
}

// Whole is the function Whole, limited to the objects that the Looker sees.
func (l Looker) Whole() Graph {
	r := newReader(l)
	r.read(l.related())
	if l.Sees != nil {
		r.hideOwners()
		r.dropUnrelated()
	}
	return r.picture()
}

// related returns the objects that have owners or dependents. It first checks which kinds and namespaces the Looker
// sees, and reads no object elsewhere.
func (l Looker) related() []ownership.UID {
	if l.Sees == nil {
		return ownership.All(l.View, (*ownership.Graph).Related)
	}
	found := make(map[ownership.Location]bool)
	ownership.Survey(l.View, func(g *ownership.Graph, from ownership.Cursor) ownership.Cursor { return g.RelatedAt(from, found) })
	places := slices.Collect(maps.Keys(found))
	if l.Prepare != nil {
		l.Prepare(places)
	}
	places = slices.DeleteFunc(places, func(p ownership.Location) bool { return !l.Sees(p.Kind, p.Namespace) })
	if len(places) == 0 {
		return nil
	}
	return ownership.All(l.View, func(g *ownership.Graph, from ownership.Cursor) ([]ownership.UID, ownership.Cursor) {
		return g.RelatedIn(from, places)
	})
}

// Component is the function Component, limited to the objects that the Looker sees. It also follows the claimants of
// missing owners, including given ones.
func (l Looker) Component(uids ...ownership.UID) Graph {
	r := newReader(l)
	r.up, r.down = true, true
	for _, uid := range uids {
		r.named[uid] = nil // it may be a missing owner
	}
	r.read(slices.Clone(uids))
	for {
		siblings := r.claimants()
		if len(siblings) == 0 {
			return r.picture()
		}
		r.read(siblings)
	}
}

// Owners is the function Owners, limited to the objects that the Looker sees.
func (l Looker) Owners(uids ...ownership.UID) Graph {
	r := newReader(l)
	r.up = true
	r.read(slices.Clone(uids))
	return r.picture()
}

// Dependents is the function Dependents, limited to the objects that the Looker sees.
func (l Looker) Dependents(uids ...ownership.UID) Graph {
	r := newReader(l)
	r.down = true
	r.read(slices.Clone(uids))
	given, owners := make(map[ownership.UID]bool, len(uids)), make(map[ownership.UID]bool)
	for _, uid := range uids {
		given[uid] = true
	}
	r.graph.References = slices.DeleteFunc(r.graph.References, func(ref Reference) bool {
		isAbove := given[ref.Dependent] && !r.seen[ref.Owner]
		owners[ref.Owner] = owners[ref.Owner] || !isAbove
		return isAbove
	})
	maps.DeleteFunc(r.named, func(uid ownership.UID, _ *Object) bool { return !owners[uid] })
	r.readBeside()
	return r.picture()
}

// reader builds a Graph.
type reader struct {
	Looker

	up, down bool // follow owners, dependents

	graph    Graph
	seen     map[ownership.UID]bool    // observed, and in graph
	named    map[ownership.UID]*Object // as an owner, with the coordinates that the first dependent states
	searched map[ownership.UID]bool    // missing, and its claimants are known
	// hidden owners are observed, but the Looker does not see them.
	hidden map[ownership.UID]bool
}

func newReader(l Looker) *reader {
	return &reader{
		Looker: l,

		seen:     make(map[ownership.UID]bool),
		named:    make(map[ownership.UID]*Object),
		searched: make(map[ownership.UID]bool),

		hidden: make(map[ownership.UID]bool),
		graph:  Graph{Objects: []Object{}, References: []Reference{}}, // for JSON: empty, not null
	}
}

// read adds objects, batch by batch, and the objects that they lead to if up or down is set.
func (r *reader) read(uids []ownership.UID) {
	for len(uids) > 0 {
		n := min(batch, len(uids))
		now := r.visible(uids[:n])
		uids = uids[n:]
		r.View(func(g *ownership.Graph) {
			for _, uid := range now {
				uids = append(uids, r.object(g, uid)...)
			}
		})
	}
}

// visible returns the given objects that are observed and that the Looker sees.
func (r *reader) visible(uids []ownership.UID) []ownership.UID {
	if r.Sees == nil {
		return uids
	}
	type place struct {
		kind      ownership.Kind
		namespace string
		observed  bool
	}
	places := make([]place, len(uids))
	r.View(func(g *ownership.Graph) {
		for n, uid := range uids {
			if p := &places[n]; !r.seen[uid] {
				p.kind, p.namespace, p.observed = g.Place(uid)
			}
		}
	})
	var seen []ownership.UID
	for n, uid := range uids {
		switch {
		case !places[n].observed:
		case r.Sees(places[n].kind, places[n].namespace):
			seen = append(seen, uid)
		default:
			// An owner that is claimed at other coordinates is missing there, not hidden.
			at := ownership.Location{Kind: places[n].kind, Namespace: places[n].namespace}
			r.hidden[uid] = r.named[uid] != nil && r.named[uid].location() == at
		}
	}
	return seen
}

// object adds one object, and returns the objects that it leads to.
func (r *reader) object(g *ownership.Graph, uid ownership.UID) []ownership.UID {
	if r.seen[uid] {
		return nil
	}
	facts, observed := verdict.Gather(g, uid)
	if !observed {
		return nil
	}
	r.add(facts)
	var next []ownership.UID
	for _, owner := range facts.Owners {
		r.reference(uid, owner)
		if r.up {
			next = append(next, owner.Reference.UID)
		}
	}
	if !r.down {
		return next
	}
	for dependent := range g.Dependents(uid) {
		if !r.seen[dependent] {
			next = append(next, dependent)
		}
	}
	return next
}

// add adds one object without its references.
func (r *reader) add(facts verdict.Facts) {
	o := facts.Object
	r.seen[o.UID] = true
	note := ""
	if o.MoreOwners > 0 {
		note = "it has " + english.Plural(o.MoreOwners, "more owner reference", "") + ", which the collector does not keep in memory"
	}
	r.graph.Objects = append(r.graph.Objects, Object{
		UID: o.UID, Group: o.Kind.Group, Kind: o.Kind.Kind, Namespace: o.Namespace, Name: o.Name,
		Phase: o.Phase.String(), Finalizers: o.Finalizers, Decision: verdict.Decide(facts).String(), Note: note,
	})
}

// hideOwners marks the observed owners that the Looker does not see.
func (r *reader) hideOwners() {
	var unread []ownership.UID
	for uid := range r.named {
		if !r.seen[uid] {
			unread = append(unread, uid)
		}
	}
	for n := 0; n < len(unread); n += batch {
		r.visible(unread[n:min(n+batch, len(unread))])
	}
}

// dropUnrelated removes objects that have neither owner references nor dependents that the Looker sees.
func (r *reader) dropUnrelated() {
	isRelated := make(map[ownership.UID]bool, len(r.graph.Objects))
	for _, ref := range r.graph.References {
		isRelated[ref.Dependent], isRelated[ref.Owner] = true, true
	}
	r.graph.Objects = slices.DeleteFunc(r.graph.Objects, func(o Object) bool { return !isRelated[o.UID] })
}

// readBeside adds the owners that were not followed, without their references.
func (r *reader) readBeside() {
	beside := r.visible(slices.Sorted(maps.Keys(r.named)))
	r.View(func(g *ownership.Graph) {
		for _, uid := range beside {
			if facts, observed := verdict.Gather(g, uid); observed && !r.seen[uid] {
				r.add(facts)
			}
		}
	})
}

// reference adds an owner reference. If the owner turns out to be missing, it is shown with the
// coordinates that the first dependent states.
func (r *reader) reference(dependent ownership.UID, owner verdict.Owner) {
	ref := owner.Reference
	r.graph.References = append(r.graph.References, Reference{
		Dependent: dependent, Owner: ref.UID, Standing: owner.Standing.String(), Evidence: owner.Evidence.Source.String(),
		Blocking: ref.Blocking(), Controller: ref.Controller == ownership.True,
		claim: ownership.Location{Kind: owner.Claim.Kind, Namespace: owner.Claim.Namespace},
	})
	if r.named[ref.UID] == nil {
		c := owner.Claim
		r.named[ref.UID] = &Object{UID: ref.UID, Group: c.Kind.Group, Kind: c.Kind.Kind, Namespace: c.Namespace, Name: c.Name, Missing: true}
	}
}

// claimants returns objects that are not in the graph yet and name the same missing owners as
// objects in it.
func (r *reader) claimants() []ownership.UID {
	var found []ownership.UID
	for uid := range r.named {
		if r.seen[uid] || r.searched[uid] || r.hidden[uid] {
			continue
		}
		r.searched[uid] = true
		r.View(func(g *ownership.Graph) {
			for claimant := range g.ClaimingElsewhere(uid) { // a present owner is seen or hidden
				if !r.seen[claimant] {
					found = append(found, claimant)
				}
			}
		})
	}
	slices.Sort(found) // an object may name several of the owners
	return slices.Compact(found)
}

func (r *reader) picture() Graph {
	if r.Sees != nil { // another claim on a missing owner may reveal an object that the Looker does not see
		r.graph.References = slices.DeleteFunc(r.graph.References, func(ref Reference) bool {
			o := r.named[ref.Owner]
			return r.hidden[ref.Owner] || !r.seen[ref.Owner] && o != nil && o.location() != ref.claim
		})
	}
	for uid, o := range r.named {
		if o != nil && !r.seen[uid] && !r.hidden[uid] {
			r.graph.Objects = append(r.graph.Objects, *o)
		}
	}
	r.graph.bound()
	r.graph.sort()
	return r.graph
}
