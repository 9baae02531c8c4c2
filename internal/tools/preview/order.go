package preview

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// class is the part of an outcome that comes before the name of its object in the order of outcomes.
type class struct {
	fate Fate
	step int
	kind ownership.Kind
}

func (c class) compare(other class) int {
	return cmp.Or(cmp.Compare(c.fate, other.fate), cmp.Compare(c.step, other.step),
		cmp.Compare(c.kind.Kind, other.kind.Kind), cmp.Compare(c.kind.Group, other.kind.Group))
}

// classified are outcomes of one class.
type classified struct {
	class
	outcomes []*Outcome
}

// sorted returns outcomes in the order of Prediction.Outcomes. Many outcomes have few classes, and the objects of most of
// them were loaded in the order of their names; so it compares little, and moves each outcome once.
func sorted(outcomes []Outcome) []Outcome {
	var all []*classified
	known := map[class]*classified{}
	var last *classified
	for n := range outcomes {
		o := &outcomes[n]
		if c := (class{o.Fate, o.Step, o.Object.Kind}); last == nil || last.class != c {
			if last = known[c]; last == nil {
				last = &classified{class: c}
				known[c], all = last, append(all, last)
			}
		}
		last.outcomes = append(last.outcomes, o)
	}
	slices.SortFunc(all, func(a, b *classified) int { return a.compare(b.class) })
	result := make([]Outcome, 0, len(outcomes))
	for _, c := range all {
		slices.SortFunc(c.outcomes, compareNames)
		for _, o := range c.outcomes {
			result = append(result, *o)
		}
	}
	return result
}

func compareNames(a, b *Outcome) int {
	if c := strings.Compare(a.Object.Namespace, b.Object.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Object.Name, b.Object.Name)
}

// ranked is a value with the beginning of its UID as a number. UIDs rarely begin with the same eight bytes: a sort compares
// the numbers, and seldom the texts.
type ranked[T any] struct {
	beginning uint64
	uid       ownership.UID
	value     T
}

func rank[T any](uid ownership.UID, value T) ranked[T] {
	var beginning [8]byte
	copy(beginning[:], uid)
	return ranked[T]{binary.BigEndian.Uint64(beginning[:]), uid, value}
}

// sortByUID sorts values by their UIDs.
func sortByUID[T any](all []ranked[T]) {
	slices.SortFunc(all, func(a, b ranked[T]) int {
		switch {
		case a.beginning < b.beginning:
			return -1
		case a.beginning > b.beginning:
			return 1
		}
		return strings.Compare(string(a.uid), string(b.uid))
	})
}
