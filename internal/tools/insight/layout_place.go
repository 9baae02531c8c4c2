package insight

import (
	"cmp"
	"slices"
)

// order reduces the crossings of edges: it sorts the vertices of each column by the barycentres
// of their neighbours, column by column, alternating between left and right.
func (b *block) order() {
	b.fill()
	best, fewest := b.snapshot(), b.crossings()
	for sweep := 0; sweep < maxSweeps && fewest > 0; sweep++ {
		if sweep%2 == 0 {
			for c := 1; c < len(b.columns); c++ {
				b.settle(c, func(s *vertex) []int { return s.left })
			}
		} else {
			for c := len(b.columns) - 2; c >= 0; c-- {
				b.settle(c, func(s *vertex) []int { return s.right })
			}
		}
		if n := b.crossings(); n < fewest {
			best, fewest = b.snapshot(), n
		}
	}
	b.columns = best
	b.number()
}

// fill adds the vertices to their columns in the order of a depth-first search from the owners,
// so that the dependents of one owner stay together.
func (b *block) fill() {
	seen := make([]bool, len(b.vertices))
	var walk func(i int)
	walk = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		b.columns[b.vertices[i].column] = append(b.columns[b.vertices[i].column], i)
		for _, next := range b.vertices[i].right {
			walk(next)
		}
	}
	for i := range b.vertices {
		if len(b.vertices[i].left) == 0 {
			walk(i)
		}
	}
	b.number()
}

// number sets the height of each vertex to its position in the column.
func (b *block) number() {
	for _, column := range b.columns {
		for position, i := range column {
			b.vertices[i].y = float64(position)
		}
	}
}

func (b *block) snapshot() [][]int {
	columns := make([][]int, len(b.columns))
	for i, column := range b.columns {
		columns[i] = slices.Clone(column)
	}
	return columns
}

// settle sorts one column by the barycentres of its vertices' neighbours on one side.
func (b *block) settle(column int, neighbours func(*vertex) []int) {
	middle := make(map[int]float64, len(b.columns[column]))
	for _, i := range b.columns[column] {
		middle[i] = b.middle(neighbours(&b.vertices[i]), b.vertices[i].y)
	}
	slices.SortStableFunc(b.columns[column], func(x, y int) int { return cmp.Compare(middle[x], middle[y]) })
	for position, i := range b.columns[column] {
		b.vertices[i].y = float64(position)
	}
}

// middle returns the mean height of some vertices, or the argument otherwise if the list is empty.
func (b *block) middle(vertices []int, otherwise float64) float64 {
	if len(vertices) == 0 {
		return otherwise
	}
	sum := 0.0
	for _, i := range vertices {
		sum += b.vertices[i].y
	}
	return sum / float64(len(vertices))
}

// crossings counts the crossings of edges between all neighbouring columns.
func (b *block) crossings() int {
	total := 0
	for c := 1; c < len(b.columns); c++ {
		// Edges are taken from top to bottom of the left column. Each crosses the earlier
		// ones that end further down, which a binary indexed tree counts.
		tree := make([]int, len(b.columns[c])+1)
		edges := 0
		for _, i := range b.columns[c-1] {
			ends := make([]int, 0, len(b.vertices[i].right))
			for _, to := range b.vertices[i].right {
				ends = append(ends, int(b.vertices[to].y))
			}
			for _, end := range ends {
				above := 0
				for at := end + 1; at > 0; at -= at & -at {
					above += tree[at]
				}
				total += edges - above
			}
			for _, end := range ends {
				edges++
				for at := end + 1; at < len(tree); at += at & -at {
					tree[at]++
				}
			}
		}
	}
	return total
}

// place sets the heights: each vertex is as near as possible to the middle of its neighbours
// while the order and distances in the column are kept.
func (b *block) place() {
	for c := range b.columns {
		b.spread(c, func(s *vertex) float64 { return s.y * rowPitch })
	}
	for range placements {
		for c := len(b.columns) - 2; c >= 0; c-- {
			b.spread(c, func(s *vertex) float64 { return b.middle(s.right, s.y) })
		}
		for c := 1; c < len(b.columns); c++ {
			b.spread(c, func(s *vertex) float64 { return b.middle(s.left, s.y) })
		}
	}
	// Owners come last, so that each is in the middle of its dependents.
	for c := len(b.columns) - 2; c >= 0; c-- {
		b.spread(c, func(s *vertex) float64 { return b.middle(s.right, s.y) })
	}
	b.raise()
}

// spread sets the heights in one column to the least-squares fit of the wanted heights, subject
// to neighbours keeping their distance. Neighbours whose wanted heights conflict are pooled and
// moved as one.
func (b *block) spread(column int, wish func(*vertex) float64) {
	type pool struct {
		sum   float64
		count int
	}
	vertices := b.columns[column]
	offsets := make([]float64, len(vertices))
	var pools []pool
	for i, s := range vertices {
		if i > 0 {
			offsets[i] = offsets[i-1] + b.distance(vertices[i-1], s)
		}
		pools = append(pools, pool{wish(&b.vertices[s]) - offsets[i], 1})
		for n := len(pools); n > 1 && pools[n-1].sum*float64(pools[n-2].count) < pools[n-2].sum*float64(pools[n-1].count); n-- {
			pools[n-2].sum += pools[n-1].sum
			pools[n-2].count += pools[n-1].count
			pools = pools[:n-1]
		}
	}
	i := 0
	for _, p := range pools {
		for range p.count {
			b.vertices[vertices[i]].y = p.sum/float64(p.count) + offsets[i]
			i++
		}
	}
}

// distance returns the minimum distance of two neighbours in a column.
func (b *block) distance(above, below int) float64 {
	half := func(i int) float64 {
		if b.vertices[i].object < 0 {
			return dummyPitch / 2
		}
		return rowPitch / 2
	}
	return half(above) + half(below)
}

func (b *block) raise() {
	top := b.vertices[0].y
	for i := range b.vertices {
		top = min(top, b.vertices[i].y)
	}
	for i := range b.vertices {
		b.vertices[i].y += boxHeight/2 - top
	}
}

func (b *block) height() float64 {
	bottom := 0.0
	for i := range b.vertices {
		bottom = max(bottom, b.vertices[i].y+boxHeight/2)
	}
	return bottom
}

// draw adds the block to a drawing, at a height.
func (b *block) draw(d *layout, top float64) {
	lefts := make([]float64, len(b.widths))
	right := 0.0
	for c, width := range b.widths {
		lefts[c] = right
		right += width + columnGap
	}
	d.width = max(d.width, right-columnGap)
	for _, s := range b.vertices {
		if s.object >= 0 {
			d.boxes[s.object] = box{point{lefts[s.column], top + s.y}, b.widths[s.column]}
		}
	}
	for e, way := range b.routes {
		var points []point
		for i, at := range way {
			s := b.vertices[at]
			left, right := point{lefts[s.column], top + s.y}, point{lefts[s.column] + b.widths[s.column], top + s.y}
			switch {
			case i == 0:
				points = append(points, right)
			case i == len(way)-1:
				points = append(points, left)
			default:
				points = append(points, left, right)
			}
		}
		d.lines[e] = line{points, b.back[e]}
	}
	for e, at := range b.loops {
		s := b.vertices[at]
		x, y := lefts[s.column]+b.widths[s.column], top+s.y
		d.lines[e] = line{points: []point{{x, y - boxHeight/4}, {x + boxHeight/2, y}, {x, y + boxHeight/4}}}
	}
}
