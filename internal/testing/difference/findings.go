package difference

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/variation"
)

// Findings collects the differences of many experiments.
type Findings struct {
	// Whole: everything was played, so recorded differences that are not found are no more.
	Whole bool

	declared func(e variation.Experiment, difference string) string
	record   Record

	mu     sync.Mutex
	played map[string]int      // guarded by mu: experiments, by kind
	agreed map[Verdict]int     // guarded by mu: experiments with the same outcome
	found  map[string]*finding // guarded by mu: by the difference in general
	used   map[string]int      // guarded by mu: declared differences, by reason
}

// finding is a difference, and where it was seen.
type finding struct {
	count    int
	examples []string
}

// NewFindings returns findings without any. declared returns the reason why a difference, in the form of General, is
// permitted, or "".
func NewFindings(declared func(e variation.Experiment, difference string) string, record Record) *Findings {
	return &Findings{declared: declared, record: record, played: map[string]int{}, agreed: map[Verdict]int{}, found: map[string]*finding{}, used: map[string]int{}}
}

// Agree counts an experiment that has the same outcome on both sides.
func (f *Findings) Agree(kind string, v Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.played[kind]++
	f.agreed[v]++
}

// Note compares the outcomes of an experiment.
func (f *Findings) Note(e variation.Experiment, ours, theirs Outcome) {
	kind := e.Kind.GVK.Kind
	Reconcile(kind, ours.Object, theirs.Object)
	lines := Lines(ours, theirs)
	reasons := make([]string, len(lines))
	for i, line := range lines {
		reasons[i] = f.declared(e, General(kind, line))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.played[kind]++
	if alike := !slices.Contains(reasons, ""); alike {
		f.agreed[ours.Verdict()]++
	}
	for i, line := range lines {
		if reasons[i] != "" {
			f.used[reasons[i]]++
			continue
		}
		where := Key(kind, line)
		if f.found[where] == nil {
			f.found[where] = &finding{}
		}
		found := f.found[where]
		if found.count++; found.count <= 2 {
			found.examples = append(found.examples, line+"\n    in "+e.String())
		}
	}
}

// Report fails the test if there are differences that are neither declared nor recorded; and, if
// everything was played, if recorded ones are no more.
func (f *Findings) Report(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	lines := slices.SortedFunc(maps.Keys(f.found), func(a, b string) int {
		return cmp.Or(f.found[b].count-f.found[a].count, strings.Compare(a, b))
	})
	recorded := 0
	for _, line := range lines {
		if _, isRecorded := f.record.known[line]; isRecorded {
			recorded += f.found[line].count
			continue
		}
		t.Errorf("%d times: %s\n  %s", f.found[line].count, line, strings.Join(f.found[line].examples, "\n  "))
	}
	total := 0
	for _, n := range f.played {
		total += n
	}
	t.Logf("%d experiments; accepted alike %d, refused alike %d; recorded differences %d times; declared: %v",
		total, f.agreed[Accepted], f.agreed[Refused], recorded, f.used)
	if f.agreed[Accepted] == 0 || f.agreed[Refused] == 0 {
		t.Error("of experiments like these some are accepted and some are not")
	}
	if !f.Whole {
		return
	}
	for _, line := range slices.Sorted(maps.Keys(f.record.known)) {
		if f.found[line] == nil {
			t.Errorf("a recorded difference is no more: %s", line)
		}
	}
}

// Rewrite records the differences that were found, each with its first example. If not everything was played, recorded
// differences stay.
func (f *Findings) Rewrite() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]string{}
	if !f.Whole {
		maps.Copy(all, f.record.known)
	}
	for line, found := range f.found {
		all[line] = strings.Join(strings.Fields(found.examples[0]), " ")
	}
	f.record.known = all
	return f.record.write()
}

// Progress returns how many experiments were played so far, and how many sorts of differences they show that are not
// declared.
func (f *Findings) Progress() (experiments, sorts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.played {
		experiments += n
	}
	return experiments, len(f.found)
}

// Played returns the number of experiments of each kind.
func (f *Findings) Played() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.played)
}

// Record is a file with the differences that are to be mended, one on each line. The indented line after a difference
// is an example of it.
type Record struct {
	file, header string
	known        map[string]string // examples, by difference
}

// ReadRecord reads a record.
func ReadRecord(file string) (Record, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Record{}, err
	}
	r := Record{file: file, known: map[string]string{}}
	difference := ""
	for line := range strings.Lines(string(data)) {
		switch bare := strings.TrimRight(line, "\n"); {
		case strings.HasPrefix(bare, "#"):
			r.header += line
		case strings.HasPrefix(bare, " "):
			r.known[difference] = strings.TrimSpace(bare)
		case bare != "":
			difference = bare
			r.known[difference] = ""
		}
	}
	return r, nil
}

func (r Record) write() error {
	var text strings.Builder
	text.WriteString(r.header)
	for _, difference := range slices.Sorted(maps.Keys(r.known)) {
		text.WriteString(difference + "\n")
		if example := r.known[difference]; example != "" {
			text.WriteString("  " + example + "\n")
		}
	}
	if err := os.WriteFile(r.file, []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("record the differences: %w", err)
	}
	return nil
}
