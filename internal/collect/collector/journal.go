package collector

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
)

const (
	// chunkBytes is the size of the pieces in which records are kept.
	chunkBytes = 16 << 10
	// journalBytes bounds the kept records by their length in JSON. The oldest records are dropped.
	journalBytes = 16 << 20
)

// journal keeps the last records, encoded. Each record has a dozen strings. Ten thousand records with
// their strings would pin heap pages from the time of the collection, long after it.
type journal struct {
	size int // of records; 0: none are kept

	mu       sync.Mutex
	chunks   []chunk       // guarded by mu, like all fields below; the oldest first
	previous report.Record // the last one in the last chunk
	kept     int           // records in all chunks; the oldest chunk may have more than are needed
	bytes    int           // of the records in all chunks
	count    uint64        // of records ever made
}

// chunk has some records, one a line. A record that equals the one before except for the object, like most
// records of a cascade, has only the differences. Written lines never change.
type chunk struct {
	lines   []byte
	records int
	bytes   int // of the records in JSON
}

// different has the fields that differ between records that say the same of several objects.
type different struct {
	Time            time.Time  `json:"t"`
	Name            string     `json:"n"`
	UID             report.UID `json:"u"`
	ResourceVersion string     `json:"v"`
}

// differentPrefix begins the line of such a record.
const differentPrefix = "+"

// like returns the record that says the same as r of another object. It has its own copy of the owners: readers
// may change it.
func like(r report.Record, d different) report.Record {
	r.Time, r.Object.Name, r.Object.UID, r.Object.ResourceVersion = d.Time, d.Name, d.UID, d.ResourceVersion
	r.Owners = slices.Clone(r.Owners)
	return r
}

// isEqual reports whether two records are equal except for the object.
func isEqual(r, as *report.Record) bool {
	return r.Object.Kind == as.Object.Kind && r.Object.Namespace == as.Object.Namespace &&
		r.Object.NamespaceUID == as.Object.NamespaceUID &&
		r.Action == as.Action && r.Decision == as.Decision && r.Policy == as.Policy &&
		slices.Equal(r.Owners, as.Owners) && r.MoreOwners == as.MoreOwners &&
		r.Answer == as.Answer && r.Error == as.Error
}

// add keeps a record, and counts it.
func (j *journal) add(r report.Record) {
	if j.size <= 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	line := encode(r, j.previous)
	if n := len(j.chunks); n == 0 || cap(j.chunks[n-1].lines)-len(j.chunks[n-1].lines) < len(line) {
		line = encode(r, report.Record{}) // the chunk before may be dropped
		j.chunks = append(j.chunks, chunk{lines: make([]byte, 0, max(chunkBytes, len(line)))})
	}
	if line == nil {
		return // there is nothing in a record that cannot be encoded
	}
	last := &j.chunks[len(j.chunks)-1]
	last.lines = append(last.lines, line...)
	last.records++
	size := bytesOf(&r)
	last.bytes += size
	j.previous = r
	j.kept++
	j.bytes += size
	j.count++
	for len(j.chunks) > 1 && (j.kept-j.chunks[0].records >= j.size || j.bytes > journalBytes) {
		oldest := j.chunks[0]
		j.chunks = slices.Delete(j.chunks, 0, 1)
		j.kept -= oldest.records
		j.bytes -= oldest.bytes
	}
}

// bytesOf returns the approximate length of a record as JSON.
func bytesOf(r *report.Record) int {
	const fields, ownerFields = 250, 160 // the names of the fields, times and numbers
	n := fields + len(r.Object.Kind) + len(r.Object.Namespace) + len(r.Object.NamespaceUID) + len(r.Object.Name) + len(r.Object.UID) + len(r.Decision) + len(r.Error)
	for i := range r.Owners {
		o := &r.Owners[i]
		n += ownerFields + len(o.Kind) + len(o.Namespace) + len(o.Name) + len(o.UID)
	}
	return n
}

// encode returns the line of a record, which follows another; nil if it cannot be encoded.
func encode(r, previous report.Record) []byte {
	var prefix string
	var content any = r
	if isEqual(&r, &previous) {
		prefix, content = differentPrefix, different{r.Time, r.Object.Name, r.Object.UID, r.Object.ResourceVersion}
	}
	line, err := json.Marshal(content)
	if err != nil {
		return nil
	}
	return append(append([]byte(prefix), line...), '\n')
}

// decode returns the record of a line, which follows another.
func decode(line []byte, previous report.Record) (report.Record, error) {
	rest, isDifferent := bytes.CutPrefix(line, []byte(differentPrefix))
	if isDifferent {
		var d different
		err := json.Unmarshal(rest, &d)
		return like(previous, d), err
	}
	var r report.Record
	err := json.Unmarshal(line, &r)
	return r, err
}

// after returns the kept records with a number above last, the oldest first.
func (j *journal) after(last uint64) []report.Record {
	j.mu.Lock()
	chunks, kept, count := slices.Clone(j.chunks), j.kept, j.count
	j.mu.Unlock()
	number := count - uint64(kept)
	oldest := max(last, count-min(count, uint64(max(0, j.size)))) // older records are not requested, or too many
	records := make([]report.Record, 0, count-min(count, oldest))
	for _, c := range chunks {
		if number+uint64(c.records) <= oldest {
			number += uint64(c.records)
			continue // none of them needs to be decoded
		}
		var r report.Record
		for line := range bytes.Lines(c.lines) {
			number++
			next, err := decode(line, r)
			if err != nil {
				continue // it was encoded from a record
			}
			if r = next; number > oldest {
				r.Number = number
				records = append(records, r)
			}
		}
	}
	return records
}

// Records returns the last decisions that changed an object, in the order in which the
// server answered.
func (c *Collector) Records() []report.Record { return c.journal.after(0) }

// RecordsAfter returns the records with a higher number. It is cheap if there are no new records.
func (c *Collector) RecordsAfter(number uint64) []report.Record { return c.journal.after(number) }
