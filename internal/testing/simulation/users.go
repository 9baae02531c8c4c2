package simulation

import (
	"fmt"
	"slices"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// The generation of users' steps.

func (g *generator) create(w *cluster) Step {
	short := pick(g, g.resources)
	ref := client.Ref{Kind: kindOf(short), Namespace: pick(g, g.spaces), Name: fmt.Sprintf("n%d", g.random.IntN(g.names))}
	if short == node || short == zone {
		ref.Namespace = ""
	}
	if w.server.lookup(ref) != nil {
		return g.delete(w)
	}
	g.serial++
	s := Step{Op: Create, Ref: ref, UID: uidOf(g.serial)}
	if short != gadget { // gadgets are not watched, so they are never collected
		for range g.random.IntN(g.owners) {
			if r, ok := g.ownerFor(w, ref); ok && !hasOwner(s.Owners, r.UID) {
				s.Owners = append(s.Owners, r)
			}
		}
	}
	switch {
	case g.chance(g.finalizers):
		s.Finalizers = []string{"example.com/f"}
	case g.chance(4):
		s.Finalizers = []string{pick(g, []string{ownership.FinalizerOrphan, ownership.FinalizerForeground})}
	}
	return s
}

// family creates an owner with some dependents, and perhaps deletes the owner at once.
func (g *generator) family(w *cluster) Step {
	owner := g.create(w)
	if owner.Op != Create || len(g.following) > 0 {
		return owner
	}
	for range 1 + g.random.IntN(3) {
		dependent := g.create(w)
		if dependent.Op != Create || dependent.Ref == owner.Ref {
			continue
		}
		blocking := pick(g, []ownership.Flag{ownership.Unset, ownership.True})
		dependent.Owners = append(dependent.Owners, reference(owner.Ref.Kind, owner.Ref.Name, owner.UID, blocking))
		if shortOf(dependent.Ref.Kind) != gadget {
			g.following = append(g.following, dependent)
		}
	}
	if g.chance(60) {
		policy := pick(g, []verdict.Propagation{verdict.Orphan, verdict.Foreground, verdict.Background})
		g.following = append(g.following, Step{Op: Delete, Ref: owner.Ref, Policy: policy})
	}
	return owner
}

func hasOwner(owners []ownership.Reference, uid ownership.UID) bool {
	return slices.ContainsFunc(owners, func(r ownership.Reference) bool { return r.UID == uid })
}

// ownerFor returns a reference to an object that exists, existed, or never will.
func (g *generator) ownerFor(w *cluster, dependent client.Ref) (ownership.Reference, bool) {
	blocking := pick(g, []ownership.Flag{ownership.Unset, ownership.False, ownership.True, ownership.True})
	lives := w.server.lives
	if len(lives) == 0 || g.chance(g.bogus/8) {
		return reference(kindOf(pick(g, []string{pod, set, node, zone, widget, ghost})), "n0", uidOf(900+g.random.IntN(2)), blocking), g.chance(g.bogus)
	}
	l := lives[max(0, len(lives)-1-g.random.IntN(8))]
	owner := l.versions[len(l.versions)-1]
	kind, name := owner.Kind, owner.Name
	isBogus := g.chance(g.bogus)
	if isBogus {
		switch g.random.IntN(3) {
		case 0:
			kind = kindOf(pick(g, []string{pod, set, node, zone, widget, ghost}))
		case 1:
			name = fmt.Sprintf("n%d", g.random.IntN(g.names))
		}
	}
	fits := owner.Namespace == "" || owner.Namespace == dependent.Namespace
	return reference(kind, name, owner.UID, blocking), fits && (!owner.gone || g.chance(20)) || isBogus
}

// some picks an existing object: the object of a request in flight, or any object, younger ones
// with a higher probability.
func (g *generator) some(w *cluster) *version {
	if len(w.in.workers) > 0 && g.chance(g.meddling) {
		if v := w.server.lookup(pick(g, w.in.workers).call.ref); v != nil {
			return v
		}
	}
	all := w.server.standing()
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1-min(g.random.IntN(len(all)), g.random.IntN(len(all)))]
}

func (g *generator) delete(w *cluster) Step {
	o := g.some(w)
	if o == nil || o.deleting && !g.chance(30) {
		return Step{Op: CatchUp}
	}
	policy := pick(g, []verdict.Propagation{verdict.Background, verdict.Foreground, verdict.Orphan, verdict.Foreground, verdict.Orphan, ""})
	return Step{Op: Delete, Ref: client.RefOf(o.Object), Policy: policy}
}

// recreate deletes an object and creates another one with its name.
func (g *generator) recreate(w *cluster) Step {
	o := g.some(w)
	if o == nil {
		return Step{Op: CatchUp}
	}
	ref := client.RefOf(o.Object)
	g.serial++
	again := Step{Op: Create, Ref: ref, UID: uidOf(g.serial)}
	if len(o.Owners) > 0 && g.chance(60) {
		again.Owners = slices.Clone(o.Owners)
	}
	if g.chance(30) {
		if r, ok := g.ownerFor(w, ref); ok && !hasOwner(again.Owners, r.UID) && shortOf(ref.Kind) != gadget {
			again.Owners = append(again.Owners, r)
		}
	}
	if o.Phase == ownership.Active {
		g.following = append(g.following, Step{Op: Delete, Ref: ref, Policy: verdict.Background})
	}
	if len(o.Finalizers) > 0 {
		g.following = append(g.following, Step{Op: Unfinalize, Ref: ref, Finalizers: o.Finalizers})
	}
	g.following = append(g.following, again)
	next := g.following[0]
	g.following = g.following[1:]
	return next
}

func (g *generator) own(w *cluster) Step {
	o := g.some(w)
	if o == nil || shortOf(o.Kind) == gadget {
		return Step{Op: CatchUp}
	}
	ref := client.RefOf(o.Object)
	if len(o.Owners) > 0 && g.chance(30) { // the flag of an existing one
		r := pick(g, o.Owners)
		r.BlockOwnerDeletion = ownership.Flag(g.random.IntN(3))
		return Step{Op: Own, Ref: ref, Owners: []ownership.Reference{r}}
	}
	r, ok := g.ownerFor(w, ref)
	if !ok {
		return Step{Op: CatchUp}
	}
	return Step{Op: Own, Ref: ref, Owners: []ownership.Reference{r}}
}

func (g *generator) disown(w *cluster) Step {
	o := g.some(w)
	if o == nil || len(o.Owners) == 0 {
		return Step{Op: CatchUp}
	}
	return Step{Op: Disown, Ref: client.RefOf(o.Object), Owners: []ownership.Reference{pick(g, o.Owners)}}
}

func (g *generator) finalize(w *cluster) Step {
	o := g.some(w)
	if o == nil {
		return Step{Op: CatchUp}
	}
	return Step{Op: Finalize, Ref: client.RefOf(o.Object), Finalizers: []string{pick(g, []string{"example.com/f", "example.com/g"})}}
}

func (g *generator) unfinalize(w *cluster) Step {
	o := g.some(w)
	if o == nil || len(o.Finalizers) == 0 {
		return Step{Op: CatchUp}
	}
	f := pick(g, o.Finalizers)
	if isOurs(f) && !g.chance(15) {
		return Step{Op: CatchUp}
	}
	return Step{Op: Unfinalize, Ref: client.RefOf(o.Object), Finalizers: []string{f}}
}
