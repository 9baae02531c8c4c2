package collector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// slowPlacesOf returns places of which those of some kinds are limited, and one tenant.
func slowPlacesOf(kinds ...ownership.Kind) *places {
	p := newPlaces(clock.RealClock{}, func(ownership.UID) string { return "tenant" })
	for _, kind := range kinds {
		p.kindLocked(group{kind: kind}).answers = slowly
	}
	return p
}

// L5: a decision with many requests for a slow kind waits for its next turn while the requests of all decisions take all
// places. Then it can send its request.
func TestL5_TurnsCountTheRequestsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := ownership.Kind{Kind: "Slow"}
		p := slowPlacesOf(kind)
		begin := func(ctx context.Context, v *visit) *request {
			t.Helper()
			r, err := p.begin(v, groupOf(ctx, kind))
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		var owner context.Context
		var first, other *visit
		var last *request
		for i := range slowPlaces {
			ctx, v := p.enter(t.Context(), ownership.UID(fmt.Sprint(i)), func() {})
			if i == 0 {
				owner, first = ctx, v
			}
			if i < slowPlaces-1 { // the last one has one request only
				if _, err := p.turn(ctx, kind); err != nil {
					t.Fatal(err)
				}
			}
			other, last = v, begin(ctx, v)
		}
		hasTurn := false
		go func() {
			end, err := p.turn(owner, kind)
			if err != nil {
				t.Error(err)
				return
			}
			defer end()
			hasTurn = true
			begin(owner, first).end(nil)
		}()
		synctest.Wait()
		if hasTurn {
			t.Error("a turn without a place for its request")
		}
		last.end(nil)
		synctest.Wait()
		if !hasTurn {
			t.Error("no turn although a request has ended")
		}
		if invited := p.leave(other, Settled); len(invited) > 0 {
			t.Errorf("%v have places, nobody waits", invited)
		}
	})
}

// L5: an object that waits for places of several kinds counts once. One that comes back for another reason, such as its
// back-off, does not wait.
func TestL5_ObjectsThatWaitCountOnce(t *testing.T) {
	kinds := []ownership.Kind{{Kind: "A"}, {Kind: "B"}, {Kind: "C"}}
	p := slowPlacesOf(kinds...)
	visitAll := func(uid ownership.UID) *visit {
		ctx, v := p.enter(t.Context(), uid, func() {})
		for _, kind := range kinds {
			if r, err := p.begin(v, groupOf(ctx, kind)); err == nil {
				r.end(nil)
				p.updateLocked(r.kind, func() { r.kind.answers = slowly }) // no other goroutine uses it
			}
		}
		return v
	}
	var holders []*visit
	for i := range slowPlaces {
		holders = append(holders, visitAll(ownership.UID(fmt.Sprint(i))))
	}
	expect := func(what string, want int) {
		t.Helper()
		if got, _ := p.length(); got != want || p.lengthOf("tenant") != want {
			t.Errorf("%s: %d objects wait, %d of the tenant, want %d", what, got, p.lengthOf("tenant"), want)
		}
	}
	p.leave(visitAll("failed"), Retry)
	expect("after a failure", 0)
	p.leave(visitAll("x"), Settled)
	p.leave(visitAll("y"), Settled)
	expect("two without places", 2)
	if invited := p.leave(holders[0], Settled); len(invited) != len(kinds) {
		t.Errorf("%v have places, want one object, for each kind", invited)
	}
	expect("one has places", 1)
	p.leave(holders[1], Settled)
	expect("both have places", 0)
	if _, v := p.enter(t.Context(), "x", func() {}); len(v.held) != len(kinds) {
		t.Errorf("x has %d places", len(v.held))
	}
}

// L5: an object waits for a place of a kind once, however many requests it could not send. When the kind answers quickly
// again, a few objects come back at a time.
func TestL5_PlacesAreAwaitedOnce(t *testing.T) {
	kind := ownership.Kind{Kind: "Slow"}
	p := slowPlacesOf(kind)
	var holders []*visit
	for i := range slowPlaces {
		ctx, v := p.enter(t.Context(), ownership.UID(fmt.Sprint(i)), func() {})
		if _, err := p.turn(ctx, kind); err != nil {
			t.Fatal(err)
		}
		holders = append(holders, v)
	}
	for i := range 10 * invitedAtOnce {
		ctx, v := p.enter(t.Context(), ownership.UID(fmt.Sprint("waiting-", i)), func() {})
		for range 100 {
			if _, err := p.turn(ctx, kind); !hasNoPlace(err) {
				t.Fatal(err)
			}
		}
		if invited := p.leave(v, Settled); len(invited) > 0 {
			t.Errorf("%v have places that are taken", invited)
		}
	}
	p.updateLocked(p.kindLocked(group{kind: kind}), func() { p.kindLocked(group{kind: kind}).answers = quickly })
	for range 100 {
		holders[0].want(group{kind: kind})
	}
	if invited := p.leave(holders[0], Settled); len(invited) != invitedAtOnce {
		t.Errorf("%d objects come back, want %d", len(invited), invitedAtOnce)
	}
}

// L5: an object counts as one of the tenant that it had when its wait began. An absent owner has none, until it is observed.
func TestL5_WaitsEndForTheTenantThatTheyBeganFor(t *testing.T) {
	kinds := []ownership.Kind{{Kind: "A"}, {Kind: "B"}}
	p := slowPlacesOf(kinds...)
	tenant := ""
	p.tenant = func(ownership.UID) string { return tenant }
	for i, tenantNow := range []string{"", "shop"} {
		tenant = tenantNow
		_, v := p.enter(t.Context(), "x", func() {})
		for _, kind := range kinds[:i+1] {
			v.want(group{kind: kind})
			p.updateLocked(p.kindLocked(group{kind: kind}), func() { p.kindLocked(group{kind: kind}).taken = slowPlaces })
		}
		p.leave(v, Settled)
	}
	if none, shop := p.lengthOf(""), p.lengthOf("shop"); none != 1 || shop != 0 {
		t.Errorf("%d objects of no tenant and %d of the shop wait, want 1 and 0", none, shop)
	}
	for _, kind := range kinds {
		p.popLocked(p.kindLocked(group{kind: kind}))
	}
	if n, _ := p.length(); n != 0 || len(p.waitsOf) > 0 {
		t.Errorf("after all places: %d objects wait, of %v", n, p.waitsOf)
	}
}

// L5: what a pass has tried is kept while its owner waits, also if something else brings the owner back meanwhile.
func TestL5_PassesGoOnWhileTheOwnerWaits(t *testing.T) {
	kind := ownership.Kind{Kind: "Slow"}
	p := slowPlacesOf(kind)
	noPlace := newNoPlaceError(kind, allAreTaken)
	visit := func() (*pass, *visit) {
		ctx, v := p.enter(t.Context(), "owner", func() {})
		return p.passOf(ctx), v
	}
	first, v := visit()
	now := time.Now()
	first.note(ownership.Object{UID: "a", Kind: kind}, errors.New("conversion failed"), now)
	for n := range 3 {
		first.note(ownership.Object{UID: "b", Kind: kind}, noPlace, now)
		outcome, after := outcomeOf(first.end(now)), failedAgain-time.Duration(n)*time.Second
		if unfinished, is := errors.AsType[unfinishedError](outcome.Err); outcome.Next != Later || outcome.After != after || !is || unfinished.isNew != (n == 0) {
			t.Errorf("the pass goes on: %+v", outcome)
		}
		v.want(group{kind: kind})
		p.updateLocked(p.kindLocked(group{kind: kind}), func() { p.kindLocked(group{kind: kind}).taken = slowPlaces })
		p.leave(v, Later)
		var again *pass
		if again, v = visit(); again != first {
			t.Fatal("another pass has begun")
		}
		now = now.Add(time.Second)
	}
	if outcome := outcomeOf(first.end(now)); outcome.Next != Retry {
		t.Errorf("at its end: %+v", outcome)
	}
	p.leave(v, Retry)
	if next, _ := visit(); next == first {
		t.Error("the pass has not ended")
	}
}

// L5: a dependent for which other lists are held is tried again soon, and has not failed. The pass goes on, also if a decision
// ends before it comes to the dependents.
func TestL5_BusyDependentsHaveNotFailed(t *testing.T) {
	kind := ownership.Kind{Kind: "Slow"}
	p := slowPlacesOf(kind)
	ctx, v := p.enter(t.Context(), "owner", func() {})
	first, now := p.passOf(ctx), time.Now()
	first.note(ownership.Object{UID: "a", Kind: kind}, errors.New("conversion failed"), now)
	first.note(ownership.Object{UID: "b", Kind: kind}, busyError{}, now)
	if outcome := outcomeOf(first.end(now)); outcome.Next != Later || outcome.After != busyDelay {
		t.Errorf("%+v", outcome)
	}
	if first.skips("b", nil, now) || !first.skips("a", nil, now) || first.skips("a", nil, now.Add(failedAgain)) {
		t.Error("the one that is busy has failed, or the other one has not, or for ever")
	}
	if got := first.ordered([]ownership.UID{"a", "b"}); !slices.Equal(got, []ownership.UID{"b", "a"}) {
		t.Errorf("%v: the one that has failed is first", got)
	}
	p.leave(v, Later)
	_, v = p.enter(t.Context(), "owner", func() {})
	p.leave(v, Later) // before the dependents
	ctx, v = p.enter(t.Context(), "owner", func() {})
	if p.passOf(ctx) != first {
		t.Error("another pass has begun")
	}
	if outcome := outcomeOf(first.end(now)); outcome.Next != Retry {
		t.Errorf("at its end: %+v", outcome)
	}
	p.leave(v, Retry)
	_, v = p.enter(t.Context(), "owner", func() {})
	if v.pass != nil {
		t.Error("the pass has not ended")
	}
}

// A pass keeps the errors of a few dependents, however many have failed, and those that say more than a refusal in any case. It forgets
// what is no dependent any more.
func TestPassKeepsFewErrors(t *testing.T) {
	const many = 1000
	p, now := newPass(), time.Now()
	var dependents []ownership.UID
	for n := range many {
		uid := ownership.UID(fmt.Sprintf("%03d", n))
		dependents = append(dependents, uid)
		p.note(ownership.Object{UID: uid}, refusedError{uid: uid}, now.Add(time.Duration(n)))
	}
	broken := errors.New("conversion failed")
	p.note(ownership.Object{UID: "500"}, broken, now.Add(many))
	p.note(ownership.Object{UID: "001"}, refusedError{uid: "001"}, now.Add(many+1))
	if err := p.end(now); !errors.Is(err, broken) || len(p.why) != explained+1 {
		t.Errorf("%v, and the errors of %d dependents", err, len(p.why))
	}
	want := slices.Concat([]ownership.UID{"new", "000"}, dependents[2:500], dependents[501:], []ownership.UID{"500", "001"})
	if got := p.ordered(append([]ownership.UID{"new"}, dependents...)); !slices.Equal(got, want) {
		t.Errorf("ordered: %v", got)
	}
	if p.ordered(dependents[explained:]); len(p.failed) != many-explained || len(p.why) != 1 {
		t.Errorf("%d failures, and the errors of %d", len(p.failed), len(p.why))
	}
	p.succeeds("500")
	if err := p.end(now); !errors.Is(err, errUnexplained) || outcomeOf(err).Next != Retry {
		t.Errorf("%v, although no error of the others is known", err)
	}
	if p.ordered(nil); p.end(now) != nil {
		t.Error("what is no dependent has failed")
	}
}

// Objects that wait for a short time are no news: the log would have thousands of lines about them, and hide others.
func TestBusyObjectsAreNotLogged(t *testing.T) {
	for err, isLogged := range map[error]bool{busyError{}: false, fmt.Errorf("detach: %w", busyError{}): false, errors.New("broken"): true} {
		var out bytes.Buffer
		c := &Collector{log: slog.New(slog.NewTextHandler(&out, nil))}
		c.logFailure(t.Context(), "x", outcomeOf(err))
		if got := out.Len() > 0; got != isLogged {
			t.Errorf("%v: %s", err, out.String())
		}
	}
}
