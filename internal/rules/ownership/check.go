package ownership

import (
	"errors"
	"fmt"
	"slices"
)

// Check verifies the invariants of the graph (S9): it is symmetric, it holds nothing superfluous,
// and all counts and cycles are correct. It walks the whole graph and is meant for tests.
func (g *Graph) Check() error {
	return errors.Join(
		g.checkEntries(),
		g.checkReferences(),
		g.checkClaims(),
		g.checkAnswers(),
		g.checkAsides(),
		g.checkUses(),
		g.checkNames(),
		g.checkCycles(),
		g.checkIdle(),
		g.checkStale(),
		g.checkCuts(),
	)
}

func (g *Graph) checkEntries() error {
	var problems []error
	objects := 0
	for i, e := range g.entries.all() {
		if e.state == vacant {
			if *e != (entry{}) {
				problems = append(problems, fmt.Errorf("vacant entry %d is not empty", i))
			}
			continue
		}
		if g.find(g.uidOf(i)) != i {
			problems = append(problems, fmt.Errorf("%s: not found by its UID", g.uidOf(i)))
		}
		if e.state == observed {
			objects++
			continue
		}
		if e.claims == 0 || e.references != 0 || e.finalizers != 0 || e.phase != Active || e.name != 0 {
			problems = append(problems, fmt.Errorf("%s: placeholder without claimants, or with content", g.uidOf(i)))
		}
		if e.state == presumed && (e.kind != 0 || e.namespace != 0 || e.version != (revision{}) || g.oddVersions[i] != "") {
			problems = append(problems, fmt.Errorf("%s: presumed, but with coordinates", g.uidOf(i)))
		}
	}
	if objects != g.objects {
		problems = append(problems, fmt.Errorf("%d objects are counted, %d are there", g.objects, objects))
	}
	if n := g.byUUID.used + len(g.byOddUID); n != g.entries.len() || len(g.byOddUID) != len(g.oddUIDs) {
		problems = append(problems, fmt.Errorf("%d UIDs are indexed, there are %d entries", n, g.entries.len()))
	}
	return errors.Join(problems...)
}

// checkStale verifies the number of observed entries with the mark stale.
func (g *Graph) checkStale() error {
	found := 0
	for _, e := range g.entries.all() {
		if e.marks&stale == 0 {
			continue
		}
		if found++; e.state != observed {
			return errors.New("an entry that is not observed is stale")
		}
	}
	if found != g.stale {
		return fmt.Errorf("%d stale objects are counted, %d are there", g.stale, found)
	}
	return nil
}

// checkAsides verifies the rare data of entries, which is kept outside their records.
func (g *Graph) checkAsides() error {
	var problems []error
	for i := range g.times {
		if g.entries.at(i).state != absent {
			problems = append(problems, fmt.Errorf("time kept of entry %d, which is not absent", i))
		}
	}
	for i := range g.due {
		if e := g.entries.at(i); e.state != observed || e.phase == Active {
			problems = append(problems, fmt.Errorf("%s: due, but not being deleted", g.uidOf(i)))
		}
	}
	for i := range g.oddVersions {
		if g.entries.at(i).state == vacant || g.entries.at(i).version != (revision{}) {
			problems = append(problems, fmt.Errorf("version kept of entry %d, which has none such", i))
		}
	}
	return errors.Join(problems...)
}

// checkReferences verifies dependent → owner: each reference of an observed object is among the
// claimants of a claim on its owner. checkClaims reaches the same number of references from the
// other side, which proves symmetry.
func (g *Graph) checkReferences() error {
	var problems []error
	references := 0
	for i, e := range g.entries.all() {
		for r := range g.referencesOf(i) {
			references++
			c := g.claims.at(r.claim)
			switch {
			case r.dependent != i:
				problems = append(problems, fmt.Errorf("%s: holds a reference of entry %d", g.uidOf(i), r.dependent))
			case e.state != observed:
				problems = append(problems, fmt.Errorf("%s: not observed, but with references", g.uidOf(i)))
			case c.namespace != e.namespace:
				problems = append(problems, fmt.Errorf("%s: claims from another namespace", g.uidOf(i)))
			case g.references.at(g.references.at(r.next).prev) != r:
				problems = append(problems, fmt.Errorf("%s: not among the claimants of %s", g.uidOf(i), g.claimText(c)))
			}
		}
	}
	if references != g.references.len() {
		problems = append(problems, fmt.Errorf("%d references are kept, %d are reached", g.references.len(), references))
	}
	return errors.Join(problems...)
}

// checkClaims verifies owner → dependent, and that every claim can be looked up.
func (g *Graph) checkClaims() error {
	var problems []error
	claims, references, later := 0, 0, 0
	for i := range g.entries.all() {
		for id, c := range g.claimsOn(i) {
			claims++
			if c.prev != 0 {
				later++
			}
			if c.owner != i || g.findClaim(g.keyOf(c)) != id || c.first == 0 {
				problems = append(problems, fmt.Errorf("%s: claim is empty or not found", g.claimText(c)))
			}
			n, err := g.checkClaimants(id)
			references += n
			problems = append(problems, err)
		}
	}
	if claims != g.claims.len() || references != g.references.len() || later != len(g.laterClaims) {
		problems = append(problems, fmt.Errorf("%d claims, %d references, %d indexed claims are kept; %d, %d, %d are reached",
			g.claims.len(), g.references.len(), len(g.laterClaims), claims, references, later))
	}
	return errors.Join(problems...)
}

// checkClaimants verifies the ring of references that state a claim, and counts them.
func (g *Graph) checkClaimants(id claimID) (references int, err error) {
	c := g.claims.at(id)
	before := True
	for r := range g.claimants(c) {
		references++
		if r.claim != id {
			return references, fmt.Errorf("%s: has a claimant of another claim", g.claimText(c))
		}
		if r.form.blocking() == True && before != True {
			return references, fmt.Errorf("%s: blocking claimants do not come first", g.claimText(c))
		}
		before = r.form.blocking()
	}
	return references, nil
}

// checkAnswers verifies that the stored answers of live reads are bounded: each belongs to a
// claim, and none is kept for an entry with a DELETED event, which is stronger evidence.
func (g *Graph) checkAnswers() error {
	var problems []error
	for key, a := range g.answers {
		claimed := false
		for _, c := range g.claimsOn(key.owner) {
			claimed = claimed || g.answerKey(c) == key
		}
		e := g.entries.at(key.owner)
		if !claimed || a.presence == Unknown || e.state == absent || e.state == vacant {
			problems = append(problems, fmt.Errorf("stale answer for %s", key.name))
		}
	}
	return errors.Join(problems...)
}

// checkUses recounts the uses of interned values.
func (g *Graph) checkUses() error {
	kinds, namespaces := make([]uint32, len(g.kinds.rows)), make([]uint32, len(g.namespaces.rows))
	versions, finalizers := make([]uint32, len(g.versions.rows)), make([]uint32, len(g.finalizers.rows))
	facts := make([]kindFacts, len(g.facts))
	for _, e := range g.entries.all() {
		kinds[e.kind]++
		namespaces[e.namespace]++
		finalizers[e.finalizers]++
		if e.state == observed {
			facts[e.kind].objects++
		}
		if e.list != 0 && e.list == g.facts[e.kind].list {
			facts[e.kind].listed++ // of an entry that is not observed, too: it must not have a number
		}
	}
	for _, c := range g.claims.all() {
		kinds[c.kind]++
		namespaces[c.namespace]++
		if c.first != 0 {
			facts[c.kind].claims++
		}
	}
	for _, r := range g.references.all() {
		versions[r.form.version()]++
	}
	for id := range g.facts {
		facts[id].scope, facts[id].list = g.facts[id].scope, g.facts[id].list
		if facts[id].scope != ScopeUnknown {
			kinds[id]++
		}
	}
	var problems []error
	if !slices.Equal(facts, g.facts) {
		problems = append(problems, errors.New("facts of kinds are wrong"))
	}
	return errors.Join(append(problems,
		checkTable("kinds", &g.kinds, kinds), checkTable("namespaces", &g.namespaces, namespaces),
		checkTable("versions", &g.versions, versions), checkTable("finalizers", &g.finalizers, finalizers))...)
}

func checkTable[I ~uint32, K comparable](name string, t *table[I, K], uses []uint32) error {
	used := 0
	for id := 1; id < len(t.rows); id++ {
		r := t.rows[id]
		if r.uses != uses[id] {
			return fmt.Errorf("%s: %v has %d uses, %d are counted", name, r.key, uses[id], r.uses)
		}
		if r.uses > 0 {
			used++
		}
	}
	if used != len(t.ids) || used+len(t.free)+1 != len(t.rows) {
		return fmt.Errorf("%s: %d values are used, %d indexed, %d free", name, used, len(t.ids), len(t.free))
	}
	return nil
}

// checkNames recounts the uses of names.
func (g *Graph) checkNames() error {
	uses := make(map[nameID]int)
	for _, e := range g.entries.all() {
		uses[e.name]++
	}
	for _, c := range g.claims.all() {
		uses[c.name]++
	}
	kept := len(g.names.long)
	for class := 1; class < classes; class++ {
		kept += g.names.records[class].len()
		for index := range g.names.records[class].used {
			if base := g.names.baseOf(nameID(class)<<indexBits | (index + 1)); base != 0 {
				uses[base]++
			}
		}
	}
	delete(uses, 0)
	for id, n := range uses {
		if counted := g.names.uses(id); counted != n {
			return fmt.Errorf("name %q has %d uses, %d are counted", g.names.text(id), n, counted)
		}
	}
	if kept != len(uses) || len(g.names.long) != g.names.records[0].len() {
		return fmt.Errorf("%d names are kept, %d are used", kept, len(uses))
	}
	return g.checkBases()
}

// checkBases verifies that derived names have bases that are not derived.
func (g *Graph) checkBases() error {
	for _, e := range g.entries.all() {
		if base := g.names.baseOf(e.name); base != 0 && g.names.baseOf(base) != 0 {
			return fmt.Errorf("name %q is derived from a derived one", g.names.text(e.name))
		}
	}
	return nil
}

// checkCycles recomputes all cycles.
func (g *Graph) checkCycles() error {
	var foreground []entryID
	for i := range g.entries.all() {
		if g.isForeground(i) {
			foreground = append(foreground, i)
		}
	}
	inCycles := 0
	for _, members := range g.components(foreground) {
		inCycles += len(members)
		known := g.cycles[members[0]]
		if known == nil || !slices.Equal(known.members, members) {
			return fmt.Errorf("cycle through %s is not known as it is", g.uidOf(members[0]))
		}
		for _, member := range members {
			if g.cycles[member] != known {
				return fmt.Errorf("%s: part of a cycle, but not known as such", g.uidOf(member))
			}
		}
	}
	if inCycles != len(g.cycles) {
		return fmt.Errorf("%d objects are part of cycles, %d are known as such", inCycles, len(g.cycles))
	}
	return nil
}

// checkCuts verifies that exactly the objects that lack references are cut, and that their filters have the owners that
// are kept.
func (g *Graph) checkCuts() error {
	var problems []error
	finishing := 0
	for _, e := range g.entries.all() {
		if e.state == observed && (e.phase == Foreground || e.phase == Orphaning) {
			finishing++
		}
	}
	if finishing != len(g.finishing) {
		problems = append(problems, fmt.Errorf("%d deletions are to be completed, %d are known", finishing, len(g.finishing)))
	}
	for namespace, cuts := range g.cuts {
		for i, c := range cuts {
			e := g.entries.at(i)
			if e.state != observed || e.namespace != namespace || c.more <= 0 {
				problems = append(problems, fmt.Errorf("%s: cut, but not observed or whole", g.uidOf(i)))
			}
			for r := range g.referencesOf(i) {
				if !c.owners.mayHave(g.hash(g.uidOf(g.claims.at(r.claim).owner))) {
					problems = append(problems, fmt.Errorf("%s: lacks an owner in its filter", g.uidOf(i)))
				}
			}
		}
	}
	return errors.Join(problems...)
}

// checkIdle verifies that the last call left nothing behind but what Rest finds.
func (g *Graph) checkIdle() error {
	if len(g.certain) > 0 || len(g.candidates) > 0 {
		return errors.New("objects to reconsider were not returned")
	}
	for _, r := range g.rest {
		if r.next != 0 && (r.claim == 0 || g.references.at(r.next).claim != r.claim) {
			return errors.New("the rest of a claim continues at another one")
		}
	}
	return nil
}
