package recyclebin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The format of a database of bbolt, as far as verify reads it.
const (
	pageHeader    = 16 // id, flags, count, overflow
	pageElement   = 16
	bucketHeader  = 16 // root, sequence
	metaSize      = 64
	metaMagic     = 0xED0CDAED
	branchPage    = 0x01
	leafPage      = 0x02
	freelistPage  = 0x10
	bucketElement = 0x01
	countFollows  = 0xFFFF
	maxDepth      = 64
)

// pages is a database whose pages are verified before bbolt reads them: bbolt trusts the lengths and page numbers in
// pages, and damage can make it allocate without limit.
type pages struct {
	file io.ReaderAt
	size uint64 // of a page
	end  uint64 // the number of pages
	used map[uint64]bool
}

// verify returns an error if the structure of a database is damaged. verify does not read the values.
func verify(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	p := &pages{file: f, size: uint64(os.Getpagesize()), used: map[uint64]bool{}}
	root, free, err := p.meta()
	if err != nil {
		return err
	}
	if uint64(info.Size()) < p.end*p.size {
		return damaged(fmt.Errorf("it has %d bytes, not %d", info.Size(), p.end*p.size))
	}
	if err := p.tree(root, 0); err != nil {
		return err
	}
	return p.freelist(free)
}

// meta reads the page of the last transaction.
func (p *pages) meta() (root, free uint64, err error) {
	last, found := uint64(0), false
	for n := range uint64(2) {
		text, err := p.read(n*p.size+pageHeader, metaSize)
		if err != nil {
			continue
		}
		sum := fnv.New64a()
		_, _ = sum.Write(text[:56])
		number, at := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
		if number(text) != metaMagic || uint64(number(text[8:])) != p.size || at(text[56:]) != sum.Sum64() {
			continue
		}
		if tx := at(text[48:]); !found || tx > last {
			root, free, p.end, last, found = at(text[16:]), at(text[32:]), at(text[40:]), tx, true
		}
	}
	if !found {
		return 0, 0, damaged(errors.New("its first pages are damaged"))
	}
	return root, free, nil
}

func (p *pages) read(at, length uint64) ([]byte, error) {
	text := make([]byte, length)
	if _, err := p.file.ReadAt(text, int64(at)); err != nil {
		return nil, damaged(err)
	}
	return text, nil
}

// page reads the header of a page and marks the page as used. It returns the flags, the number of elements, and
// the length with overflow pages.
func (p *pages) page(id uint64) (flags, count uint16, length uint64, err error) {
	if id < 2 || id >= p.end {
		return 0, 0, 0, damaged(fmt.Errorf("there is no page %d", id))
	}
	head, err := p.read(id*p.size, pageHeader)
	if err != nil {
		return 0, 0, 0, err
	}
	following := uint64(binary.LittleEndian.Uint32(head[12:]))
	if binary.LittleEndian.Uint64(head) != id || id+following >= p.end {
		return 0, 0, 0, damaged(fmt.Errorf("page %d is damaged", id))
	}
	for n := id; n <= id+following; n++ {
		if p.used[n] {
			return 0, 0, 0, damaged(fmt.Errorf("page %d is used twice", n))
		}
		p.used[n] = true
	}
	return binary.LittleEndian.Uint16(head[8:]), binary.LittleEndian.Uint16(head[10:]), (following + 1) * p.size, nil
}

// tree verifies a page and the pages below it.
func (p *pages) tree(id uint64, depth int) error {
	flags, count, length, err := p.page(id)
	if err != nil {
		return err
	}
	isBranch := flags == branchPage
	if depth > maxDepth || !isBranch && flags != leafPage || isBranch && count == 0 {
		return damaged(fmt.Errorf("page %d is damaged", id))
	}
	return p.elements(id*p.size, flags, count, length, depth)
}

// elements verifies the elements of a page that begins at a position.
func (p *pages) elements(begin uint64, flags, count uint16, length uint64, depth int) error {
	table := uint64(count) * pageElement
	if pageHeader+table > length {
		return damaged(fmt.Errorf("the page at %d has too many elements", begin))
	}
	elements, err := p.read(begin+pageHeader, table)
	if err != nil {
		return err
	}
	for n := range uint64(count) {
		e := elements[n*pageElement:][:pageElement]
		number := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(e[at:])) }
		position, keySize, valueSize, isBucket := number(4), number(8), number(12), number(0) == bucketElement
		isBranch := flags == branchPage
		if isBranch {
			position, keySize, valueSize, isBucket = number(0), number(4), 0, false
		}
		key := pageHeader + n*pageElement + position // a position is relative to the element
		if key+keySize+valueSize > length {
			return damaged(fmt.Errorf("an element of the page at %d is too long", begin))
		}
		switch {
		case isBranch:
			err = p.tree(binary.LittleEndian.Uint64(e[8:]), depth+1)
		case isBucket:
			err = p.bucket(begin+key+keySize, valueSize, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket verifies a bucket: its root is a page, or follows its header if it is small.
func (p *pages) bucket(at, length uint64, depth int) error {
	if length < bucketHeader || depth > maxDepth {
		return damaged(fmt.Errorf("the bucket at %d is damaged", at))
	}
	head, err := p.read(at, bucketHeader)
	if err != nil {
		return err
	}
	if root := binary.LittleEndian.Uint64(head); root != 0 {
		return p.tree(root, depth)
	}
	if length < bucketHeader+pageHeader {
		return damaged(fmt.Errorf("the bucket at %d is damaged", at))
	}
	inline, err := p.read(at+bucketHeader, pageHeader)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint16(inline[8:]) != leafPage {
		return damaged(fmt.Errorf("the bucket at %d is damaged", at))
	}
	return p.elements(at+bucketHeader, leafPage, binary.LittleEndian.Uint16(inline[10:]), length-bucketHeader, depth)
}

// freelist verifies the list of unused pages.
func (p *pages) freelist(id uint64) error {
	flags, short, length, err := p.page(id)
	if err != nil {
		return err
	}
	count, from := uint64(short), uint64(pageHeader)
	if short == countFollows {
		text, err := p.read(id*p.size+pageHeader, 8)
		if err != nil {
			return err
		}
		count, from = binary.LittleEndian.Uint64(text), pageHeader+8
	}
	if flags != freelistPage || count > p.end || from+8*count > length {
		return damaged(errors.New("the list of free pages is damaged"))
	}
	ids, err := p.read(id*p.size+from, 8*count)
	if err != nil {
		return err
	}
	for ; len(ids) > 0; ids = ids[8:] {
		free := binary.LittleEndian.Uint64(ids)
		if free < 2 || free >= p.end || p.used[free] {
			return damaged(errors.New("the list of free pages is damaged"))
		}
		p.used[free] = true
	}
	return nil
}
