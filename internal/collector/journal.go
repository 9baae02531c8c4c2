package collector

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"
)

// chunkBytes is the size of the pieces in which records are kept.
const chunkBytes = 16 << 10

// journal keeps the last records, encoded. A record has a dozen strings. Ten thousand of them would
// hold as many pages of the heap as there were when the objects were collected, long after.
type journal struct {
	size int // of records; 0: none are kept

	mu     sync.Mutex
	chunks []chunk // guarded by mu, like all fields below; the oldest first
	kept   int     // records in all chunks: those of the oldest chunk may be more than is needed
	count  uint64  // of records ever made
}

// chunk has some records, one a line. What was written is not changed any more.
type chunk struct {
	lines   []byte
	records int
}

// add keeps a record, and counts it.
func (j *journal) add(r Record) {
	if j.size <= 0 {
		return
	}
	line, err := json.Marshal(r)
	if err != nil {
		return // there is nothing in a record that cannot be encoded
	}
	line = append(line, '\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.chunks); n == 0 || cap(j.chunks[n-1].lines)-len(j.chunks[n-1].lines) < len(line) {
		j.chunks = append(j.chunks, chunk{lines: make([]byte, 0, max(chunkBytes, len(line)))})
	}
	last := &j.chunks[len(j.chunks)-1]
	last.lines = append(last.lines, line...)
	last.records++
	j.kept++
	j.count++
	if oldest := j.chunks[0].records; j.kept-oldest >= j.size {
		j.chunks = slices.Delete(j.chunks, 0, 1)
		j.kept -= oldest
	}
}

// after returns those of the last records that have a higher number, the oldest first.
func (j *journal) after(last uint64) []Record {
	j.mu.Lock()
	chunks, kept, count := slices.Clone(j.chunks), j.kept, j.count
	j.mu.Unlock()
	number := count - uint64(kept)
	oldest := max(last, count-min(count, uint64(max(0, j.size)))) // those up to it are not asked for, or too many
	records := make([]Record, 0, count-min(count, oldest))
	for _, c := range chunks {
		if number+uint64(c.records) <= oldest {
			number += uint64(c.records)
			continue // none of them needs to be decoded
		}
		for line := range bytes.Lines(c.lines) {
			var r Record
			if number++; number <= oldest {
				continue
			}
			if err := json.Unmarshal(line, &r); err != nil {
				continue // it was encoded from a record
			}
			r.Number = number
			records = append(records, r)
		}
	}
	return records
}

// Records returns the last decisions that changed an object, in the order in which the
// server answered.
func (c *Collector) Records() []Record { return c.journal.after(0) }

// RecordsAfter returns those records that have a higher number. It costs little if there are none.
func (c *Collector) RecordsAfter(number uint64) []Record { return c.journal.after(number) }
