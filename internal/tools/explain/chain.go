package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// follow returns the waits of an object, each with its own waits, down to the leaves. It explains each object once.
func (e *Explainer) follow(o *inventory.Object) []Wait {
	if state, seen := e.explained[o.UID]; seen {
		ref := refOf(o)
		if state == "" {
			return []Wait{{On: OnCycle, Object: &ref, Says: fmt.Sprintf("%s waits for this object in turn", ref), State: Unknown}}
		}
		return []Wait{{On: OnRepeated, Object: &ref, Says: fmt.Sprintf("%s is explained above", ref), State: state}}
	}
	e.explained[o.UID] = ""
	waits := e.direct(o)
	for n := range waits {
		e.complete(&waits[n])
	}
	e.explained[o.UID] = worst(waits)
	return waits
}

// complete follows the open waits in a wait, and sorts the waits below it: the worst first, and among these the oldest.
func (e *Explainer) complete(w *Wait) {
	switch {
	case w.isOpen():
		w.Waits = e.follow(e.Inventory.Object(w.Object.UID))
	case len(w.Waits) == 0:
		return
	default:
		for n := range w.Waits {
			e.complete(&w.Waits[n])
			if w.progresses {
				settle(&w.Waits[n])
			}
		}
	}
	slices.SortStableFunc(w.Waits, func(a, b Wait) int {
		return cmp.Or(a.State.rank()-b.State.rank(), compareTimes(a.Since, b.Since))
	})
	w.State = worst(w.Waits)
}

// isOpen reports whether a wait is for an object whose own waits are not known yet.
func (w *Wait) isOpen() bool { return w.State == "" && len(w.Waits) == 0 }
