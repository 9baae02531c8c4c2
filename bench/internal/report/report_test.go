package report

import (
	"strings"
	"testing"
)

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0123456: "0.0123", 1.0049: "1.00", 3.14159: "3.14", 99.95: "100.0", 123.4: "123", 3127: "3 130", 1234567: "1 230 000", -42.42: "-42.4",
	} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

// TestSectionIsReplaced: new values of a section replace the earlier ones with their machine, and other sections stay.
func TestSectionIsReplaced(t *testing.T) {
	dir := t.TempDir()
	var r *Results
	for _, measured := range []struct {
		date, section string
		values        []float64
	}{
		{"2026-11-20", "a", []float64{1, 1}},
		{"2026-11-21", "b", []float64{2}},
		{"2026-11-22", "a", []float64{3, 4, 5}},
	} {
		var err error
		if r, err = Open(dir, Machine{Date: measured.date, Cores: 2, Coppice: "coppice of " + measured.date}); err != nil {
			t.Fatal(err)
		}
		for run, value := range measured.values {
			if err := r.Add(Value{Section: measured.section, Run: run, Figure: "speed", Side: "ours", Unit: "1/s", Value: value}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Open(dir, Machine{Date: "2026-11-23"})
	if err != nil {
		t.Fatal(err)
	}
	sections := []Section{{"a", "A", "About a."}, {"b", "B", "About b."}, {"c", "C", "Not measured."}}
	for name, results := range map[string]*Results{"what measured": r, "what only reads": again} {
		var text strings.Builder
		if err := results.Markdown(&text, sections); err != nil {
			t.Fatal(err)
		}
		got := strings.ReplaceAll(text.String(), "\n", " ")
		for _, want := range []string{
			"## A  About a.  Measured on 2026-11-22: , 2 cores, 0 GiB, coppice of 2026-11-22.", "[raw/a.jsonl](raw/a.jsonl)", "| speed | 1/s | **4.00** (3.00–5.00) |",
			"Measured on 2026-11-21", "| speed | 1/s | 2.00 |",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the report has no %q:\n%s", name, want, text.String())
			}
		}
		if strings.Contains(got, "1.00") || strings.Contains(got, "## C") {
			t.Errorf("%s: the report has what was replaced, or what was not measured:\n%s", name, text.String())
		}
	}
}

// TestQuickRunsAreNotKept: the figures of a quick run never stand in the report of the project.
func TestQuickRunsAreNotKept(t *testing.T) {
	if _, err := Open(t.TempDir(), Machine{Quick: true}); err == nil {
		t.Error("the results of a quick run may be kept")
	}
}

func TestWrap(t *testing.T) {
	text := Wrap(strings.Repeat("word ", 100), "  ")
	for i, line := range strings.Split(text, "\n") {
		if len(line) > lineLength {
			t.Errorf("a line has %d columns", len(line))
		}
		if strings.HasPrefix(line, "  word") != (i > 0) {
			t.Errorf("line %d has the wrong indent: %q", i+1, line)
		}
	}
	if len(strings.Fields(text)) != 100 {
		t.Errorf("wrap changed the words: %s", text)
	}
}

// TestRequote: a quoted row follows its figure, also if another section has a figure of the same name, and if it was
// measured only once.
func TestRequote(t *testing.T) {
	earlier := "## A\n\n| | unit | ours |\n|---|---|---|\n| create | 1/s | **1** |\n| gone | s | **5** |\n## B\n\n| create | 1/s | 2 |\n"
	report := "## A\n\n| | unit | ours |\n|---|---|---|\n| create | 1/s | **3** |\n## B\n\n| create | 1/s | **4** |\n"
	document := "# X\n\n| | unit | ours |\n|---|---|---|\n| create | 1/s | 2 |\n| gone | s | **5** |\n| other | s | **2** |\n"
	want := "# X\n\n| | unit | ours |\n|---|---|---|\n| create | 1/s | **4** |\n| gone | s | **5** |\n| other | s | **2** |\n"
	if got := Requote(document, earlier, report); got != want {
		t.Errorf("Requote returned\n%s\nwant\n%s", got, want)
	}
}

// TestEmbed: a document has the table of the report, and keeps the rest.
func TestEmbed(t *testing.T) {
	document := "# Scale\n\n<!-- table: Large -->\nNot measured yet.\n<!-- end of the table -->\n\nText.\n<!-- table: Other -->\nold\n<!-- end of the table -->\n"
	report := "## Small\n\n| a | b |\n\n## Large\n\nAbout.\n\n| x | unit |\n|---|---|\n| y | s |\n"
	want := "# Scale\n\n<!-- table: Large -->\n\n| x | unit |\n|---|---|\n| y | s |\n\n<!-- end of the table -->\n\nText.\n<!-- table: Other -->\nold\n<!-- end of the table -->\n"
	once := Embed(document, report)
	if once != want {
		t.Errorf("Embed = %q, want %q", once, want)
	}
	if twice := Embed(once, report); twice != want {
		t.Errorf("Embed of its result = %q, want %q", twice, want)
	}
}
