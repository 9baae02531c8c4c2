package simulation

import (
	"math/rand/v2"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// generator generates a schedule, one step after the other, from the state of the cluster, so that
// most steps apply. The seed first picks a profile: which steps are frequent, rare or absent in
// this schedule. A thousand schedules of different profiles find more bugs than a thousand of one
// profile.
type generator struct {
	random   *rand.Rand
	settings Settings
	steps    int // to take
	attempts int // left to generate a step that applies
	serial   int // of UIDs

	weights    []weight
	total      int
	resources  []string // the resources of created objects
	owners     int      // an object is created with fewer references
	names      int      // number of names in a namespace
	spaces     []string
	bogus      int // of a hundred references, how many are wrong
	finalizers int // of a hundred objects, how many are created with a foreign finalizer
	meddling   int // of a hundred writes of users, how many hit an object that the collector is about to write

	following []Step // steps that belong to an earlier step
}

// weight is the relative frequency of a kind of step.
type weight struct {
	share int
	make  func(g *generator, w *cluster) Step
}

// DefaultSteps is the average number of steps of a random schedule.
const DefaultSteps = 60

func newGenerator(seed uint64, steps int) *generator {
	g := &generator{random: rand.New(rand.NewPCG(seed, 0x636f7070696365))}
	r := g.random
	g.settings.Admission = r.IntN(2) == 0
	g.settings.Newest = seed%2 == 0
	g.settings.Piece = int(seed / 2 % 2)
	g.steps = max(1, steps/3+r.IntN(steps*4/3))
	g.attempts = 4 * g.steps
	g.owners = 3
	if seed%3 == 0 {
		g.owners = 9 // more than the graph keeps
	}
	g.names = 2 + r.IntN(4)
	g.spaces = [][]string{{"a"}, {"a", "b"}}[r.IntN(2)]
	g.bogus = []int{0, 10, 40}[r.IntN(3)]
	g.finalizers = []int{0, 20}[r.IntN(2)]
	g.meddling = []int{0, 30, 60}[r.IntN(3)]
	g.resources = [][]string{{pod}, {pod, set}, {pod, set, node}, {pod, set, node, zone, widget, gadget}, {node, zone, pod}}[r.IntN(5)]
	g.weigh()
	return g
}

// weigh picks the frequencies.
func (g *generator) weigh() {
	r := g.random
	faults, crashes, lags, apiChanges := r.IntN(3), r.IntN(3), r.IntN(4), r.IntN(4)
	g.weights = []weight{
		{20, (*generator).create},
		{[]int{0, 3, 6}[r.IntN(3)], (*generator).family},
		{10, (*generator).delete},
		{[]int{0, 4, 8}[r.IntN(3)], (*generator).recreate},
		{[]int{0, 4, 12}[r.IntN(3)], (*generator).own},
		{[]int{0, 4}[r.IntN(2)], (*generator).disown},
		{[]int{0, 3}[r.IntN(2)], (*generator).finalize},
		{[]int{0, 5}[r.IntN(2)], (*generator).unfinalize},
		{[]int{10, 30, 60}[r.IntN(3)], (*generator).deliver},
		{[]int{0, 0, 2, 8}[lags], (*generator).relist},
		{[]int{0, 0, 1, 2}[lags], (*generator).repeat},
		{[]int{0, 0, 0, 2}[lags], (*generator).travel},
		{25, (*generator).collect},
		{40, (*generator).answer},
		{[]int{0, 4, 12}[faults], (*generator).fail},
		{[]int{0, 2, 4}[faults], (*generator).wake},
		{[]int{0, 1, 3}[faults], (*generator).haunt},
		{[]int{0, 1, 4}[crashes], (*generator).crash},
		{[]int{0, 0, 0, 1}[r.IntN(4)], (*generator).restore},
		{[]int{0, 0, 3, 9}[apiChanges], (*generator).changeAPI},
		{[]int{0, 3, 8}[r.IntN(3)], (*generator).catchUp},
		{[]int{0, 3, 8}[r.IntN(3)], (*generator).work},
		{[]int{0, 1, 4}[r.IntN(3)], (*generator).settle},
	}
	for _, w := range g.weights {
		g.total += w.share
	}
}

// next generates the next step; it returns false when the schedule is over.
func (g *generator) next(w *cluster) (Step, bool) {
	if w.applied == g.steps || g.attempts == 0 {
		return Step{}, false
	}
	g.attempts--
	if len(g.following) > 0 {
		next := g.following[0]
		g.following = g.following[1:]
		return next, true
	}
	n := g.random.IntN(g.total)
	for _, weight := range g.weights {
		if n -= weight.share; n < 0 {
			return weight.make(g, w), true
		}
	}
	return Step{}, false
}

func pick[T any](g *generator, from []T) (one T) {
	if len(from) == 0 {
		return one
	}
	return from[g.random.IntN(len(from))]
}

// chance is true in n of a hundred cases.
func (g *generator) chance(n int) bool { return g.random.IntN(100) < n }

func (g *generator) watched() string { return pick(g, []string{pod, pod, set, node, zone, widget}) }

func (g *generator) deliver(w *cluster) Step {
	var lagging []string
	for i, r := range w.server.resources {
		if w.hasEvent(i) {
			lagging = append(lagging, r.short)
		}
	}
	return Step{Op: Deliver, Kind: pick(g, append(lagging, pod)[:max(1, len(lagging))])}
}

func (g *generator) relist(*cluster) Step {
	return Step{Op: Relist, Kind: g.watched(), Stale: g.random.IntN(4) * g.random.IntN(2)}
}

func (g *generator) travel(*cluster) Step {
	return Step{Op: Travel, Kind: g.watched(), Stale: 1 + g.random.IntN(4)}
}

// restore restores a backup. The watches observe it one after the other.
func (g *generator) restore(*cluster) Step {
	for _, short := range []string{pod, set, node, zone, widget} {
		if g.chance(70) {
			g.following = append(g.following, Step{Op: Relist, Kind: short})
		}
	}
	return Step{Op: Restore, Stale: 1 + g.random.IntN(6)}
}

func (g *generator) repeat(*cluster) Step { return Step{Op: Repeat, Kind: g.watched()} }

func (g *generator) collect(w *cluster) Step {
	if len(w.in.queue.waiting) == 0 || len(w.in.workers) >= maxWorkers {
		return g.answer(w)
	}
	return Step{Op: Collect, UID: pick(g, w.in.queue.waiting)}
}

// uid returns the key of a worker that waits for an answer.
func (g *generator) uid(w *cluster) ownership.UID {
	if len(w.in.workers) == 0 {
		return ""
	}
	return pick(g, w.in.workers).uid
}

func (g *generator) answer(w *cluster) Step {
	uid := g.uid(w)
	switch {
	case uid == "":
		return g.deliver(w)
	case g.chance(20):
		return Step{Op: Execute, UID: uid}
	default:
		return Step{Op: Answer, UID: uid}
	}
}

func (g *generator) fail(w *cluster) Step {
	uid := g.uid(w)
	switch {
	case uid == "":
		return g.deliver(w)
	case g.chance(30):
		return Step{Op: Lose, UID: uid}
	case g.chance(20):
		return Step{Op: Drop, UID: uid}
	default:
		return Step{Op: Fail, UID: uid, Failure: pick(g, failures())}
	}
}

func (g *generator) wake(w *cluster) Step { return Step{Op: Wake, UID: pick(g, w.in.queue.backoff)} }
func (g *generator) haunt(*cluster) Step  { return Step{Op: Haunt} }

func (g *generator) crash(*cluster) Step {
	s := Step{Op: Crash, Stale: g.random.IntN(4) * g.random.IntN(2)}
	if g.chance(50) {
		s.Kind = g.watched()
	}
	switch {
	case s.Kind != "" && g.chance(30):
		s.Failure = "undiscovered"
	case g.chance(30):
		s.Failure = "lost"
	}
	return s
}

// changeAPI changes which resources are served and which can be read.
func (g *generator) changeAPI(w *cluster) Step {
	switch short := pick(g, []string{widget, gadget, pod, pod, set}); g.random.IntN(7) {
	case 0, 6:
		return Step{Op: Break, Kind: short}
	case 1:
		return Step{Op: Withdraw, Kind: widget}
	case 2, 3:
		return Step{Op: Serve, Kind: widget}
	default:
		for i, r := range w.server.resources {
			st := w.in.streams[i]
			switch {
			case r.broken:
				return Step{Op: Mend, Kind: r.short}
			case r.served != st.told || !r.served && st.unknown:
				return Step{Op: Notice, Kind: r.short}
			case r.served && r.watched && (!st.listed || st.epoch != r.epoch):
				return Step{Op: Relist, Kind: r.short}
			}
		}
		return Step{Op: CatchUp}
	}
}

func (g *generator) catchUp(*cluster) Step { return Step{Op: CatchUp} }
func (g *generator) work(*cluster) Step    { return Step{Op: Work} }
func (g *generator) settle(*cluster) Step  { return Step{Op: Settle} }
