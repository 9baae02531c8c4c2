package collector_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
	"github.com/coppice-dev/coppice/internal/testing/histories"
)

// TestRandomHistories runs the collector against users with random actions, watches that lag,
// lists that lose events, and requests that fail or lose their answer. No object with a solid
// owner is deleted (S1), no finalizer of the collector is removed while a dependent exists from
// the beginning of the deletion (S2, S3), and at the end all garbage is removed (L1, L2) (GB-05).
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &randomRun{fixture: newFixture(t), t: t, faulty: true, fore: make(map[ownership.UID]bool), due: make(map[ownership.UID]map[ownership.UID]bool)}
		h.Manual()
		h.Before(h.checkDelete)
		h.Before(h.checkFinalizerRemoved)
		h.Before(h.meddle)
		t.Repeat(map[string]func(*rapid.T){"step": func(*rapid.T) { h.step() }})
		h.comeToRest()
		h.checkRest()
	})
}

// TestMain makes random histories longer and more numerous than rapid does by default.
// -rapid.checks and -rapid.steps on the command line override it.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "300", "rapid.steps": "150"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// randomRun is one history.
type randomRun struct {
	*fixture
	t      *rapid.T
	refs   []client.Ref           // of all objects that ever existed
	made   []ownership.Object     // all objects that ever existed
	serial int                    // of UIDs
	faulty bool                   // whether requests may fail
	fore   map[ownership.UID]bool // objects that were deleted in the foreground at some time

	// due holds the dependents that each owner had when its deletion began, with
	// references that existed ever since.
	due map[ownership.UID]map[ownership.UID]bool
}

var places = []struct {
	kind      ownership.Kind
	namespace string
}{{setKind, space}, {podKind, space}, {nodeKind, ""}, {setKind, "other"}}

func (h *randomRun) step() {
	switch n := histories.IntN(h.t, 100); {
	case n < 20:
		h.create()
	case n < 30:
		h.remove()
	case n < 42:
		h.modify()
	case n < 46:
		h.Hold(histories.From(h.t, podKind, setKind, nodeKind))
	case n < 52:
		h.Unhold(histories.From(h.t, podKind, setKind, nodeKind))
	case n < 54:
		h.Relist(histories.From(h.t, podKind, setKind, nodeKind))
	case n < 58:
		h.fail()
	case n < 80:
		h.Step()
	case n < 97:
		h.work()
	default:
		h.keys.backoffOver()
	}
}

// meddle changes objects between the lists of a round.
func (h *randomRun) meddle(r apimodel.Request) {
	if r.Verb != "list" || !h.faulty {
		return
	}
	switch n := histories.IntN(h.t, 100); {
	case n < 10:
		h.create()
	case n < 20:
		h.remove()
	case n < 30:
		h.modify()
	case n < 50:
		h.Step()
	}
}

// work reconsiders one key.
func (h *randomRun) work() {
	if uid, ok := h.keys.Take(); ok {
		if o := h.collect(uid); o.Next != collector.Settled {
			h.keys.Retry(uid)
		}
	}
}

func (h *randomRun) create() {
	place := histories.From(h.t, places...)
	h.serial++
	o := ownership.Object{
		Kind: place.kind, Namespace: place.namespace,
		Name: fmt.Sprint("n", histories.IntN(h.t, 5)), UID: ownership.UID(fmt.Sprint("u", h.serial)),
	}
	if _, ok := h.Lookup(client.RefOf(o)); ok {
		return
	}
	for range histories.IntN(h.t, 4) {
		if r, ok := h.ownerFor(o); ok {
			o.Owners = append(o.Owners, r)
		}
	}
	if histories.IntN(h.t, 5) == 0 {
		o.Finalizers = []string{"example.com/own"}
	}
	h.made = append(h.made, o)
	h.refs = append(h.refs, client.RefOf(o))
	h.Create(o)
}

// ownerFor returns a reference to an object that exists or existed, in a place that the
// object may refer to, or in another namespace under the same name.
func (h *randomRun) ownerFor(o ownership.Object) (ownership.Reference, bool) {
	if len(h.made) == 0 {
		return ownership.Reference{}, false
	}
	owner := h.made[max(0, len(h.made)-1-histories.IntN(h.t, 12))]
	if o.Namespace == "" && owner.Namespace != "" ||
		slices.ContainsFunc(o.Owners, func(r ownership.Reference) bool { return r.UID == owner.UID }) {
		return ownership.Reference{}, false
	}
	r := ownedBy(owner)
	r.BlockOwnerDeletion = ownership.Flag(histories.IntN(h.t, 3))
	return r, true
}

func (h *randomRun) some() (client.Ref, ownership.Object, bool) {
	if len(h.refs) == 0 {
		return client.Ref{}, ownership.Object{}, false
	}
	ref := histories.From(h.t, h.refs...)
	o, ok := h.Lookup(ref)
	return ref, o, ok
}

func (h *randomRun) remove() {
	if ref, o, ok := h.some(); ok && o.Phase == ownership.Active {
		policy := histories.From(h.t, background, foreground, orphan)
		h.fore[o.UID] = policy == foreground
		h.noteDependents(o, policy)
		h.Remove(ref, policy)
	}
}

func (h *randomRun) modify() {
	ref, o, ok := h.some()
	if !ok {
		return
	}
	h.Update(ref, func(now *ownership.Object) {
		switch n := histories.IntN(h.t, 4); {
		case n == 0 && o.Phase == ownership.Active:
			now.Finalizers = append(now.Finalizers, fmt.Sprint("example.com/", histories.IntN(h.t, 3)))
		case n == 1:
			now.Finalizers = slices.DeleteFunc(now.Finalizers, func(f string) bool {
				return f != ownership.FinalizerOrphan && f != ownership.FinalizerForeground
			})
		case n == 2 && len(now.Owners) > 0:
			now.Owners = now.Owners[1:]
		default:
			if r, ok := h.ownerFor(*now); ok {
				now.Owners = append(now.Owners, r)
				delete(h.due[r.UID], now.UID) // not since the beginning
			}
		}
	})
}

func (h *randomRun) fail() {
	if h.faulty {
		h.Inject(apimodel.Fault{
			Verb:      histories.From(h.t, "", "get", "list", "delete", "patch owners", "patch finalizers"),
			Times:     1 + histories.IntN(h.t, 3),
			Err:       histories.From(h.t, errTimeout, errForbidden, apierrors.NewInternalError(errors.New("x")), apierrors.NewTooManyRequests("x", 1)),
			Committed: histories.IntN(h.t, 2) == 0,
		})
	}
}

// checkDelete is S1: an object that is deleted has no solid owner at that moment. An owner
// that was in foreground deletion once counts as such: it may have lost the finalizer since,
// but its deletion goes on.
func (h *randomRun) checkDelete(r apimodel.Request) {
	o, ok := h.Lookup(r.Ref)
	if r.Verb != "delete" || !ok || o.UID != r.UID || o.ResourceVersion != r.ResourceVersion {
		return // it will be refused
	}
	h.fore[o.UID] = r.Propagation == foreground
	h.noteDependents(o, r.Propagation)
	if len(o.Owners) == 0 {
		h.t.Errorf("%s (%s) is deleted, and has no owner references", r.Ref, o.UID)
	}
	for _, owner := range o.Owners {
		if now, ok := h.owner(o, owner); ok && (now.Phase == ownership.Active || !h.fore[now.UID]) {
			h.t.Errorf("%s (%s) is deleted, and has the owner %s, which is %v", r.Ref, o.UID, owner.UID, now.Phase)
		}
	}
}

// noteDependents records the dependents that an owner has to wait for, as its deletion begins.
func (h *randomRun) noteDependents(owner ownership.Object, policy propagation) {
	h.due[owner.UID] = make(map[ownership.UID]bool)
	for _, ref := range h.refs {
		if o, ok := h.Lookup(ref); ok && h.depends(o, owner, policy) {
			h.due[owner.UID][o.UID] = true
		}
	}
}

// depends reports whether an object holds the deletion of its owner.
func (h *randomRun) depends(o, owner ownership.Object, policy propagation) bool {
	return slices.ContainsFunc(o.Owners, func(r ownership.Reference) bool {
		now, ok := h.owner(o, r)
		return ok && now.UID == owner.UID && (policy == orphan && o.UID != owner.UID || policy == foreground && r.Blocking())
	})
}

// checkFinalizerRemoved is S2 and S3.
func (h *randomRun) checkFinalizerRemoved(r apimodel.Request) {
	owner, ok := h.Lookup(r.Ref)
	if r.Verb != "patch finalizers" || !ok || owner.UID != r.UID || owner.ResourceVersion != r.ResourceVersion {
		return // it will be refused
	}
	policy := foreground
	if owner.Phase == ownership.Orphaning {
		policy = orphan
	}
	for _, ref := range h.refs {
		if o, ok := h.Lookup(ref); ok && h.due[owner.UID][o.UID] && h.depends(o, owner, policy) {
			h.t.Errorf("%s (%s) loses its finalizer in %v, and %s (%s) depends on it", r.Ref, owner.UID, owner.Phase, ref, o.UID)
		}
	}
}

// owner returns the current state of the object that a reference names.
func (h *randomRun) owner(o ownership.Object, r ownership.Reference) (ownership.Object, bool) {
	ref := client.Ref{Kind: r.OwnerKind(), Namespace: o.Namespace, Name: r.Name}
	if ref.Kind == nodeKind {
		ref.Namespace = ""
	}
	now, ok := h.Lookup(ref)
	return now, ok && now.UID == r.UID
}

// comeToRest ends all faults, delivers all events, and removes foreign finalizers.
func (h *randomRun) comeToRest() {
	h.faulty = false
	h.Heal()
	h.Unhold(podKind, setKind, nodeKind)
	foreign := func(f string) bool { return f != ownership.FinalizerOrphan && f != ownership.FinalizerForeground }
	for range 2 {
		for _, ref := range h.refs {
			if _, ok := h.Lookup(ref); ok {
				h.Update(ref, func(o *ownership.Object) { o.Finalizers = slices.DeleteFunc(o.Finalizers, foreign) })
			}
		}
		for h.Pending() > 0 || len(h.keys.waiting) > 0 || len(h.keys.backoff) > 0 {
			h.Deliver()
			h.settle()
		}
	}
}

// checkRest is L1 and L2: no deletion is unfinished, and no garbage is left.
func (h *randomRun) checkRest() {
	for _, ref := range h.refs {
		o, ok := h.Lookup(ref)
		if !ok {
			continue
		}
		if o.Phase != ownership.Active {
			h.t.Errorf("%s (%s) is %v for ever", ref, o.UID, o.Phase)
		}
		held := len(o.Owners) == 0
		for _, owner := range o.Owners {
			now, ok := h.owner(o, owner)
			held = held || ok && now.Phase != ownership.Foreground
		}
		if !held {
			h.t.Errorf("%s (%s) is garbage, and is left: %+v", ref, o.UID, o.Owners)
		}
	}
}
