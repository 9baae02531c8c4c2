package verdict_test

import (
	"fmt"
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// checkWrites verifies R16 for one decision: the list to write is the observed
// list, without additions or another order, and changed only as the decision
// requires.
func checkWrites(f verdict.Facts, d verdict.Decision) error {
	switch d := d.(type) {
	case verdict.Detach:
		at := 0
		for _, owner := range f.Owners {
			if at < len(d.Remaining) && d.Remaining[at] == owner.Reference {
				at++
				continue
			}
			if owner.Standing != verdict.Dangling && owner.Standing != verdict.Waiting {
				return fmt.Errorf("%s: %s takes away a reference to an owner that stands: %+v", f.Object.UID, d, owner)
			}
			if !slices.Contains(d.Remove, owner.Reference.UID) {
				return fmt.Errorf("%s: %s does not name %s", f.Object.UID, d, owner.Reference.UID)
			}
		}
		if at != len(d.Remaining) || at == len(f.Object.Owners) {
			return fmt.Errorf("%s: %s adds or reorders references, or removes none", f.Object.UID, d)
		}
	case verdict.Unblock:
		changed := 0
		for n, got := range d.Owners {
			want := f.Object.Owners[n]
			if got != want {
				changed++
				want.BlockOwnerDeletion = ownership.False
			}
			if got != want || got != f.Object.Owners[n] && (!f.Owners[n].InCycle || !f.Object.Owners[n].Blocking()) {
				return fmt.Errorf("%s: %s writes %+v for %+v", f.Object.UID, d, got, f.Object.Owners[n])
			}
		}
		if len(d.Owners) != len(f.Object.Owners) || changed == 0 {
			return fmt.Errorf("%s: %s changes nothing, or the number of references", f.Object.UID, d)
		}
	case verdict.RemoveFinalizer:
		want := slices.DeleteFunc(slices.Clone(f.Object.Finalizers), func(other string) bool { return other == d.Finalizer })
		if !slices.Equal(d.Remaining, want) || len(want) == len(f.Object.Finalizers) {
			return fmt.Errorf("%s: %s leaves %v of %v", f.Object.UID, d, d.Remaining, f.Object.Finalizers)
		}
		if d.Finalizer != ownership.FinalizerOrphan && d.Finalizer != ownership.FinalizerForeground {
			return fmt.Errorf("%s: %s removes a foreign finalizer", f.Object.UID, d)
		}
	}
	return nil
}
