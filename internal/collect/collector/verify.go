package collector

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// readsPerTry bounds the reads for one object before other objects have their turn: an object may
// name thousands of owners. The answers requeue the object.
const readsPerTry = 16

// verify reads unknown claims: many claims on owners of one kind and namespace with a list, the
// others one after the other. The answer to a claim concerns all dependents that make it: while
// one worker reads the claim, no other does (R7).
func (c *Collector) verify(ctx context.Context, uid ownership.UID, claims []ownership.Claim) error {
	for _, at := range placesOf(claims) {
		if !c.isListCheaper(at) {
			continue
		}
		err := c.readByList(ctx, uid, at)
		if err == nil || hasNoPlace(err) {
			// The answers, or a place, bring the object back, for the claims that are left.
			return err
		}
		// Not every kind that can be read can be listed.
	}
	var failures []error
	for _, claim := range claims[:min(len(claims), readsPerTry)] {
		failures = append(failures, c.readOnce(ctx, claim, uid))
	}
	return errors.Join(failures...)
}

// readOnce reads a claim, unless that is under way: then its answer brings the object back.
func (c *Collector) readOnce(ctx context.Context, claim ownership.Claim, uid ownership.UID) error {
	if !c.reads.begin(claim, uid) {
		return nil
	}
	err := c.readUnknown(ctx, claim)
	waiting := c.reads.end(claim)
	if err != nil {
		for _, other := range waiting {
			c.queue.Retry(other)
		}
	}
	return err
}

// place is a kind and a namespace, with the claims on owners there.
type place struct {
	kind      ownership.Kind
	namespace string
	claims    []ownership.Claim
}

// placesOf groups claims by place, in the order in which the object makes them.
func placesOf(claims []ownership.Claim) []place {
	var places []place
	index := make(map[client.Ref]int)
	for _, claim := range claims {
		where := client.Ref{Kind: claim.Kind, Namespace: claim.Namespace}
		i, ok := index[where]
		if !ok {
			i = len(places)
			index[where] = i
			places = append(places, place{kind: claim.Kind, namespace: claim.Namespace})
		}
		places[i].claims = append(places[i].claims, claim)
	}
	return places
}

// claimsPerPage is the number of owners that cost as much to read one by one as a full page of a
// list.
const claimsPerPage = 8

// isListCheaper reports whether it is cheaper to read the owners at a place with a list: there
// are many, and not many times more objects of their kind.
func (c *Collector) isListCheaper(at place) bool {
	fullPages := c.state.Count(at.kind) / client.PageSize
	return len(at.claims) >= max(c.config.Batch, claimsPerPage*fullPages)
}

// readByList reads the claims on owners at one place with a list.
func (c *Collector) readByList(ctx context.Context, uid ownership.UID, at place) error {
	var reading []ownership.Claim
	for _, claim := range at.claims {
		if c.reads.begin(claim, uid) {
			reading = append(reading, claim)
		}
	}
	if len(reading) == 0 {
		return nil
	}
	epoch := c.state.Epoch()
	found, err := c.listOwners(ctx, at)
	for _, claim := range reading {
		if err == nil {
			presence, phase := ownership.Absent, ownership.Active
			if owner, ok := found[claim.UID]; ok && owner.Name == claim.Name {
				presence, phase = ownership.Present, owner.Phase
			}
			if c.state.resolve(epoch, claim, presence, phase) {
				c.queue.Retry(claim.UID)
			}
		}
		waiting := c.reads.end(claim)
		if err != nil {
			for _, other := range waiting {
				c.queue.Retry(other)
			}
		}
	}
	return err
}

// listOwners returns the claimed owners at a place.
func (c *Collector) listOwners(ctx context.Context, at place) (map[ownership.UID]ownership.Object, error) {
	claimed := make(map[ownership.UID]bool, len(at.claims))
	for _, claim := range at.claims {
		claimed[claim.UID] = true
	}
	found := make(map[ownership.UID]ownership.Object)
	for after := ""; ; {
		page, err := c.api.List(ctx, at.kind, at.namespace, client.PageSize, after)
		if err != nil {
			return nil, fmt.Errorf("read owners: list %s: %w", at.kind, err)
		}
		for _, o := range page.Objects {
			if claimed[o.UID] {
				found[o.UID] = o
			}
		}
		if page.Continue == "" {
			return found, nil
		}
		after = page.Continue
	}
}

// readUnknown reads a claim, unless the answer has come since the decision. An answer
// requeues all dependents that make the claim, this one included.
func (c *Collector) readUnknown(ctx context.Context, claim ownership.Claim) error {
	if c.state.presence(claim) != ownership.Unknown {
		return nil
	}
	needsRead, err := c.read(ctx, claim)
	if needsRead {
		c.queue.Retry(claim.UID)
	}
	return err
}

// read reads the owner that a claim names (R3). It reports whether the claim has to be read
// again, because the owner is not observed.
func (c *Collector) read(ctx context.Context, claim ownership.Claim) (needsRead bool, err error) {
	epoch := c.state.Epoch()
	owner, isThere, err := c.readOwner(ctx, claim)
	switch {
	case err != nil:
		return false, err
	case isThere:
		return c.state.resolve(epoch, claim, ownership.Present, owner.Phase), nil
	default:
		return c.state.resolve(epoch, claim, ownership.Absent, ownership.Active), nil
	}
}

// readOwner reads the owner that a claim names, and reports whether it is there with the UID.
func (c *Collector) readOwner(ctx context.Context, claim ownership.Claim) (owner ownership.Object, isThere bool, err error) {
	ref := client.RefOfClaim(claim)
	owner, err = c.api.Get(ctx, ref)
	if err != nil && !apierrors.IsNotFound(err) {
		return owner, false, fmt.Errorf("read owner %s: %w", ref, err)
	}
	return owner, err == nil && owner.UID == claim.UID, nil
}

// recheck handles a key without an object in the graph. It may be a presumed owner: its claims
// are read again, less and less often, until the feed shows it. Otherwise an owner whose kind
// cannot be watched, or that is deleted before its kind is listed, would stay present forever.
func (c *Collector) recheck(ctx context.Context, owner ownership.UID) error {
	var failures []error
	for _, claim := range c.state.presumptions(owner) {
		needsRead, err := c.read(ctx, claim)
		if needsRead {
			err = errUnobserved
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// isOlder reports whether an object is certainly older than another observation of it.
func isOlder(o, other ownership.Object) bool {
	a, ok := client.Revision(o.ResourceVersion)
	b, comparable := client.Revision(other.ResourceVersion)
	return ok && comparable && a < b
}

// reread reads an object live. It reports whether it is still the observed object.
func (c *Collector) reread(ctx context.Context, self ownership.Object) (same bool, err error) {
	_, same, err = c.readAgain(ctx, self)
	return same, err
}

// readAgain reads an object live, as reread does, and returns it as it is now.
func (c *Collector) readAgain(ctx context.Context, self ownership.Object) (now ownership.Object, same bool, err error) {
	epoch, stale := c.state.Epoch(), c.state.isStale(self.UID)
	now, err = c.api.Get(ctx, client.RefOf(self))
	switch {
	case apierrors.IsNotFound(err), err == nil && now.UID != self.UID:
		c.state.vanish(self.UID)
		return now, false, nil
	case err != nil:
		return now, false, fmt.Errorf("read %s: %w", client.RefOf(self), err)
	default:
		if !stale && c.state.Epoch() == epoch && isOlder(now, self) {
			// The newest state of the server is older than an observed one (R4).
			c.log.WarnContext(ctx, "the server went back in time", "object", client.RefOf(self).String(), "from", self.ResourceVersion, "to", now.ResourceVersion)
			c.Sink().NewEpoch()
			epoch = c.state.Epoch()
		}
		c.state.refresh(epoch, now)
		return now, true, nil
	}
}

// rereadAll reads the objects that are still stale (R4) live. Each answer requeues the objects
// that it concerns, among them an object that waits for more than readsPerTry.
func (c *Collector) rereadAll(ctx context.Context, uids []ownership.UID) error {
	var failures []error
	for _, uid := range uids[:min(len(uids), readsPerTry)] {
		object, known := c.state.object(uid)
		if !known || !c.state.isStale(uid) {
			continue
		}
		_, err := c.reread(ctx, object)
		if err == nil && c.state.isStale(uid) {
			err = fmt.Errorf("read %s: another epoch began before the answer came", client.RefOf(object))
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// reads are the live reads of claims that are under way.
type reads struct {
	mu      sync.Mutex
	waiting map[ownership.Claim][]ownership.UID // guarded by mu; the other dependents that asked since the read began
}

// begin reports whether the caller has to read a claim, and then to end the read. If not,
// the claim is being read already, and uid waits for that read.
func (r *reads) begin(claim ownership.Claim, uid ownership.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting, reading := r.waiting[claim]
	if reading {
		r.waiting[claim] = append(waiting, uid)
		return false
	}
	if r.waiting == nil {
		r.waiting = make(map[ownership.Claim][]ownership.UID)
	}
	r.waiting[claim] = nil
	return true
}

// end ends a read and returns the dependents that wait for it.
func (r *reads) end(claim ownership.Claim) []ownership.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.waiting[claim]
	delete(r.waiting, claim)
	return waiting
}
