package explain

import (
	"slices"
	"strconv"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/servedby"
)

// Users decide how many finalizers and owners an object has, how long chains of objects are, and what conditions say.
// An explanation has at most a few megabytes, whatever they decide, and counts the rest.
const (
	// mostText is how long a text may be, in bytes.
	mostText = 1024
	// mostName is how long a name in a list of names may be.
	mostName = 80
	// mostCommand is how long a command may be. A command is left out rather than cut.
	mostCommand = 4096
	// mostFinalizers is how many finalizers of an object are looked at, besides those of the collector.
	mostFinalizers = 64
	// mostInList is how many waits one list has: for the finalizers, and for what else holds an object.
	mostInList = mostFinalizers + 8
	// mostListed is how many reasons, steps and names of one list are given.
	mostListed = 8
	// mostUnseen is how many resources are named that could not be read.
	mostUnseen = 100
	// mostWaits is how many waits an explanation has, before the worst leaf of each chain that is cut.
	mostWaits = 200
	// mostDepth is how deep waits are nested.
	mostDepth = 32
	// mostObjects is how many objects a group names.
	mostObjects = 1000
)

// lookedAt returns the finalizers to look at, and how many others there are.
func lookedAt(finalizers []string) (some []string, more int) {
	if len(finalizers) <= mostFinalizers {
		return finalizers, 0
	}
	some = slices.Clone(finalizers[:mostFinalizers])
	for _, f := range []string{ownership.FinalizerOrphan, ownership.FinalizerForeground} {
		if slices.Contains(finalizers[mostFinalizers:], f) {
			some = append(some, f)
		}
	}
	return some, len(finalizers) - len(some)
}

// bound bounds an explanation.
func (x *Explanation) bound() {
	x.Object = boundedRef(x.Object)
	x.Waits, x.More = boundWaits(x.Waits)
	x.Unseen = boundedTexts(x.Unseen, mostUnseen)
}

// level is a wait whose waits are to be bounded, and how deep it is.
type level struct {
	wait  *Wait
	depth int
}

// boundWaits bounds waits and all below them, level by level, and returns how many it left out of the first level. Where
// it cuts a chain, it keeps the worst leaf: that is what the chain ends with.
func boundWaits(waits []Wait) (kept []Wait, more int) {
	top := Wait{Waits: waits}
	left := mostWaits
	for queue := []level{{&top, 0}}; len(queue) > 0; queue = queue[1:] {
		w, depth := queue[0].wait, queue[0].depth
		if len(w.Waits) == 0 {
			continue
		}
		if left == 0 || depth == mostDepth {
			w.cut()
			continue
		}
		if most := min(left, mostInList); len(w.Waits) > most {
			slices.SortStableFunc(w.Waits, func(a, b Wait) int { return a.State.rank() - b.State.rank() })
			w.More += len(w.Waits) - most
			w.Waits = w.Waits[:most]
		}
		left -= len(w.Waits)
		for n := range w.Waits {
			w.Waits[n].boundTexts()
			queue = append(queue, level{&w.Waits[n], depth + 1})
		}
	}
	return top.Waits, top.More
}

// cut replaces what a wait waits for by the worst leaf of that, and counts the rest.
func (w *Wait) cut() {
	var worst *Wait
	all := 0
	for open := []*Wait{w}; len(open) > 0; {
		last := open[len(open)-1]
		open = open[:len(open)-1]
		for n := len(last.Waits) - 1; n >= 0; n-- {
			open = append(open, &last.Waits[n])
			all++
		}
		if last != w {
			all += last.More
		}
		if isLeaf := len(last.Waits) == 0 && last != w; isLeaf && (worst == nil || last.State.rank() < worst.State.rank()) {
			worst = last
		}
	}
	leaf := *worst
	leaf.boundTexts()
	w.Waits, w.More = []Wait{leaf}, w.More+all-1
}

// boundTexts bounds the texts and the lists of a wait, without the waits below it.
func (w *Wait) boundTexts() {
	w.Says, w.Finalizer = ownership.Excerpt(w.Says, mostText), ownership.Excerpt(w.Finalizer, mostText)
	if w.Object != nil {
		ref := boundedRef(*w.Object)
		w.Object = &ref
	}
	if w.ServedBy != nil {
		answer := boundedAnswer(*w.ServedBy)
		w.ServedBy = &answer
	}
	w.Next = slices.Clone(w.Next[:min(len(w.Next), mostListed)])
	for n := range w.Next {
		w.Next[n].Says = ownership.Excerpt(w.Next[n].Says, mostText)
		if len(w.Next[n].Command) > mostCommand {
			w.Next[n].Command = ""
		}
	}
}

func boundedRef(r Ref) Ref {
	r.Kind, r.Namespace, r.Name = ownership.Excerpt(r.Kind, mostText), ownership.Excerpt(r.Namespace, mostText), ownership.Excerpt(r.Name, mostText)
	r.UID = ownership.Bounded(ownership.Object{UID: r.UID}).UID
	return r
}

func boundedAnswer(a servedby.Answer) servedby.Answer {
	a.Finalizer, a.Controller = ownership.Excerpt(a.Finalizer, mostText), ownership.Excerpt(a.Controller, mostText)
	a.Evidence = boundedTexts(a.Evidence, mostListed)
	return a
}

// boundedTexts bounds a list of texts; the last one counts the others.
func boundedTexts(texts []string, most int) []string {
	kept := slices.Clone(texts[:min(len(texts), most)])
	for n := range kept {
		kept[n] = ownership.Excerpt(kept[n], mostText)
	}
	if more := len(texts) - len(kept); more > 0 {
		kept = append(kept, "and "+strconv.Itoa(more)+" more")
	}
	return kept
}
