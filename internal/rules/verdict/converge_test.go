package verdict_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// cluster is a store of objects, a watch that reports changes late, and a collector that
// applies the decisions of verdict with the preconditions of R12. It reconsiders only the
// UIDs that the graph returns, so it stops too early if the graph forgets an object. The
// barrier (R15) is part of package collector, and is missing here.
type cluster struct {
	*generator
	version int
	store   map[ownership.UID]ownership.Object
	watch   []event // in order; the events of each kind are delivered in order
	graph   *ownership.Graph
	queue   map[ownership.UID]bool
	deletes int // by the collector
}

type event struct {
	deleted bool
	object  ownership.Object
}

// put stores a change; a deleted object without finalizers is gone.
func (c *cluster) put(o ownership.Object, deleting bool) {
	c.version++
	o.ResourceVersion = strconv.Itoa(c.version)
	o.Phase = phaseOf(deleting, o.Finalizers)
	if deleting && len(o.Finalizers) == 0 {
		delete(c.store, o.UID)
		c.watch = append(c.watch, event{true, o})
		return
	}
	c.store[o.UID] = o
	c.watch = append(c.watch, event{false, o})
}

// delete performs a DELETE on the API server: it marks, or removes.
func (c *cluster) delete(o ownership.Object, p verdict.Propagation) {
	ours := map[verdict.Propagation]string{
		verdict.Orphan: ownership.FinalizerOrphan, verdict.Foreground: ownership.FinalizerForeground,
	}[p]
	o.Finalizers = slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool {
		return f == ownership.FinalizerOrphan || f == ownership.FinalizerForeground
	})
	if ours != "" {
		o.Finalizers = append(o.Finalizers, ours)
	}
	c.put(o, true)
}

func (c *cluster) enqueue(uids []ownership.UID) {
	for _, uid := range uids {
		c.queue[uid] = true
	}
}

// deliver hands one event to the graph: the first of a random kind.
func (c *cluster) deliver() {
	kind := c.watch[c.intN(len(c.watch))].object.Kind
	n := slices.IndexFunc(c.watch, func(e event) bool { return e.object.Kind == kind })
	e := c.watch[n]
	c.watch = slices.Delete(c.watch, n, n+1)
	if e.deleted {
		c.enqueue(c.graph.Forget(e.object.UID, e.object.ResourceVersion))
	} else {
		c.enqueue(c.graph.Observe(e.object))
	}
}

// work decides about one object of the queue and applies the decision.
func (c *cluster) work() error {
	keys := make([]ownership.UID, 0, len(c.queue))
	for uid := range c.queue {
		keys = append(keys, uid)
	}
	slices.Sort(keys)
	uid := keys[c.intN(len(keys))]
	delete(c.queue, uid)
	facts, ok := verdict.Gather(c.graph, uid)
	if !ok {
		return nil
	}
	d := verdict.Decide(facts)
	if err := checkWrites(facts, d); err != nil {
		return err
	}
	return c.perform(facts, d)
}

func (c *cluster) perform(f verdict.Facts, d verdict.Decision) error {
	switch d := d.(type) {
	case verdict.Keep, verdict.Await:
		return nil
	case verdict.Park:
		return fmt.Errorf("%s: %s, but all kinds are served", f.Object.UID, d)
	case verdict.Verify:
		for _, claim := range d.Claims {
			c.enqueue(c.resolve(claim))
		}
		return nil
	case verdict.Disown:
		for _, uid := range d.Dependents {
			c.disown(uid, f.Object)
		}
		c.queue[f.Object.UID] = true // again until none is found (R13)
		return nil
	case verdict.Detach, verdict.Unblock, verdict.Delete, verdict.RemoveFinalizer:
	}
	stored, ok := c.store[f.Object.UID]
	if !ok {
		return nil // 404; its event is on the way
	}
	if stored.ResourceVersion != f.Object.ResourceVersion { // conflict: live read, decide again
		c.enqueue(c.graph.Refresh(stored))
		c.queue[stored.UID] = true
		return nil
	}
	switch d := d.(type) {
	case verdict.Detach:
		stored.Owners = d.Remaining
	case verdict.Unblock:
		stored.Owners = d.Owners
	case verdict.RemoveFinalizer:
		stored.Finalizers = d.Remaining
	case verdict.Delete:
		c.deletes++
		if err := c.checkDelete(stored); err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
		c.delete(stored, d.Propagation)
		return nil
	}
	c.put(stored, stored.Phase != ownership.Active)
	return nil
}

// find performs the live read of a claim.
func (c *cluster) find(claim ownership.Claim) (ownership.Object, bool) {
	o, ok := c.store[claim.UID]
	return o, ok && o.Kind == claim.Kind && o.Namespace == claim.Namespace && o.Name == claim.Name
}

func (c *cluster) resolve(claim ownership.Claim) []ownership.UID {
	o, ok := c.find(claim)
	if !ok {
		return c.graph.Resolve(claim, ownership.Absent, 0)
	}
	return c.graph.Resolve(claim, ownership.Present, o.Phase)
}

func (c *cluster) disown(uid ownership.UID, owner ownership.Object) {
	d, ok := c.store[uid]
	if !ok {
		return
	}
	d.Owners = slices.DeleteFunc(slices.Clone(d.Owners), func(r ownership.Reference) bool { return r.UID == owner.UID })
	if len(d.Owners) < len(c.store[uid].Owners) {
		c.put(d, d.Phase != ownership.Active)
	}
}

// checkDelete is S1: when an object is deleted, none of its owners exists, except
// owners in foreground deletion. An owner that was in foreground deletion, and now
// has only foreign finalizers left, counts too.
func (c *cluster) checkDelete(o ownership.Object) error {
	if len(o.Owners) == 0 {
		return fmt.Errorf("%s has no owners", o.UID)
	}
	for _, r := range o.Owners {
		namespace := o.Namespace
		if r.OwnerKind() == randomKinds[2] {
			namespace = ""
		}
		owner, ok := c.find(ownership.Claim{Kind: r.OwnerKind(), Namespace: namespace, Name: r.Name, UID: r.UID})
		if ok && (owner.Phase == ownership.Active || owner.Phase == ownership.Orphaning) {
			return fmt.Errorf("%s has a solid owner %s", o.UID, owner.UID)
		}
	}
	return nil
}

// converge runs watch and collector in random turns until both are idle. Then the user removes the
// foreign finalizers.
func (c *cluster) converge() error {
	for step := 0; len(c.watch)+len(c.queue) > 0; step++ {
		if step == 20000 {
			return fmt.Errorf("no end; queue %v", c.queue)
		}
		var err error
		if len(c.queue) == 0 || len(c.watch) > 0 && c.intN(2) == 0 {
			c.deliver()
		} else {
			err = c.work()
		}
		if err != nil {
			return err
		}
	}
	return c.graph.Check()
}

// TestAllGarbageIsDeletedInTheEnd makes a few deletions in a small cluster. It checks each deletion
// by the collector when it is made (S1), and in the end that all garbage and every
// finalizer of ours are gone (L1, L2).
func TestAllGarbageIsDeletedInTheEnd(t *testing.T) {
	histories, deletes := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{
			generator: newGenerator(t), graph: ownership.New(),
			store: map[ownership.UID]ownership.Object{}, queue: map[ownership.UID]bool{},
		}
		for n, kind := range randomKinds {
			c.graph.SetScope(kind, max(randomScopes[n], ownership.Namespaced)) // all are served
		}
		if err := c.play(); err != nil {
			t.Fatal(err)
		}
		histories++
		deletes += c.deletes
	})
	if deletes < histories/5 {
		t.Errorf("only %d deletions in %d histories: the test tests nothing", deletes, histories)
	}
	t.Logf("%d deletions in %d histories", deletes, histories)
}

func (c *cluster) play() error {
	for _, o := range c.homes {
		for range c.intN(3) {
			// Not in this test: a misplaced reference (R5) always keeps an object, and
			// with it an owner in foreground deletion that it blocks.
			if r := c.reference(); o.Namespace != "" || r.OwnerKind() == randomKinds[2] {
				o.Owners = append(o.Owners, r)
			}
		}
		if c.intN(8) == 0 {
			o.Finalizers = []string{"example.com/mine"}
		}
		c.put(o, false)
	}
	for range 4 {
		uid := c.uid()
		o, ok := c.store[uid]
		if ok && o.Phase == ownership.Active {
			c.delete(o, []verdict.Propagation{verdict.Background, verdict.Foreground, verdict.Orphan}[c.intN(3)])
		}
		for range c.intN(20) {
			if len(c.watch) > 0 {
				c.deliver()
			}
		}
		if c.intN(2) == 0 {
			if err := c.converge(); err != nil {
				return err
			}
		}
	}
	if err := c.converge(); err != nil {
		return err
	}
	for _, uid := range c.uids() {
		if o, ok := c.store[uid]; ok && slices.Contains(o.Finalizers, "example.com/mine") {
			o.Finalizers = slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == "example.com/mine" })
			c.put(o, o.Phase != ownership.Active)
			if err := c.converge(); err != nil {
				return err
			}
		}
	}
	return c.checkEnd()
}

// checkEnd verifies that the graph equals the store (S9), and that no work is left
// (L1, L2).
func (c *cluster) checkEnd() error {
	if c.graph.Len() != len(c.store) {
		return fmt.Errorf("the graph has %d objects, the store %d", c.graph.Len(), len(c.store))
	}
	for uid, o := range c.store {
		facts, _ := verdict.Gather(c.graph, uid)
		d := verdict.Decide(facts)
		if _, ok := d.(verdict.Keep); !ok || o.Phase != ownership.Active {
			return fmt.Errorf("%s is left, %s, with the decision %q; facts: %+v", uid, o.Phase, d, facts)
		}
	}
	return nil
}
