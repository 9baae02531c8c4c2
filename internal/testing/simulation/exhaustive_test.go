package simulation

import (
	"bytes"
	"flag"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	objectsFlag    = flag.Int("sim.objects", 3, "search graphs of this many objects at most: see make graphs")
	exhaustiveFlag = flag.Bool("sim.exhaustive", false, "search larger graphs too, and two crashes: see make exhaustive")
)

// exploration runs graphs in all ways in which the collector can crash. It is safe for
// concurrent use.
type exploration struct {
	t       *testing.T
	crashes []Step // the kinds of crashes
	orders  [][]int

	graphs, steps, runs atomic.Int64

	mu   sync.Mutex
	seen map[visit]bool // guarded by mu
}

// visit is a cold restart that was followed: the state, and the steps tried from there.
type visit struct {
	standstill string
	order      Order // of the following steps; always the same after the last crash
	crashes    int   // that may still happen
}

// isNew reports whether a restart was not followed so far.
func (e *exploration) isNew(v visit) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen[v] {
		return false
	}
	e.seen[v] = true
	return true
}

// explore inserts up to the given number of crashes at any of the ordinary steps after the
// schedule.
func (e *exploration) explore(given Schedule, order Order, crashes int) {
	var ways [][]visit // for each step, the restarts after each kind of crash
	look := func(w *cluster) {
		var visits []visit
		for _, crash := range e.crashes {
			v := visit{standstill: w.standstill(crash).key(e.orders), crashes: crashes - 1}
			if crashes > 1 {
				v.order = order
			}
			visits = append(visits, v)
		}
		ways = append(ways, visits)
	}
	if crashes == 0 {
		look = func(*cluster) {}
	}
	unfolded, from := unfold(e.t.Context(), given, order, look)
	if e.runs.Add(1); unfolded.Violation != nil {
		e.t.Error(Report(e.t.Context(), 0, unfolded))
		return
	}
	for n, visits := range ways {
		for i, crash := range e.crashes {
			e.steps.Add(1)
			// A stale list shows an earlier state, which is not in the key.
			if e.t.Failed() || crash.Stale == 0 && !e.isNew(visits[i]) {
				continue
			}
			steps := slices.Clone(unfolded.Schedule.Steps[:from+n])
			e.explore(Schedule{Steps: append(steps, crash)}, order, crashes-1)
		}
	}
}

// search is one part of TestGraphs.
type search struct {
	name string
	Search
	orders  []Order
	crashes []Step
	times   int // that it crashes
	long    bool
}

func searches() []search {
	policies := []Fate{DeletedBackground, DeletedForeground, DeletedOrphan}
	anyEdge, blocking := []Edge{NoEdge, Refers, Blocks}, []Edge{NoEdge, Blocks}
	lazy, both := []Order{Lazy}, []Order{Eager, Lazy}
	cold, lost, stale := Step{Op: Crash}, Step{Op: Crash, Failure: "lost"}, Step{Op: Crash, Stale: 1}
	of := func(objects int, edges []Edge, loops bool, deletes int) Search {
		return Search{Objects: objects, Edges: edges, Loops: loops, Deletes: deletes, Policies: policies}
	}
	sparse := of(5, anyEdge, false, 1)
	sparse.Most = 6
	return []search{
		{"1 object, 2 crashes", of(1, anyEdge, true, 1), both, []Step{cold, lost, stale}, 2, false},
		{"2 objects, stale lists", of(2, anyEdge, true, 2), both, []Step{cold, lost, stale}, 1, false},
		{"3 objects", of(3, anyEdge, false, 2), both, []Step{cold, lost}, 1, false},
		{"4 objects", of(4, anyEdge, false, 1), lazy, []Step{cold}, 1, false},
		{"2 objects, stale lists, 2 crashes", of(2, anyEdge, true, 2), both, []Step{cold, lost, stale}, 2, true},
		{"3 objects, loops, all may be deleted, 2 crashes", of(3, anyEdge, true, 3), both, []Step{cold, lost}, 2, true},
		{"4 objects, 2 crashes", of(4, anyEdge, false, 1), both, []Step{cold, lost}, 2, true},
		{"5 objects, all references blocking, 2 crashes", of(5, blocking, false, 1), both, []Step{cold}, 2, true},
		{"5 objects, up to 6 references, 2 crashes", sparse, both, []Step{cold}, 2, true},
	}
}

// TestGraphs runs all small ownership graphs, with a crash at every step of each:
// before and after each request, before and after its answer, before and after
// each watch event.
func TestGraphs(t *testing.T) {
	for _, s := range searches() {
		t.Run(s.name, func(t *testing.T) {
			switch {
			case *exhaustiveFlag:
			case s.long:
				t.Skip("run with -sim.exhaustive")
			case s.Objects > *objectsFlag:
				t.Skipf("run with -sim.objects=%d", s.Objects)
			}
			if scaled(10) < 10 && s.Objects > 1 {
				t.Skip("too much for -race and -short")
			}
			began := time.Now()
			e := &exploration{t: t, crashes: s.crashes, orders: ordersOf(s.Objects), seen: make(map[visit]bool)}
			e.all(s)
			t.Logf("%d graphs, %d steps to crash at, %d runs, %v", e.graphs.Load(), e.steps.Load(), e.runs.Load(), time.Since(began).Round(time.Millisecond))
		})
	}
}

// all explores all graphs of a search, on all processors.
func (e *exploration) all(s search) {
	graphs := make(chan Graph)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for g := range graphs {
				for _, order := range s.orders {
					e.explore(g.Schedule(), order, s.times)
				}
			}
		})
	}
	total := 0
	if s.long {
		for range Graphs(s.Search) {
			total++
		}
		e.t.Logf("%d graphs", total)
	}
	report := time.NewTicker(time.Minute)
	defer report.Stop()
	for g := range Graphs(s.Search) {
		select {
		case <-report.C:
			e.t.Logf("%d of %d graphs, %d steps to crash at, %d runs so far", e.graphs.Load(), total, e.steps.Load(), e.runs.Load())
		default:
		}
		if e.t.Failed() {
			break
		}
		e.graphs.Add(1)
		graphs <- g
	}
	close(graphs)
	workers.Wait()
}

func TestGraphsAreEnumeratedOnce(t *testing.T) {
	// Directed graphs without loops, one vertex marked as the one that is deleted,
	// up to isomorphism. The numbers follow from Burnside's lemma.
	want := []int{1, 4, 36, 752}
	for i, n := range want {
		got := 0
		for range Graphs(Search{Objects: i + 1, Edges: []Edge{NoEdge, Refers}, Deletes: 1, Policies: []Fate{DeletedOrphan}, All: true}) {
			got++
		}
		if got != n {
			t.Errorf("%d objects: %d graphs, want %d", i+1, got, n)
		}
	}
}

// Restarts with the same key behave the same: as many objects are left, after as many requests.
// So one of them represents all.
func TestRestartsWithOneKeyGoTheSameWay(t *testing.T) {
	type outcome struct{ left, requests int }
	outcomes := make(map[string]outcome)
	orders, merged := ordersOf(3), 0
	for g := range Graphs(Search{Objects: 3, Edges: []Edge{NoEdge, Refers, Blocks}, Deletes: 1, Policies: []Fate{DeletedForeground, DeletedOrphan}}) {
		var keys []string
		var requests []int
		unfolded, from := unfold(t.Context(), g.Schedule(), Lazy, func(w *cluster) {
			keys = append(keys, w.standstill(Step{Op: Crash}).key(orders))
			requests = append(requests, w.requests)
		})
		for n, key := range keys {
			steps := append(slices.Clone(unfolded.Schedule.Steps[:from+n]), Step{Op: Crash})
			result := Run(t.Context(), Schedule{Steps: steps}, Options{Left: true})
			got := outcome{strings.Count(result.Left, "#"), result.Requests - requests[n]}
			want, ok := outcomes[key]
			if outcomes[key] = got; !ok {
				continue
			}
			if merged++; got != want {
				t.Fatalf("%+v, and %+v after\n%s", got, want, Schedule{Steps: steps})
			}
		}
	}
	if merged == 0 {
		t.Error("no two restarts have one key")
	}
}

// A graph and the plain one that stands for it end with the same objects.
func TestPlainGraphsStandForAll(t *testing.T) {
	s := Search{Objects: 3, Edges: []Edge{NoEdge, Refers, Blocks}, Deletes: 2, Policies: []Fate{DeletedForeground, DeletedOrphan, DeletedBackground}, All: true}
	all, plain := 0, 0
	for g := range Graphs(s) {
		all++
		p, same := g.plain(s)
		if same {
			plain++
			continue
		}
		want, got := names(Run(t.Context(), g.Schedule(), Options{Left: true})), names(Run(t.Context(), p.Schedule(), Options{Left: true}))
		if !slices.Equal(want, got) {
			t.Fatalf("left are %v, and of the plain graph %v:\n%s", want, got, g.Schedule())
		}
	}
	if plain == 0 || plain == all {
		t.Errorf("%d of %d graphs are plain", plain, all)
	}
}

// plain returns the plain graph that represents a graph.
func (g Graph) plain(s Search) (p Graph, same bool) {
	e := &enumeration{Search: s, code: make([]byte, 0, s.Objects*(s.Objects+1))}
	for _, row := range g.Edges {
		for _, edge := range row {
			e.code = append(e.code, byte(edge))
		}
	}
	for _, fate := range g.Fates {
		e.code = append(e.code, byte(fate))
	}
	code := e.code
	e.code = e.plain()
	return e.graph(), bytes.Equal(code, e.code)
}

// names returns the names of the objects that are left.
func names(result Result) []string {
	var all []string
	for line := range strings.SplitSeq(result.Left, ", ") {
		name, _, _ := strings.Cut(line, " ")
		all = append(all, name)
	}
	return all
}
