package collector

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// The records after a number are the remembered ones with a higher number, also across chunks.
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
				j.add(report.Record{Action: report.ActionDelete, Decision: "delete Background: owners absent: ReplicaSet.apps web"})
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

// Records are read as they were written, independently of earlier ones; and records of a cascade take little
// memory.
func TestRecordsAreKeptWhole(t *testing.T) {
	made := func(n int) report.Record {
		owner := report.Owner{Kind: "ReplicaSet.apps", Namespace: "shop", Name: "web", UID: "uid-web", Standing: "absent", Evidence: "deleted event", Revision: 7}
		r := report.Record{
			Number: uint64(n) + 1, Time: time.Unix(int64(n), 0).UTC(), Action: report.ActionDelete, Answer: report.AnswerDone, Policy: "Background",
			Object:   report.RecordedObject{Kind: "Pod", Namespace: "shop", Name: fmt.Sprint("web-", n), UID: report.UID(fmt.Sprint("uid-", n)), ResourceVersion: fmt.Sprint(n)},
			Decision: "delete Background: owners absent: ReplicaSet.apps web", Owners: []report.Owner{owner},
		}
		// After every eleventh comes a record that differs in one field.
		different := []func(){
			func() { r.Object.Kind = "Secret" },
			func() { r.Object.Namespace = "" },
			func() { r.Action = report.ActionDetach },
			func() { r.Decision = "" },
			func() { r.Policy = "" },
			func() { r.Owners = nil },
			func() { r.Owners[0].Revision = 8 },
			func() { r.MoreOwners = 3 },
			func() { r.Answer = report.AnswerUnknown },
			func() { r.Error = "timeout" },
		}
		if n%11 == 0 {
			different[n/11%len(different)]()
		}
		return r
	}
	const records = 2000
	j := &journal{size: records}
	for n := range records {
		j.add(made(n))
	}
	kept, bytes := j.after(0), 0
	for n, r := range kept {
		if want := made(n); !reflect.DeepEqual(r, want) {
			t.Fatalf("record %d is %+v, want %+v", n, r, want)
		}
	}
	for _, c := range j.chunks {
		bytes += len(c.lines)
	}
	if len(kept) != records || bytes > 200*records {
		t.Errorf("%d records take %d bytes", len(kept), bytes)
	}
	kept[0].Owners, kept[1].Owners[0].Name = nil, "changed"
	if again := j.after(0); !reflect.DeepEqual(again[2], made(2)) || !reflect.DeepEqual(again[1], made(1)) {
		t.Error("records share what a reader may change")
	}
}

// Long records take no more than 16 MB in JSON; the last ones are kept.
func TestRecordsAreBoundedInBytes(t *testing.T) {
	name := strings.Repeat("n", ownership.MaxName)
	for _, distinct := range []bool{false, true} {
		j := &journal{size: 10_000}
		for n := range 10_000 {
			r := report.Record{Object: report.RecordedObject{Name: name}, Decision: name}
			if distinct {
				r.Decision = fmt.Sprint(n, name)
			}
			for range 8 {
				r.Owners = append(r.Owners, report.Owner{Name: name[:253], UID: report.UID(name[:128])})
			}
			j.add(r)
		}
		records := j.after(0)
		text, err := json.Marshal(records)
		if err != nil {
			t.Fatal(err)
		}
		last := records[len(records)-1].Number
		if len(text) > journalBytes || len(text) < journalBytes/4 || last != 10_000 {
			t.Errorf("distinct: %t: %d records of %d bytes, the last one is %d", distinct, len(records), len(text), last)
		}
	}
}
