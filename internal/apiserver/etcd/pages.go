package etcd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// The format of a page of bbolt, in bytes. Numbers are in the byte order of the machine.
const (
	pageHeader = 16 // id (8), flags (2), count of elements (2), count of further pages (4)
	// An element of a branch: position of the key, from the element (4), length of the key (4), id of the page below (8).
	// An element of a leaf: flags (4), position (4) and length (4) of the key, length of the value, which follows (4).
	elementSize = 16

	branchFlag = 1
	leafFlag   = 2
	bucketFlag = 1 // of the element of a leaf
)

// readAhead bounds the bytes that are read at once. Neighbors in the file are often neighbors in the tree.
const readAhead = 256 << 10

// pageReader reads the pages of a database from its file, not from memory: an id that is too great is then an error.
type pageReader struct {
	file io.ReaderAt
	size int64  // of a page, in bytes
	n    uint64 // of pages

	seen   []atomic.Uint64 // a bit for each page, shared with the readers of other parts of the tree
	window []byte          // the last bytes that were read
	start  int64           // their position in the file
	ahead  int64           // bytes to read at once
}

func newPageReader(file io.ReaderAt, size int, n uint64) *pageReader {
	return &pageReader{file: file, size: int64(size), n: n, seen: make([]atomic.Uint64, n/64+1), ahead: int64(size)}
}

// another returns a reader for another goroutine.
func (p *pageReader) another() *pageReader {
	return &pageReader{file: p.file, size: p.size, n: p.n, seen: p.seen, ahead: p.size}
}

// page is a page of a tree, with the pages that continue it.
type page struct {
	id     uint64
	branch bool
	count  int
	bytes  []byte
}

// take reads a page that no other page has referred to. Its bytes are valid until the next call.
func (p *pageReader) take(id uint64) (page, error) {
	header, err := p.read(id, 1)
	if err != nil {
		return page{}, err
	}
	native := binary.NativeEndian
	flags, count, further := native.Uint16(header[8:]), int(native.Uint16(header[10:])), uint64(native.Uint32(header[12:]))
	switch {
	case native.Uint64(header) != id:
		return page{}, fmt.Errorf("page %d has the number of another one", id)
	case flags != branchFlag && flags != leafFlag:
		return page{}, fmt.Errorf("page %d has the unexpected type %#x", id, flags)
	case flags == branchFlag && count == 0:
		return page{}, fmt.Errorf("page %d has no pages below it", id)
	}
	all, err := p.read(id, 1+further)
	if err != nil {
		return page{}, err
	}
	for at := id; at <= id+further; at++ {
		if p.seen[at/64].Or(1<<(at%64))&(1<<(at%64)) != 0 {
			return page{}, fmt.Errorf("page %d is used twice", at)
		}
	}
	if pageHeader+count*elementSize > len(all) {
		return page{}, fmt.Errorf("page %d is too small for its %d keys", id, count)
	}
	return page{id, flags == branchFlag, count, all}, nil
}

// read returns the bytes of n pages from an id on.
func (p *pageReader) read(id, n uint64) ([]byte, error) {
	if id < 2 || id >= p.n || n > p.n-id { // the first two describe the database
		return nil, fmt.Errorf("page %d is not within the database", id)
	}
	from, length := int64(id)*p.size, int64(n)*p.size
	if from < p.start || from+length > p.start+int64(len(p.window)) {
		if err := p.fill(from, length); err != nil {
			return nil, fmt.Errorf("read page %d: %w", id, err)
		}
	}
	return p.window[from-p.start:][:length], nil
}

// fill reads at least length bytes. It reads more as long as the pages follow each other.
func (p *pageReader) fill(from, length int64) error {
	if from == p.start+int64(len(p.window)) {
		p.ahead = min(2*p.ahead, readAhead)
	} else {
		p.ahead = p.size
	}
	length = max(length, min(p.ahead, int64(p.n)*p.size-from))
	if int64(cap(p.window)) < length {
		p.window = make([]byte, max(length, readAhead))
	}
	p.start, p.window = from, p.window[:length]
	_, err := p.file.ReadAt(p.window, from)
	if err != nil {
		p.window = p.window[:0]
	}
	return err
}

// slice returns the bytes of an element from a position, which is counted from the start of the element.
func (p page) slice(element int, position, length uint64) ([]byte, error) {
	from := uint64(pageHeader+element*elementSize) + position
	if from+length > uint64(len(p.bytes)) {
		return nil, fmt.Errorf("a key of page %d is not within it", p.id)
	}
	return p.bytes[from : from+length], nil
}

// number returns the number of four bytes at a place in an element.
func (p page) number(element, at int) uint64 {
	return uint64(binary.NativeEndian.Uint32(p.bytes[pageHeader+element*elementSize+at:]))
}

// below returns the id of the page below an element of a branch.
func (p page) below(element int) uint64 {
	return binary.NativeEndian.Uint64(p.bytes[pageHeader+element*elementSize+8:])
}

// tree checks the tree of a bucket. Its keys must be in order, and each key of a branch must be greater than all keys
// before it and at most the first key below it. Otherwise, bbolt panics or does not find the keys.
type tree struct {
	pages *pageReader
	check func(key []byte) // panics if the key is not valid

	last  []byte // the last key of the leaves so far
	begun bool   // there is a last key
}

// readAll reads a root and all pages below it, in parts that are read concurrently.
func (t *tree) readAll(root uint64) error {
	p, err := t.pages.take(root)
	if err != nil {
		return err
	}
	if !p.branch {
		return t.readLeaf(p, nil)
	}
	parts := make([]tree, min(p.count, runtime.GOMAXPROCS(0)))
	firstOf := func(part int) int { return part * p.count / len(parts) }
	var reading errgroup.Group
	for n := range parts {
		parts[n] = tree{pages: t.pages.another(), check: t.check}
		reading.Go(func() error {
			return recovered(func() error { return parts[n].readElements(p, firstOf(n), firstOf(n+1), nil) })
		})
	}
	if err := reading.Wait(); err != nil {
		return err
	}
	for n := 1; n < len(parts); n++ {
		first := firstOf(n)
		if key, err := p.slice(first, p.number(first, 0), p.number(first, 4)); err != nil || parts[n-1].begun && bytes.Compare(key, parts[n-1].last) <= 0 {
			return fmt.Errorf("key %d of page %d is out of order", first, p.id)
		}
	}
	return nil
}

// read reads a page and all pages below it. The first key must be at least from.
func (t *tree) read(id uint64, from []byte) error {
	p, err := t.pages.take(id)
	switch {
	case err != nil:
		return err
	case p.branch:
		return t.readBranch(p, from)
	}
	return t.readLeaf(p, from)
}

func (t *tree) readBranch(p page, from []byte) error {
	p.bytes = bytes.Clone(p.bytes) // the pages below replace them
	return t.readElements(p, 0, p.count, from)
}

// readElements reads what is below some elements of a branch, whose bytes no other read replaces.
func (t *tree) readElements(p page, first, end int, from []byte) error {
	for i := first; i < end; i++ {
		key, err := p.slice(i, p.number(i, 0), p.number(i, 4))
		if err != nil {
			return err
		}
		if bytes.Compare(key, from) < 0 || t.begun && bytes.Compare(key, t.last) <= 0 {
			return fmt.Errorf("key %d of page %d is out of order", i, p.id)
		}
		if err := t.read(p.below(i), key); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) readLeaf(p page, from []byte) error {
	last, begun := t.last, t.begun
	for i := range p.count {
		if p.number(i, 0)&bucketFlag != 0 {
			// etcd has no nested buckets. bbolt follows them on another goroutine when it looks for free pages.
			return fmt.Errorf("a bucket within a bucket, on page %d", p.id)
		}
		length := p.number(i, 8)
		entry, err := p.slice(i, p.number(i, 4), length+p.number(i, 12))
		if err != nil {
			return err
		}
		key := entry[:length]
		if bytes.Compare(key, from) < 0 || begun && bytes.Compare(key, last) <= 0 {
			return fmt.Errorf("key %d of page %d is out of order", i, p.id)
		}
		t.check(key)
		last, begun = key, true
	}
	t.last, t.begun = append(t.last[:0], last...), begun
	return nil
}
