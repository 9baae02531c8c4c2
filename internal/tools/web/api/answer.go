package api

import (
	"fmt"
	"io"
	"net/http"

	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// Every answer has a bound in bytes. An answer that exceeds it is refused with 413, before any of it is written: a part
// of a graph or of a preview would look like the whole, and backups are made from previews. Lists are encoded item by
// item. An answer is kept until its size is known. If all answers together would take too much memory, a long one is
// encoded twice instead: to count the bytes, and to send them. So the memory does not grow with the answers.
const (
	// mostAnswer is the largest answer, in bytes.
	mostAnswer = 64 << 20
	// block is the part of an answer that is always kept, and the unit of the reserve, in bytes.
	block = 1 << 20
	// mostReserved bounds the blocks that all answers together keep beyond the first block of each.
	mostReserved = 64
)

// reserve has the blocks of memory that are free for long answers. It is safe for concurrent use.
type reserve struct{ free chan struct{} }

func newReserve() *reserve {
	r := &reserve{make(chan struct{}, mostReserved)}
	for range mostReserved {
		r.free <- struct{}{}
	}
	return r
}

// take takes a block, and reports false if none is free. It does not wait.
func (r *reserve) take() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.free:
		return true
	default:
		return false
	}
}

// give gives blocks back.
func (r *reserve) give(blocks int) {
	for range blocks {
		r.free <- struct{}{}
	}
}

// size is the size of an answer in bytes. Its Write counts.
type size int

// Write implements io.Writer.
func (s *size) Write(p []byte) (int, error) {
	if *s += size(len(p)); *s > mostAnswer {
		return 0, errTooLarge
	}
	return len(p), nil
}

var errTooLarge = &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf(
	"the answer would have more than %d MiB: name fewer objects, or objects with fewer dependents; coppice with --address=none reads the cluster itself, without a bound", mostAnswer>>20)}

// spool keeps an answer, as long as the reserve has blocks for it, and counts its bytes.
type spool struct {
	size
	reserve *reserve
	kept    [][]byte // nil if the answer is not kept
	isCut   bool     // the reserve had no block
}

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	if n, err := s.size.Write(p); err != nil {
		return n, err
	}
	for rest := p; len(rest) > 0 && !s.isCut; {
		if len(s.kept) == 0 || len(s.kept[len(s.kept)-1]) == block {
			s.extend()
			continue
		}
		last := &s.kept[len(s.kept)-1]
		n := min(len(rest), block-len(*last))
		*last, rest = append(*last, rest[:n]...), rest[n:]
	}
	return len(p), nil
}

// extend adds a block. If the reserve has none, it drops the others.
func (s *spool) extend() {
	switch {
	case len(s.kept) == 0:
		s.kept = append(s.kept, nil) // small answers take less than a block
	case s.reserve.take():
		s.kept = append(s.kept, make([]byte, 0, block))
	default:
		s.drop()
		s.isCut = true
	}
}

// drop gives the blocks back.
func (s *spool) drop() {
	s.reserve.give(max(0, len(s.kept)-1))
	s.kept = nil
}

// write answers with the output of a function, which it calls once or twice. Characters that control a terminal are
// escaped, for callers who use curl. In JSON, the escapes decode to the same characters.
func (h *handler) write(w http.ResponseWriter, contentType string, answer func(io.Writer) error) error {
	produce := func(out io.Writer) error {
		shown := terminal.NewWriter(out)
		if err := answer(shown); err != nil {
			return err
		}
		return shown.Close()
	}
	first := &spool{reserve: h.reserve}
	defer first.drop()
	if err := produce(first); err != nil {
		return err
	}
	w.Header().Set("Content-Type", contentType)
	if !first.isCut {
		for _, part := range first.kept {
			if _, err := w.Write(part); err != nil {
				break // the caller is gone
			}
		}
		return nil
	}
	if err := produce(w); err != nil {
		panic(http.ErrAbortHandler) // the caller is gone; a part must not look like a whole answer
	}
	return nil
}

func (h *handler) writeJSON(w http.ResponseWriter, value any) error {
	return h.write(w, "application/json", func(out io.Writer) error { return encode(out, value) })
}
