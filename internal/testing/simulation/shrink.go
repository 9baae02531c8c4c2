package simulation

import (
	"context"
	"slices"
)

// Shrink makes a schedule that ends in a violation as small as it can, while it still ends in a
// violation of the same rule. No step of the returned schedule can be left out.
func Shrink(ctx context.Context, found Result) Schedule {
	s := &shrinker{best: found.Schedule, fails: func(s Schedule) (Schedule, bool) {
		result := Run(ctx, s, Options{})
		return result.Schedule, result.Violation != nil && result.Violation.Rule == found.Violation.Rule
	}}
	return s.shrink()
}

type shrinker struct {
	best Schedule
	// fails reports whether a schedule still violates the rule, and returns its steps that applied.
	fails func(Schedule) (applied Schedule, fails bool)
}

func (s *shrinker) shrink() Schedule {
	s.try(s.best.Steps)
	for before := -1; before != s.size(); {
		before = s.size()
		s.leaveOut()
		s.summarize()
		s.simplify()
	}
	return s.best
}

// size returns the quantity to minimize: the steps first, then their content.
func (s *shrinker) size() int {
	size := 1000 * len(s.best.Steps)
	for _, step := range s.best.Steps {
		size += len(step.String())
	}
	return size
}

// try runs a smaller schedule, and keeps it if it still fails. Steps that did not apply in it are
// left out for good.
func (s *shrinker) try(steps []Step) bool {
	applied, fails := s.fails(Schedule{Settings: s.best.Settings, Steps: steps})
	if fails {
		s.best = applied
	}
	return fails
}

// leaveOut tries to omit steps: half of them, a quarter, and so on down to single ones.
func (s *shrinker) leaveOut() {
	for chunk := max(1, len(s.best.Steps)/2); chunk > 0; chunk /= 2 {
		for at := len(s.best.Steps) - chunk; at >= 0; {
			if at+chunk > len(s.best.Steps) || !s.try(slices.Delete(slices.Clone(s.best.Steps), at, at+chunk)) {
				at -= chunk
				continue
			}
			at = min(at, len(s.best.Steps)-chunk)
		}
	}
	s.leaveOutPairs()
}

// leaveOutPairs omits two steps at once, since one may undo the other. It is worth the quadratic
// number of runs only when few steps are left.
func (s *shrinker) leaveOutPairs() {
	const few = 24
	for first := 0; len(s.best.Steps) <= few && first < len(s.best.Steps)-1; first++ {
		for second := first + 1; second < len(s.best.Steps); second++ {
			steps := slices.Delete(slices.Clone(s.best.Steps), second, second+1)
			if s.try(slices.Delete(steps, first, first+1)) {
				first, second = max(-1, first-2), len(s.best.Steps)
			}
		}
	}
}

// summarize tries to replace several steps of the server or the collector with one that stands for
// an ordinary order.
func (s *shrinker) summarize() {
	for _, op := range []Op{Settle, Work, CatchUp} {
		for at := 0; at < len(s.best.Steps); at++ {
			end := at
			for end < len(s.best.Steps) && !s.best.Steps[end].Op.isUser() {
				end++
			}
			for ; end > at+1; end-- {
				if s.try(slices.Replace(slices.Clone(s.best.Steps), at, end, Step{Op: op})) {
					break
				}
			}
		}
	}
}

// simplify tries to replace steps with smaller ones.
func (s *shrinker) simplify() {
	for at := 0; at < len(s.best.Steps); at++ {
		for _, simpler := range simplerThan(s.best.Steps[at]) {
			steps := slices.Clone(s.best.Steps)
			steps[at] = simpler
			if at < len(s.best.Steps) && s.try(steps) {
				at--
				break
			}
		}
	}
}

// simplerThan returns the steps that are simpler.
func simplerThan(step Step) []Step {
	var all []Step
	for i := range step.Owners {
		if step.Op == Create || len(step.Owners) > 1 {
			simpler := step
			simpler.Owners = slices.Delete(slices.Clone(step.Owners), i, i+1)
			all = append(all, simpler)
		}
		if step.Owners[i].BlockOwnerDeletion != 0 {
			simpler := step
			simpler.Owners = slices.Clone(step.Owners)
			simpler.Owners[i].BlockOwnerDeletion = 0
			all = append(all, simpler)
		}
	}
	if len(step.Finalizers) > 0 && step.Op == Create {
		simpler := step
		simpler.Finalizers = nil
		all = append(all, simpler)
	}
	if step.Stale > 0 {
		simpler := step
		simpler.Stale--
		all = append(all, simpler)
	}
	if step.Op == Crash && step.Kind != "" {
		simpler := step
		simpler.Kind = ""
		all = append(all, simpler)
	}
	return all
}
