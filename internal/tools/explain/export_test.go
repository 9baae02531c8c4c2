package explain

import "github.com/coppice-dev/coppice/internal/tools/inventory"

// AllSteps returns the number of waits that All looks at.
func (e *Explainer) AllSteps() int {
	g := e.waitsOf(e.oldestFirst())
	for n := range g.causes {
		g.waitingFor(n)
	}
	return g.steps
}

// OneByOne explains every object that is being deleted on its own, and groups them by the reasons of their leaves. It
// is what All must find, by a simpler method that takes longer: the explanation of each object follows all its waits.
func (e *Explainer) OneByOne() map[string]Group {
	reached := map[*inventory.Object]map[*inventory.Object]bool{}
	leaves := map[*inventory.Object][]*Wait{}
	objects := e.oldestFirst()
	for _, o := range objects {
		x, _ := e.whole(o.UID)
		leaves[o], reached[o] = x.Leaves(), map[*inventory.Object]bool{}
		for uid := range e.explained {
			reached[o][e.Inventory.Object(uid)] = true
		}
	}
	groups := map[string]Group{}
	for _, o := range objects {
		seen := map[string]bool{}
		for _, leaf := range leaves[o] {
			if leaf.State == Kept {
				continue
			}
			if leaf.On == OnCycle { // it names the object at which this explanation has met the cycle
				at := e.Inventory.Object(leaf.Object.UID)
				for _, other := range objects {
					if reached[at][other] && reached[other][at] {
						ref := refOf(other) // the oldest
						leaf.Object = &ref
						break
					}
				}
			}
			key := reasonOf(leaf)
			g, known := groups[key]
			if !known || compareTimes(leaf.Since, g.Leaf.Since) < 0 {
				g.Leaf.Since = leaf.Since
			}
			if !seen[key] {
				g.add(refOf(o))
			}
			seen[key], groups[key] = true, g
		}
	}
	return groups
}

// ByReason returns groups by the reasons of their leaves.
func ByReason(groups []Group) map[string]Group {
	by := map[string]Group{}
	for _, g := range groups {
		by[reasonOf(&g.Leaf)] = Group{Leaf: Wait{Since: g.Leaf.Since}, Objects: g.Objects, More: g.More}
	}
	return by
}
