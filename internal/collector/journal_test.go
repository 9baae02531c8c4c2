package collector

import (
	"fmt"
	"testing"
)

// The records after one are those with a higher number, as far as they are remembered, also across chunks.
func TestRecordsAfterANumber(t *testing.T) {
	for _, c := range []struct {
		size, made  int
		after       uint64
		first, last uint64 // no records if last is zero
	}{
		{10, 5, 0, 1, 5},
		{10, 5, 3, 4, 5},
		{10, 5, 5, 0, 0},
		{10, 5, 9, 0, 0},
		{10, 25, 0, 16, 25},
		{10, 25, 20, 21, 25},
		{1000, 3000, 0, 2001, 3000},
		{1000, 3000, 2500, 2501, 3000},
		{0, 5, 0, 0, 0},
	} {
		t.Run(fmt.Sprintf("%d of %d after %d", c.size, c.made, c.after), func(t *testing.T) {
			j := &journal{size: c.size}
			for range c.made {
				j.add(Record{Action: ActionDelete, Decision: "delete Background: owners absent: ReplicaSet.apps web"})
			}
			records := j.after(c.after)
			var first, last uint64
			if n := len(records); n > 0 {
				first, last = records[0].Number, records[n-1].Number
			}
			if first != c.first || last != c.last || len(records) != int(last-first)+min(len(records), 1) {
				t.Errorf("%d records, from %d to %d, want from %d to %d", len(records), first, last, c.first, c.last)
			}
		})
	}
}
