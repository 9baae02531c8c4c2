package explain

import (
	"slices"
	"strconv"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
)

// Users decide the number of finalizers and owners of an object, the length of chains of objects, and the messages of
// conditions. An explanation is limited to a few megabytes in any case, and counts the rest.
const (
	// mostText is the limit of a text, in bytes.
	mostText = 1024
	// mostName is the limit of a name in a list of names, in bytes.
	mostName = 80
	// mostCommand is the limit of a command, in bytes. A longer command is left out rather than cut.
	mostCommand = 4096
	// mostFinalizers is the number of finalizers of an object that are explained, besides the collector's.
	mostFinalizers = 64
	// mostInList is the number of waits in one list: for the finalizers, and for other reasons.
	mostInList = mostFinalizers + 8
	// maxShown is the number of waits in a list below the first one.
	maxShown = 8
	// mostListed is the number of reasons, steps or names in one list.
	mostListed = 8
	// mostUnseen is the number of unread resources that an explanation names.
	mostUnseen = 100
	// mostWaits is the number of waits in an explanation, without the worst leaf of each chain that is cut.
	mostWaits = 200
	// mostDepth is the depth of nested waits.
	mostDepth = 32
	// mostObjects is the number of objects that a group names.
	mostObjects = 1000
)

// lookedAt returns the finalizers to explain, and the number of the others.
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

// level is a wait whose nested waits must be bounded, and its depth.
type level struct {
	wait  *Wait
	depth int
}

// boundWaits bounds waits and all below them, level by level, and returns the number of waits that it left out of the
// first level. If it cuts a chain, it keeps the worst leaf, because that is the reason at the end of the chain.
func boundWaits(waits []Wait) (kept []Wait, more int) {
	top := Wait{Waits: waits}
	budget := mostWaits
	for queue := []level{{&top, 0}}; len(queue) > 0; queue = queue[1:] {
		w, depth := queue[0].wait, queue[0].depth
		if len(w.Waits) == 0 {
			continue
		}
		if budget == 0 || depth == mostDepth {
			w.cut()
			continue
		}
		most := min(budget, maxShown)
		if w == &top {
			most = mostInList
		}
		if len(w.Waits) > most {
			slices.SortStableFunc(w.Waits, func(a, b Wait) int { return a.State.rank() - b.State.rank() })
			w.More += len(w.Waits) - most
			w.Waits = slices.Clone(w.Waits[:most])
		}
		budget -= len(w.Waits)
		for n := range w.Waits {
			w.Waits[n].boundTexts()
			queue = append(queue, level{&w.Waits[n], depth + 1})
		}
	}
	return top.Waits, top.More
}

// cut replaces the waits below a wait by their worst leaf, and counts the rest.
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

func boundedAnswer(a finalizerowner.Answer) finalizerowner.Answer {
	a.Finalizer, a.Controller = ownership.Excerpt(a.Finalizer, mostText), ownership.Excerpt(a.Controller, mostText)
	a.Evidence = boundedTexts(a.Evidence, mostListed)
	return a
}

// boundedTexts bounds a list of texts; an additional last one counts the others.
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
