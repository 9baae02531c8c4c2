package insight

import (
	"cmp"
	"slices"
)

// order finds an order in each column in which few edges cross: each stop goes to
// the middle of its neighbours, column by column, to and fro.
func (b *block) order() {
	b.fill()
	best, fewest := b.snapshot(), b.crossings()
	for sweep := 0; sweep < maxSweeps && fewest > 0; sweep++ {
		if sweep%2 == 0 {
			for c := 1; c < len(b.columns); c++ {
				b.settle(c, func(s *stop) []int { return s.left })
			}
		} else {
			for c := len(b.columns) - 2; c >= 0; c-- {
				b.settle(c, func(s *stop) []int { return s.right })
			}
		}
		if n := b.crossings(); n < fewest {
			best, fewest = b.snapshot(), n
		}
	}
	b.columns = best
	b.number()
}

// fill puts the stops into their columns as a walk from the owners finds them, so
// that what belongs to one owner stands together.
func (b *block) fill() {
	seen := make([]bool, len(b.stops))
	var walk func(i int)
	walk = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		b.columns[b.stops[i].column] = append(b.columns[b.stops[i].column], i)
		for _, next := range b.stops[i].right {
			walk(next)
		}
	}
	for i := range b.stops {
		if len(b.stops[i].left) == 0 {
			walk(i)
		}
	}
	b.number()
}

// number sets the height of each stop to its position in its column.
func (b *block) number() {
	for _, column := range b.columns {
		for position, i := range column {
			b.stops[i].y = float64(position)
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

// settle sorts one column by the middle of its stops' neighbours on one side.
func (b *block) settle(column int, neighbours func(*stop) []int) {
	middle := make(map[int]float64, len(b.columns[column]))
	for _, i := range b.columns[column] {
		middle[i] = b.middle(neighbours(&b.stops[i]), b.stops[i].y)
	}
	slices.SortStableFunc(b.columns[column], func(x, y int) int { return cmp.Compare(middle[x], middle[y]) })
	for position, i := range b.columns[column] {
		b.stops[i].y = float64(position)
	}
}

// middle is the mean height of some stops.
func (b *block) middle(stops []int, otherwise float64) float64 {
	if len(stops) == 0 {
		return otherwise
	}
	sum := 0.0
	for _, i := range stops {
		sum += b.stops[i].y
	}
	return sum / float64(len(stops))
}

// crossings counts the pairs of edges that cross, between all neighbouring columns.
func (b *block) crossings() int {
	total := 0
	for c := 1; c < len(b.columns); c++ {
		// Edges from top to bottom of the left column; each crosses those before
		// it that end further down: counted by a binary indexed tree.
		tree := make([]int, len(b.columns[c])+1)
		edges := 0
		for _, i := range b.columns[c-1] {
			ends := make([]int, 0, len(b.stops[i].right))
			for _, to := range b.stops[i].right {
				ends = append(ends, int(b.stops[to].y))
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

// place finds the heights: each stop as near as it can be to the middle of its
// neighbours, in the order that was found, not nearer to the next than it may be.
func (b *block) place() {
	for c := range b.columns {
		b.spread(c, func(s *stop) float64 { return s.y * rowPitch })
	}
	for range placements {
		for c := len(b.columns) - 2; c >= 0; c-- {
			b.spread(c, func(s *stop) float64 { return b.middle(s.right, s.y) })
		}
		for c := 1; c < len(b.columns); c++ {
			b.spread(c, func(s *stop) float64 { return b.middle(s.left, s.y) })
		}
	}
	// Owners last, so that each stands in the middle of what it owns.
	for c := len(b.columns) - 2; c >= 0; c-- {
		b.spread(c, func(s *stop) float64 { return b.middle(s.right, s.y) })
	}
	b.raise()
}

// spread sets the heights in one column: the least squares of what is wished for,
// under the condition that everything keeps its distance. Where wishes collide,
// neighbours are pooled and moved as one.
func (b *block) spread(column int, wish func(*stop) float64) {
	type pool struct {
		sum   float64
		count int
	}
	stops := b.columns[column]
	offsets := make([]float64, len(stops))
	var pools []pool
	for i, s := range stops {
		if i > 0 {
			offsets[i] = offsets[i-1] + b.distance(stops[i-1], s)
		}
		pools = append(pools, pool{wish(&b.stops[s]) - offsets[i], 1})
		for n := len(pools); n > 1 && pools[n-1].sum*float64(pools[n-2].count) < pools[n-2].sum*float64(pools[n-1].count); n-- {
			pools[n-2].sum += pools[n-1].sum
			pools[n-2].count += pools[n-1].count
			pools = pools[:n-1]
		}
	}
	i := 0
	for _, p := range pools {
		for range p.count {
			b.stops[stops[i]].y = p.sum/float64(p.count) + offsets[i]
			i++
		}
	}
}

// distance is how far two neighbours in a column must be apart.
func (b *block) distance(above, below int) float64 {
	half := func(i int) float64 {
		if b.stops[i].object < 0 {
			return lanePitch / 2
		}
		return rowPitch / 2
	}
	return half(above) + half(below)
}

// raise moves the block up as far as it goes.
func (b *block) raise() {
	top := b.stops[0].y
	for i := range b.stops {
		top = min(top, b.stops[i].y)
	}
	for i := range b.stops {
		b.stops[i].y += boxHeight/2 - top
	}
}

func (b *block) height() float64 {
	bottom := 0.0
	for i := range b.stops {
		bottom = max(bottom, b.stops[i].y+boxHeight/2)
	}
	return bottom
}

// draw puts the block into a drawing, below what is there.
func (b *block) draw(d *layout, top float64) {
	lefts := make([]float64, len(b.widths))
	right := 0.0
	for c, width := range b.widths {
		lefts[c] = right
		right += width + columnGap
	}
	d.width = max(d.width, right-columnGap)
	for _, s := range b.stops {
		if s.object >= 0 {
			d.boxes[s.object] = box{point{lefts[s.column], top + s.y}, b.widths[s.column]}
		}
	}
	for e, way := range b.routes {
		var points []point
		for i, at := range way {
			s := b.stops[at]
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
		d.wires[e] = wire{points, b.back[e]}
	}
	for e, at := range b.loops {
		s := b.stops[at]
		x, y := lefts[s.column]+b.widths[s.column], top+s.y
		d.wires[e] = wire{points: []point{{x, y - boxHeight/4}, {x + boxHeight/2, y}, {x, y + boxHeight/4}}}
	}
}
