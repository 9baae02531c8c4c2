package e2e

import (
	"slices"
	"testing"
)

// without returns the case without an object.
func (w previewCase) without(id int) previewCase {
	other := func(edges []previewEdge) []previewEdge {
		return slices.DeleteFunc(slices.Clone(edges), func(e previewEdge) bool { return e.owner == id })
	}
	deletes := func(all []previewDelete) []previewDelete {
		return slices.DeleteFunc(slices.Clone(all), func(d previewDelete) bool { return d.id == id })
	}
	smaller := w
	smaller.objects, smaller.early, smaller.requests = nil, deletes(w.early), deletes(w.requests)
	smaller.late = slices.DeleteFunc(other(w.late), func(e previewEdge) bool { return e.from == id })
	for _, o := range w.objects {
		if o.id != id {
			o.owners = other(o.owners)
			smaller.objects = append(smaller.objects, o)
		}
	}
	return smaller
}

// smaller returns the cases that have an object, a reference, a finalizer or a DELETE less.
func (w previewCase) smaller() []previewCase {
	var all []previewCase
	add := func(change func(s *previewCase)) {
		s := w
		s.objects, s.late, s.early, s.requests = slices.Clone(w.objects), slices.Clone(w.late), slices.Clone(w.early), slices.Clone(w.requests)
		if change(&s); len(s.requests) > 0 {
			all = append(all, s)
		}
	}
	for _, o := range w.objects {
		add(func(s *previewCase) { *s = s.without(o.id) })
	}
	for n, o := range w.objects {
		for i := range o.owners {
			add(func(s *previewCase) { s.objects[n].owners = slices.Delete(slices.Clone(o.owners), i, i+1) })
		}
		if o.held {
			add(func(s *previewCase) { s.objects[n].held = false })
		}
		if o.guard != "" {
			add(func(s *previewCase) { s.objects[n].guard = "" })
		}
	}
	if w.guard != "" {
		add(func(s *previewCase) { s.guard = "" })
	}
	for n := range w.late {
		add(func(s *previewCase) { s.late = slices.Delete(s.late, n, n+1) })
	}
	for n := range w.early {
		add(func(s *previewCase) { s.early = slices.Delete(s.early, n, n+1) })
	}
	for n := range w.requests {
		add(func(s *previewCase) { s.requests = slices.Delete(s.requests, n, n+1) })
	}
	return all
}

// shrink takes something away from a case as long as it fails.
func (c *previewCluster) shrink(t *testing.T, w previewCase, problem string) (previewCase, string) {
	t.Helper()
	for {
		found := false
		for _, smaller := range w.smaller() {
			if result := c.try(t, smaller); result.problem != "" {
				w, problem, found = smaller, result.problem, true
				break
			}
		}
		if !found {
			return w, problem
		}
	}
}

// TestSmallerCases: each has something less, and leaves the case as it is.
func TestSmallerCases(t *testing.T) {
	size := func(w previewCase) int {
		n := len(w.objects) + len(w.late) + len(w.early) + len(w.requests) + len(w.guard)
		for _, o := range w.objects {
			n += len(o.owners)
			if o.held {
				n++
			}
			if o.guard != "" {
				n++
			}
		}
		return n
	}
	for seed := range uint64(100) {
		w := drawPreview(seed)
		before := w.String()
		smaller := w.smaller()
		for _, s := range smaller {
			if size(s) >= size(w) || len(s.requests) == 0 {
				t.Errorf("seed %d:\n%s\nis not smaller than\n%s", seed, s, w)
			}
		}
		if w.String() != before {
			t.Errorf("seed %d: the case has become\n%s\nfrom\n%s", seed, w, before)
		}
		if len(w.objects) > 1 && len(smaller) < 2 {
			t.Errorf("seed %d: only %d cases are smaller than\n%s", seed, len(smaller), w)
		}
	}
}
