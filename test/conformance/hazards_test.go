package conformance

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// H6: a collector starts while one kind cannot be read; an owner is orphaned.
func TestOrphanWhileAKindIsUnreadable(t *testing.T) {
	t.Run("H6 the owner is held until its dependents can be seen", func(t *testing.T) {
		w := apart(t, checked)
		owner := w.Create(probe.ConfigMaps, "owner")
		gizmos := w.Define("gizmos")
		dependents, repair := w.BreakReading(gizmos, probe.OwnedBy(probe.Blocking(owner)))
		w.collect(nil)
		w.Remove(owner, probe.Orphan)
		w.Settle(probe.ConfigMaps)
		w.EventuallyFinalizers(owner, probe.OrphanFinalizer)
		repair()
		w.EventuallyGone(owner)
		w.AreOrphans(dependents...)
	})
	t.Run("H6 so is an owner in foreground deletion", func(t *testing.T) {
		w := apart(t, checked)
		owner := w.Create(probe.ConfigMaps, "owner")
		gizmos := w.Define("gizmos")
		dependents, repair := w.BreakReading(gizmos, probe.OwnedBy(probe.Blocking(owner)), probe.Held)
		w.collect(nil)
		w.Remove(owner, probe.Foreground)
		w.Settle(probe.ConfigMaps)
		w.EventuallyFinalizers(owner, probe.ForegroundFinalizer)
		repair()
		w.EventuallyLeaving(dependents...)
		w.EventuallyFinalizers(owner, probe.ForegroundFinalizer)
		for _, d := range dependents {
			w.LetGo(d)
		}
		w.EventuallyGone(owner)
		w.EventuallyGone(dependents...)
	})
}

// lagOwners is the number of owners in each row of the table of lags: 200 in the measurements on
// upstream.
const (
	lagOwners         = 40
	lagOwnersVariable = "COPPICE_CONFORMANCE_LAG_OWNERS"
	lagDependents     = 3
)

// H7: owners are deleted as soon as their dependents are created, and the watch of
// the dependents' kind lags.
func TestWatchLag(t *testing.T) {
	n := lagOwners
	if text := os.Getenv(lagOwnersVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, lag := range []time.Duration{0, 5, 20, 100} {
		lag *= time.Millisecond
		t.Run(fmt.Sprintf("H7 orphan, lag %s", lag), func(t *testing.T) {
			w, owners := lagging(t, n, lag, probe.Orphan)
			lost := 0
			for _, o := range owners {
				for _, d := range o.dependents {
					if now, ok := w.Look(d); !ok || now.DeletionTimestamp != nil {
						lost++
					}
				}
			}
			if lost > 0 {
				t.Errorf("%d of %d dependents were deleted though they were to be orphaned", lost, n*lagDependents)
			}
		})
		t.Run(fmt.Sprintf("H7 foreground, lag %s", lag), func(t *testing.T) {
			_, owners := lagging(t, n, lag, probe.Foreground)
			inverted := 0
			for _, o := range owners {
				for _, d := range o.dependents {
					if o.order.Of(d) > o.order.Of(o.owner) {
						inverted++
						break
					}
				}
			}
			if inverted > 0 {
				t.Errorf("%d of %d owners were gone before their dependents", inverted, n)
			}
		})
	}
}

// family is an owner with its dependents, and the order in which they went.
type family struct {
	owner      probe.Object
	dependents []probe.Object
	order      *probe.Removals
}

// lagging makes n families, some at the same time, deletes each owner at once, and
// waits until the owners are gone and the lag is over.
func lagging(t *testing.T, n int, lag time.Duration, policy metav1.DeletionPropagation) (*cluster, []family) {
	t.Helper()
	w, tap := quiet(t), &tap{}
	tap.lag(probe.Secrets, lag)
	w.collect(tap)
	w.Settle(probe.Secrets)
	order := w.Watch(probe.ConfigMaps, probe.Secrets)
	families := make([]family, n)
	var group errgroup.Group
	group.SetLimit(4)
	for i := range families {
		group.Go(func() error {
			owner, err := w.TryCreate(probe.ConfigMaps, fmt.Sprint("owner-", i))
			if err != nil {
				return err
			}
			families[i] = family{owner: owner, order: order}
			for j := range lagDependents {
				d, err := w.TryCreate(probe.Secrets, fmt.Sprintf("dependent-%d-%d", i, j), probe.OwnedBy(probe.Blocking(owner)))
				if err != nil {
					return err
				}
				families[i].dependents = append(families[i].dependents, d)
			}
			return w.Objects(owner).Delete(t.Context(), owner.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		w.EventuallyGone(f.owner)
	}
	w.Settle(probe.Secrets)
	return w, families
}

// A tenant whose objects name thousands of owners.
func TestManyFakeOwners(t *testing.T) {
	t.Run("H9 they are looked up once, not for every change", func(t *testing.T) {
		w, tap := quietWith(t, unchecked), &tap{}
		w.collect(tap)
		w.Settle(probe.ConfigMaps)
		lookups, lists := match{verbs: "get", kind: probe.ConfigMaps}, match{verbs: "list", kind: probe.ConfigMaps}
		before := tap.count(lists)
		// The filter of 500 owners takes one in ten thousand other objects for an owner, that of 2000 owners one in fifty
		// (R30). Each costs a list.
		const many = 500
		o := w.Create(probe.Secrets, "object", probe.OwnedBy(append(probe.Fakes(many), probe.Nobody(probe.UnknownKind))...))
		eventually.Agrees(t, func() string {
			if tap.count(lists) == before && tap.count(lookups) < many {
				return "the owners are not looked up"
			}
			return ""
		})
		for i := range 3 {
			w.Patch(o, map[string]any{"labels": map[string]string{"change": fmt.Sprint(i)}})
			w.Settle(probe.Secrets)
		}
		w.AreKept(o)
		// Together, with one list. Two lookups are for each of the two rounds of settle.
		if got := tap.count(lookups); got > 8 {
			t.Errorf("%d lookups of %d owners", got, many)
		}
		if got := tap.count(lists) - before; got > 2 {
			t.Errorf("%d lists for %d owners", got, many)
		}
	})
}
