package preview

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// collect is one turn of the collector: it processes each queued object once. Objects that this adds to the queue
// wait for the next turn.
func (p *play) collect() {
	turn := p.schedule.take(p.queue)
	for _, uid := range turn {
		delete(p.queue, uid)
	}
	for _, uid := range turn {
		if o := p.objects[uid]; o != nil && !o.removed {
			p.apply(o)
		}
	}
}

// collectBetween lets the collector work between the DELETEs of another controller, if the schedule says so: until
// its queue is empty, or for one turn if the collector takes only some of its keys.
func (p *play) collectBetween() {
	if !p.schedule.between {
		return
	}
	p.collect()
	for p.schedule.seed == 0 && len(p.queue) > 0 {
		p.collect()
	}
}

// apply gets the decision about one object, and carries it out.
func (p *play) apply(o *object) {
	p.steps += 1 + len(o.now.Owners)
	decision, ok := p.decide(o)
	if !ok {
		return
	}
	switch d := decision.(type) {
	case verdict.Keep, verdict.Park, verdict.Await, verdict.Reread:
		// Nothing to do. Nothing is reread: there is one epoch.
	case verdict.Verify:
		if p.verify(d.Claims) {
			p.apply(o) // a collector would have known these owners
		}
	case verdict.Detach:
		p.update(o, ByCollector, func(now *ownership.Object) { now.Owners = d.Remaining })
	case verdict.Unblock:
		p.update(o, ByCollector, func(now *ownership.Object) { now.Owners = d.Owners })
	case verdict.Delete:
		// Objects that admission refuses to delete stay. Protected ones are queued again when an object that they outlive
		// is gone.
		if !p.unblock(o) || p.delete(o, metav1.DeletionPropagation(d.Propagation), ByCollector) != nil {
			p.repeat(o)
		}
	case verdict.Disown:
		for _, uid := range d.Dependents {
			if p.disown(p.objects[uid], o.UID) {
				p.queue[o.UID] = true // again, until there are none (R13)
			}
		}
	case verdict.RemoveFinalizer:
		if o.holds = p.heldAt(o, d.Finalizer); len(o.holds) == 0 {
			p.update(o, ByCollector, func(now *ownership.Object) { now.Finalizers = d.Remaining })
		}
	}
}

// unblock makes the UPDATE by which upstream's collector avoids a cycle before the DELETE of an object between two
// foreground deletions, of an owner and of a dependent: no reference of the object blocks any more. It reports false if
// the server refuses the UPDATE, which means that there is no DELETE. Our collector breaks the cycles that there are.
func (p *play) unblock(o *object) bool {
	isForeground := func(uid ownership.UID) bool {
		other := p.objects[uid]
		return other != nil && !other.removed && other.now.Phase == ownership.Foreground
	}
	isWaiting := func(r ownership.Reference) bool { return isForeground(r.UID) }
	if !p.options.Order.IsUpstream() || !slices.ContainsFunc(o.now.Owners, isWaiting) ||
		!slices.ContainsFunc(slices.Collect(p.graph.Dependents(o.UID)), isForeground) {
		return true
	}
	return p.update(o, ByCollector, func(now *ownership.Object) {
		now.Owners = slices.Clone(now.Owners)
		for i := range now.Owners {
			if now.Owners[i].Blocking() {
				now.Owners[i].BlockOwnerDeletion = ownership.False
			}
		}
	})
}

// repeat notes that upstream's collector repeats a DELETE for ever, because the server refuses it: the UPDATE before it
// depends on dependents that are deleted in the meantime.
func (p *play) repeat(o *object) {
	if p.options.Order.IsUpstream() && !slices.Contains(p.repeated, o.UID) {
		p.repeated = append(p.repeated, o.UID)
	}
}

// decide returns the collector's decision. If it depends on the object's dependents, decide loads them first.
func (p *play) decide(o *object) (verdict.Decision, bool) {
	if o.now.Phase == ownership.Foreground || o.now.Phase == ownership.Orphaning {
		p.loadDependents(o)
	}
	facts, ok := verdict.Gather(p.graph, o.UID)
	if !ok {
		return nil, false
	}
	decision := verdict.Decide(facts)
	if _, deletes := decision.(verdict.Delete); deletes && !o.dependentsLoaded {
		p.loadDependents(o)
		return p.decide(o)
	}
	return decision, true
}

// disown removes the references of a dependent to an owner, and reports whether it has.
func (p *play) disown(dependent *object, owner ownership.UID) bool {
	return dependent != nil && !dependent.removed && p.update(dependent, ByCollector, func(now *ownership.Object) {
		now.Owners = slices.DeleteFunc(slices.Clone(now.Owners), func(r ownership.Reference) bool { return r.UID == owner })
	})
}

// verify answers claims from the inventory, as live reads would. Claims that the inventory cannot answer stay
// unknown. It reports whether it has loaded an owner.
func (p *play) verify(claims []ownership.Claim) (loaded bool) {
	for _, c := range claims {
		r := p.inventory.Resource(c.Kind)
		if r == nil {
			continue
		}
		if o := p.inventory.Named(r, c.Namespace, c.Name); o != nil && o.UID == c.UID {
			loaded = loaded || p.objects[o.UID] == nil
			p.load(o)
			continue
		}
		if p.inventory.Complete(r, c.Namespace) {
			p.enqueue(p.graph.Resolve(c, ownership.Absent, ownership.Active))
		}
	}
	return loaded
}
