package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// indexSet is a set of completion indexes: disjoint intervals in order, none of which
// touches the next. The zero value is empty. It is immutable.
type indexSet []interval

// interval is the range from first to last, inclusive.
type interval struct{ first, last int }

// parseIndexes parses a set in the form used in statuses and policies, "1,3-5,7". Indexes at or
// above limit are left out.
func parseIndexes(text string, limit int) (indexSet, error) {
	if text == "" {
		return nil, nil
	}
	var read []interval
	for part := range strings.SplitSeq(text, ",") {
		begin, end, isRange := strings.Cut(part, "-")
		if !isRange {
			end = begin
		}
		first, err := strconv.Atoi(begin)
		if err != nil {
			return nil, fmt.Errorf("read the indexes %q: %w", text, err)
		}
		last, err := strconv.Atoi(end)
		if err != nil {
			return nil, fmt.Errorf("read the indexes %q: %w", text, err)
		}
		if last < first {
			return nil, fmt.Errorf("read the indexes %q: %d comes before %d", text, last, first)
		}
		if first < limit {
			read = append(read, interval{first, min(last, limit-1)})
		}
	}
	return normal(read), nil
}

// normal sorts intervals and merges adjacent ones.
func normal(list []interval) indexSet {
	slices.SortFunc(list, func(a, b interval) int { return a.first - b.first })
	var joined indexSet
	for _, next := range list {
		if n := len(joined); n > 0 && next.first <= joined[n-1].last+1 {
			joined[n-1].last = max(joined[n-1].last, next.last)
		} else {
			joined = append(joined, next)
		}
	}
	return joined
}

// With returns the set with indexes added.
func (s indexSet) With(indexes ...int) indexSet {
	if len(indexes) == 0 {
		return s
	}
	list := slices.Clone(s)
	for _, i := range indexes {
		list = append(list, interval{i, i})
	}
	return normal(list)
}

// Has reports whether the index is in the set.
func (s indexSet) Has(index int) bool {
	_, found := s.find(index)
	return found
}

// NextOutside returns the lowest index that is not in the set, from an index on.
func (s indexSet) NextOutside(index int) int {
	if i, found := s.find(index); found {
		return s[i].last + 1 // the next interval does not touch this one
	}
	return index
}

// find returns the position of the interval that contains an index, if there is one.
func (s indexSet) find(index int) (int, bool) {
	return slices.BinarySearchFunc(s, index, func(i interval, index int) int {
		switch {
		case i.last < index:
			return -1
		case i.first > index:
			return 1
		}
		return 0
	})
}

// Len returns the number of indexes in the set.
func (s indexSet) Len() int {
	n := 0
	for _, i := range s {
		n += i.last - i.first + 1
	}
	return n
}

// Common returns the number of indexes that are in both sets.
func (s indexSet) Common(other indexSet) int {
	n := 0
	for a, b := 0, 0; a < len(s) && b < len(other); {
		n += max(0, min(s[a].last, other[b].last)-max(s[a].first, other[b].first)+1)
		if s[a].last < other[b].last {
			a++
		} else {
			b++
		}
	}
	return n
}

// String formats the set as in a status: three or more consecutive indexes form a range.
func (s indexSet) String() string {
	var parts []string
	for _, i := range s {
		switch {
		case i.first == i.last:
			parts = append(parts, strconv.Itoa(i.first))
		case i.first+1 == i.last:
			parts = append(parts, strconv.Itoa(i.first), strconv.Itoa(i.last))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", i.first, i.last))
		}
	}
	return strings.Join(parts, ",")
}
