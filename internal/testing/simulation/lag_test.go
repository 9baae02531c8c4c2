package simulation

import (
	"container/heap"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// The watch-lag table: 200 owners with three dependents each that were created a
// moment before the owner is deleted, while some watches lag. Here steps have a
// time. A request takes 2 ms, and is carried out in the middle; a watch event
// takes 1 ms and the lag of its kind; there are 20 workers.

// timed is a cluster in which steps have times.
type timed struct {
	*cluster
	lag    map[string]int // of the watch of a resource, in ms
	plan   plan
	serial int // of planned steps

	delivered []int // by resource, how many of its events are in the plan
	sent      map[*call]bool
	waking    map[ownership.UID]int // back-off of a key, in ms
}

// planned is a step and its time, in ms.
type planned struct {
	at, serial int
	step       Step
}

type plan []planned

func (p plan) Len() int { return len(p) }
func (p plan) Less(i, j int) bool {
	return p[i].at < p[j].at || p[i].at == p[j].at && p[i].serial < p[j].serial
}
func (p plan) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *plan) Push(x any)   { *p = append(*p, x.(planned)) }
func (p *plan) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

func newTimed(ctx context.Context, settings Settings, lag map[string]int) *timed {
	settings.Workers = 20
	w := newCluster(ctx, settings, nil)
	return &timed{cluster: w, lag: lag, delivered: make([]int, len(w.server.resources)), sent: map[*call]bool{}, waking: map[ownership.UID]int{}}
}

func (w *timed) at(ms int, step Step) {
	w.serial++
	heap.Push(&w.plan, planned{at: ms, serial: w.serial, step: step})
}

// run takes all steps in the order of their times, and plans the steps that follow from each.
func (w *timed) run() {
	for len(w.plan) > 0 {
		next := heap.Pop(&w.plan).(planned)
		if next.step.Op == Wake && !w.in.queue.wake(next.step.UID) {
			continue
		}
		w.apply(next.step)
		w.follow(next.at)
	}
}

func (w *timed) follow(now int) {
	for len(w.in.queue.waiting) > 0 && w.collect(w.in.queue.waiting[0]) {
	}
	for _, worker := range w.in.workers {
		if !w.sent[worker.call] {
			w.sent[worker.call] = true
			w.at(now+1, Step{Op: Execute, UID: worker.uid})
			w.at(now+2, Step{Op: Answer, UID: worker.uid})
		}
	}
	for _, uid := range w.in.queue.backoff {
		if backoff := min(2*w.waking[uid], 1000); backoff != w.waking[uid] || backoff == 0 {
			w.waking[uid] = max(5, backoff)
			w.at(now+w.waking[uid], Step{Op: Wake, UID: uid})
		}
	}
	for i, r := range w.server.resources {
		for ; w.delivered[i] < len(r.log); w.delivered[i]++ {
			w.at(now+1+w.lag[r.short], Step{Op: Deliver, Kind: r.short})
		}
	}
}

const lagDependents = 3

// cascade deletes owners with dependents, and returns how many dependents were deleted, and how
// many owners were removed before one of their dependents.
func (w *timed) cascade(owners int, policy verdict.Propagation) (lost, inverted int) {
	owner := func(i int) client.Ref {
		return client.Ref{Namespace: "a", Kind: kindOf(set), Name: fmt.Sprint("o", i)}
	}
	uid := func(i, n int) ownership.UID { return uidOf(10*(i+1) + n) }
	for i := range owners {
		w.at(5*i, Step{Op: Create, Ref: owner(i), UID: uid(i, 0)})
		for n := 1; n <= lagDependents; n++ {
			ref := client.Ref{Namespace: "a", Kind: kindOf(pod), Name: fmt.Sprintf("d%d-%d", i, n)}
			w.at(5*i+1, Step{Op: Create, Ref: ref, UID: uid(i, n), Owners: []ownership.Reference{
				reference(kindOf(set), owner(i).Name, uid(i, 0), ownership.True),
			}})
		}
		w.at(5*i+2, Step{Op: Delete, Ref: owner(i), Policy: policy})
	}
	w.run()
	w.comeToRest()
	for i := range owners {
		went, last := 0, 0
		if l := w.server.byUID[uid(i, 0)]; l.now() == nil {
			went = l.versions[len(l.versions)-1].revision
		}
		for n := 1; n <= lagDependents; n++ {
			if l := w.server.byUID[uid(i, n)]; l.now() == nil {
				lost++
				last = max(last, l.versions[len(l.versions)-1].revision)
			}
		}
		if went < last {
			inverted++
		}
	}
	return lost, inverted
}

// lose runs both cascades with some watches lagging.
func lose(t *testing.T, settings Settings, lagging []string, ms int) (lost, inverted int) {
	t.Helper()
	lag := make(map[string]int)
	for _, kind := range lagging {
		lag[kind] = ms
	}
	orphaning, foreground := newTimed(t.Context(), settings, lag), newTimed(t.Context(), settings, lag)
	defer orphaning.close()
	defer foreground.close()
	owners := scaled(200)
	lost, _ = orphaning.cascade(owners, verdict.Orphan)
	gone, inverted := foreground.cascade(owners, verdict.Foreground)
	if gone != owners*lagDependents {
		t.Errorf("lag %d ms of %v: %d of %d dependents were deleted in the foreground", ms, lagging, gone, owners*lagDependents)
	}
	return lost, inverted
}

func TestWatchLag(t *testing.T) {
	var table strings.Builder
	for _, lagging := range [][]string{{pod}, {set}, {pod, set}} {
		fmt.Fprintf(&table, "lag of %-8s  orphans lost  owners gone first\n", strings.Join(lagging, "+"))
		for _, ms := range []int{0, 5, 20, 100, 500, 5000} {
			lost, inverted := lose(t, Settings{}, lagging, ms)
			fmt.Fprintf(&table, "%7d ms %8d of %d %10d of %d\n", ms, lost, scaled(200)*lagDependents, inverted, scaled(200))
			if lost+inverted > 0 {
				t.Errorf("lag %d ms of %v: %d dependents were lost, %d owners went before their dependents", ms, lagging, lost, inverted)
			}
		}
	}
	t.Logf("\n%s", table.String())
	if lost, inverted := lose(t, Settings{NoBarrier: true}, []string{pod}, 20); lost == 0 || inverted == 0 {
		t.Errorf("without the barrier %d dependents are lost, and %d owners go first: this test tests nothing", lost, inverted)
	}
}
