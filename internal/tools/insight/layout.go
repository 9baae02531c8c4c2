package insight

import "slices"

// The spacing of boxes and rows, in pixels.
const (
	rowPitch   = 52.0 // from one box to the next below it
	dummyPitch = 14.0 // beside an edge that passes through a column
	boxHeight  = 40.0
	columnGap  = 72.0
	blockGap   = 28.0 // between components
	maxSweeps  = 12
	placements = 8
)

type point struct{ x, y float64 }

// box is the position of an object: its left edge and its vertical center.
type box struct {
	point
	width float64
}

// line is the path of a reference: from the owner's right edge through the columns to the
// dependent's left edge. A reference that closes a cycle goes the other way.
type line struct {
	points   []point
	backward bool
}

// layout holds the positions of everything in a drawing.
type layout struct {
	boxes         []box  // by object
	lines         []line // by edge
	width, height float64
}

// edge is an owner and one of its dependents.
type edge struct{ owner, dependent int }

// arrange lays objects out in columns, owners left of their dependents. Connected
// components are placed below each other, in order. It is Sugiyama's method in its simplest
// form: columns by longest path, the order in a column by barycentres, heights by least
// squares.
func arrange(widths []float64, edges []edge) layout {
	d := layout{boxes: make([]box, len(widths)), lines: make([]line, len(edges))}
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

// component is a set of connected objects and the edges between them, by their indexes in the
// arguments of arrange.
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

// vertex is an object, or a dummy where a long edge passes through a column.
type vertex struct {
	object int // -1 for a dummy
	column int
	y      float64
	left   []int // neighbours in the column before
	right  []int
}

// block is the drawing of one component.
type block struct {
	vertices []vertex
	columns  [][]int // vertices by column, from top to bottom
	widths   []float64
	routes   map[int][]int // by edge: the vertices that it passes through, from left to right
	back     map[int]bool  // edges from right to left
	loops    map[int]int   // by edge of an object that owns itself: the vertex
}

func newBlock(c component, widths []float64, edges []edge) *block {
	b := &block{routes: make(map[int][]int), loops: make(map[int]int)}
	local := make(map[int]int, len(c.objects))
	for i, object := range c.objects {
		local[object] = i
		b.vertices = append(b.vertices, vertex{object: object})
	}
	var forward []arc
	for _, i := range c.edges {
		if e := edges[i]; e.owner == e.dependent {
			b.loops[i] = local[e.owner]
		} else {
			forward = append(forward, arc{from: local[e.owner], to: local[e.dependent], edge: i})
		}
	}
	b.back = turnCycles(len(b.vertices), forward)
	for i, column := range columnsOf(len(b.vertices), forward) {
		b.vertices[i].column = column
		for len(b.columns) <= column {
			b.columns, b.widths = append(b.columns, nil), append(b.widths, 0)
		}
		b.widths[column] = max(b.widths[column], widths[b.vertices[i].object])
	}
	for _, j := range forward {
		b.route(j)
	}
	return b
}

// arc is an edge between vertices.
type arc struct{ from, to, edge int }

// turnCycles reverses edges so that no cycles remain, and returns these edges.
func turnCycles(n int, arcs []arc) map[int]bool {
	back := breakCycles(n, arcs)
	for i, j := range arcs {
		if back[j.edge] {
			arcs[i].from, arcs[i].to = j.to, j.from
		}
	}
	return back
}

// bendsOf returns the sum over all edges of the columns that an edge passes through or ends in.
func bendsOf(objects int, edges []edge) int {
	var arcs []arc
	for i, e := range edges {
		if e.owner != e.dependent {
			arcs = append(arcs, arc{from: e.owner, to: e.dependent, edge: i})
		}
	}
	turnCycles(objects, arcs)
	columns, bends := columnsOf(objects, arcs), 0
	for _, j := range arcs {
		bends += columns[j.to] - columns[j.from]
	}
	return bends
}

// breakCycles finds edges whose removal breaks all cycles: the back edges of a depth-first
// search.
func breakCycles(n int, arcs []arc) map[int]bool {
	out := make([][]arc, n)
	entered := make([]bool, n)
	for _, j := range arcs {
		out[j.from] = append(out[j.from], j)
		entered[j.to] = true
	}
	back := make(map[int]bool)
	state := make([]uint8, n) // 1: entered, 2: left
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
	for _, roots := range []bool{true, false} { // roots first, then vertices that only cycles lead to
		for i := range n {
			if state[i] == 0 && entered[i] != roots {
				walk(i)
			}
		}
	}
	return back
}

// columnsOf puts every vertex to the right of its predecessors, and owners without owners in
// the column before the first of their dependents.
func columnsOf(n int, arcs []arc) []int {
	out, in := make([][]int, n), make([]int, n)
	for _, j := range arcs {
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

// route adds a dummy vertex in each column that an edge passes through.
func (b *block) route(j arc) {
	at := j.from
	way := []int{at}
	for column := b.vertices[j.from].column + 1; column <= b.vertices[j.to].column; column++ {
		next := j.to
		if column < b.vertices[j.to].column {
			next = len(b.vertices)
			b.vertices = append(b.vertices, vertex{object: -1, column: column})
		}
		b.vertices[at].right = append(b.vertices[at].right, next)
		b.vertices[next].left = append(b.vertices[next].left, at)
		way = append(way, next)
		at = next
	}
	b.routes[j.edge] = way
}
