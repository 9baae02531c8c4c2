package queue

import "iter"

// Turns is an order in which tenants take turns, one element each; the elements of one tenant are first in, first out.
// However many elements a tenant has, the next one of another tenant is taken after at most one of each tenant. The zero
// value is empty. It is not safe for concurrent use.
type Turns[T any] struct {
	lines map[string]*line[T] // none is empty
	ring  []*line[T]          // the same; the next one to be served is at index next
	next  int
	len   int
}

// line holds the elements of one tenant.
type line[T any] struct {
	tenant   string
	elements []T
}

// Push puts an element at the end of its tenant's line.
func (t *Turns[T]) Push(tenant string, element T) {
	l := t.lines[tenant]
	if l == nil {
		l = &line[T]{tenant: tenant}
		if t.lines == nil {
			t.lines = make(map[string]*line[T])
		}
		t.lines[tenant] = l
		t.ring = append(t.ring, l)
	}
	l.elements = append(l.elements, element)
	t.len++
}

// Pop takes the first element of the tenant whose turn it is. There must be one.
func (t *Turns[T]) Pop() T {
	l := t.ring[t.next]
	first := l.elements[0]
	l.elements = l.elements[1:]
	t.len--
	if len(l.elements) > 0 {
		t.next = (t.next + 1) % len(t.ring)
		return first
	}
	// The last line takes the place of the one that has ended; that changes the order of the
	// lines, but none loses a turn.
	delete(t.lines, l.tenant)
	last := len(t.ring) - 1
	t.ring[t.next] = t.ring[last]
	t.ring[last] = nil
	t.ring = t.ring[:last]
	if t.next >= last {
		t.next = 0
	}
	return first
}

// Len returns the number of elements.
func (t *Turns[T]) Len() int { return t.len }

// LenOf returns the number of elements of one tenant.
func (t *Turns[T]) LenOf(tenant string) int {
	if l := t.lines[tenant]; l != nil {
		return len(l.elements)
	}
	return 0
}

// Firsts returns the first element of each tenant.
func (t *Turns[T]) Firsts() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, l := range t.ring {
			if !yield(l.elements[0]) {
				return
			}
		}
	}
}
