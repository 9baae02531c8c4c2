package insight

import "slices"

// How boxes and rows are spaced, in pixels.
const (
	rowPitch   = 52.0 // from one box to the next below it
	lanePitch  = 14.0 // beside an edge that passes through a column
	boxHeight  = 40.0
	columnGap  = 72.0
	blockGap   = 28.0 // between pictures of objects that have nothing to do with each other
	maxSweeps  = 12
	placements = 8
)

// point is a place in the drawing.
type point struct{ x, y float64 }

// box is where an object is drawn: its left edge and the middle of its height.
type box struct {
	point
	width float64
}

// wire is the way of a reference: from the owner's right edge through the columns
// to the dependent's left edge. A reference that closes a cycle goes the other way.
type wire struct {
	points   []point
	backward bool
}

// layout is a drawing: where everything is.
type layout struct {
	boxes         []box  // by object
	wires         []wire // by edge
	width, height float64
}

// edge is a pair of objects: the owner, and what depends on it.
type edge struct{ owner, dependent int }

// arrange lays objects out in columns: owners left of their dependents, each near
// to those it belongs with. Objects that are not connected stand below each other,
// in their order. It is the method of Sugiyama, in its simplest form: columns
// (longest path), order within a column (barycentres), heights (least squares).
func arrange(widths []float64, edges []edge) layout {
	d := layout{boxes: make([]box, len(widths)), wires: make([]wire, len(edges))}
	for _, members := range components(len(widths), edges) {
		b := newBlock(members, widths, edges)
		b.order()
		b.place()
		b.draw(&d, d.height)
		d.height += b.height() + blockGap
	}
	d.height = max(0, d.height-blockGap)
	return d
}

// component is a set of connected objects, and the edges between them, by their
// positions in what arrange was given.
type component struct{ objects, edges []int }

func components(objects int, edges []edge) []component {
	leader := make([]int, objects)
	for i := range leader {
		leader[i] = i
	}
	var find func(i int) int
	find = func(i int) int {
		if leader[i] != i {
			leader[i] = find(leader[i])
		}
		return leader[i]
	}
	for _, e := range edges {
		a, b := find(e.owner), find(e.dependent)
		leader[max(a, b)] = min(a, b)
	}
	var all []component
	at := make(map[int]int)
	for i := range objects {
		l := find(i)
		if _, ok := at[l]; !ok {
			at[l] = len(all)
			all = append(all, component{})
		}
		all[at[l]].objects = append(all[at[l]].objects, i)
	}
	for i, e := range edges {
		c := &all[at[find(e.owner)]]
		c.edges = append(c.edges, i)
	}
	return all
}

// stop is an object, or a place where a long edge passes through a column.
type stop struct {
	object int // -1 for a lane
	column int
	y      float64
	left   []int // stops in the column before that this one is joined to
	right  []int
}

// block is the drawing of one component.
type block struct {
	stops   []stop
	columns [][]int // stops by column, from top to bottom
	widths  []float64
	routes  map[int][]int // edge: the stops it runs through, from left to right
	back    map[int]bool  // edges that run against the columns
	loops   map[int]int   // edges of objects that own themselves, with the object's stop
}

func newBlock(c component, widths []float64, edges []edge) *block {
	b := &block{routes: make(map[int][]int), loops: make(map[int]int)}
	local := make(map[int]int, len(c.objects))
	for i, object := range c.objects {
		local[object] = i
		b.stops = append(b.stops, stop{object: object})
	}
	var forward []joint
	for _, i := range c.edges {
		if e := edges[i]; e.owner == e.dependent {
			b.loops[i] = local[e.owner]
		} else {
			forward = append(forward, joint{from: local[e.owner], to: local[e.dependent], edge: i})
		}
	}
	b.back = untangle(len(b.stops), forward)
	for i, j := range forward {
		if b.back[j.edge] {
			forward[i].from, forward[i].to = j.to, j.from
		}
	}
	for i, column := range columnsOf(len(b.stops), forward) {
		b.stops[i].column = column
		for len(b.columns) <= column {
			b.columns, b.widths = append(b.columns, nil), append(b.widths, 0)
		}
		b.widths[column] = max(b.widths[column], widths[b.stops[i].object])
	}
	for _, j := range forward {
		b.route(j)
	}
	return b
}

// joint is an edge between stops.
type joint struct{ from, to, edge int }

// untangle finds edges without which there is no cycle: those that lead back to
// where a walk in depth comes from.
func untangle(n int, joints []joint) map[int]bool {
	out := make([][]joint, n)
	entered := make([]bool, n)
	for _, j := range joints {
		out[j.from] = append(out[j.from], j)
		entered[j.to] = true
	}
	back := make(map[int]bool)
	state := make([]uint8, n) // 1 while on the way, 2 when done
	var walk func(i int)
	walk = func(i int) {
		state[i] = 1
		for _, j := range out[i] {
			switch state[j.to] {
			case 0:
				walk(j.to)
			case 1:
				back[j.edge] = true
			}
		}
		state[i] = 2
	}
	for _, roots := range []bool{true, false} { // then those that only a cycle leads to
		for i := range n {
			if state[i] == 0 && entered[i] != roots {
				walk(i)
			}
		}
	}
	return back
}

// columnsOf puts every stop right of all that lead to it, and owners without owners
// right before the first of their dependents.
func columnsOf(n int, joints []joint) []int {
	out, in := make([][]int, n), make([]int, n)
	for _, j := range joints {
		out[j.from] = append(out[j.from], j.to)
		in[j.to]++
	}
	column, open := make([]int, n), slices.Clone(in)
	var ready []int
	for i := range n {
		if in[i] == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		i := ready[0]
		ready = ready[1:]
		for _, to := range out[i] {
			column[to] = max(column[to], column[i]+1)
			if open[to]--; open[to] == 0 {
				ready = append(ready, to)
			}
		}
	}
	for i := range n {
		if in[i] == 0 && len(out[i]) > 0 {
			nearest := column[out[i][0]]
			for _, to := range out[i] {
				nearest = min(nearest, column[to])
			}
			column[i] = nearest - 1
		}
	}
	return column
}

// route gives an edge a stop in each column that it passes through.
func (b *block) route(j joint) {
	at := j.from
	way := []int{at}
	for column := b.stops[j.from].column + 1; column <= b.stops[j.to].column; column++ {
		next := j.to
		if column < b.stops[j.to].column {
			next = len(b.stops)
			b.stops = append(b.stops, stop{object: -1, column: column})
		}
		b.stops[at].right = append(b.stops[at].right, next)
		b.stops[next].left = append(b.stops[next].left, at)
		way = append(way, next)
		at = next
	}
	b.routes[j.edge] = way
}
