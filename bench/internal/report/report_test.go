package report

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0123456: "0.0123", 1.0049: "1.00", 3.14159: "3.14", 99.95: "100.0", 123.4: "123", 3127: "3 130", 1234567: "1 230 000", -42.42: "-42.4",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
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

// TestSectionIsReplaced: new values of a section replace the earlier ones, other sections stay,
// and results of another machine are not mixed in.
func TestSectionIsReplaced(t *testing.T) {
	dir, m := t.TempDir(), Machine{Date: "2026-11-22", Cores: 2}
	add := func(v Value) *File {
		t.Helper()
		f, err := Open(dir, m, []string{v.Section})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Add(v); err != nil {
			t.Fatal(err)
		}
		return f
	}
	add(Value{Section: "a", Figure: "speed", Side: "ours", Unit: "1/s", Value: 1})
	add(Value{Section: "b", Figure: "size", Side: "ours", Unit: "MB", Value: 2})
	f := add(Value{Section: "a", Figure: "speed", Side: "ours", Unit: "1/s", Value: 3})
	var text strings.Builder
	if err := f.Markdown(&text, []Section{{"a", "A", "About a."}, {"b", "B", "About b."}, {"c", "C", "Not measured."}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| speed | 1/s | 3.00 |\n", "| size | MB | 2.00 |\n", "## A\n\nAbout a.\n", "[raw/2026-11-22.jsonl]"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "1.00") || strings.Contains(text.String(), "## C") {
		t.Errorf("the report has what was replaced, or what was not measured:\n%s", text.String())
	}
	if _, err := Open(dir, Machine{Date: "2026-11-22", Cores: 4}, nil); err == nil {
		t.Error("results of two machines may be in one file")
	}
}

// TestEarlierDays: of a section that was not measured again the report has the last values, with their day.
func TestEarlierDays(t *testing.T) {
	dir := t.TempDir()
	var f *File
	for _, day := range []struct {
		date   string
		quick  bool
		values map[string]float64
	}{
		{"2026-11-20", false, map[string]float64{"a": 1, "b": 2}},
		{"2026-11-21", false, map[string]float64{"b": 3}},
		{"2026-11-22", true, map[string]float64{"b": 4}},
		{"2026-11-23", false, map[string]float64{"c": 5}},
	} {
		var err error
		if f, err = Open(dir, Machine{Date: day.date, Quick: day.quick, Coppice: "coppice of " + day.date}, slices.Sorted(maps.Keys(day.values))); err != nil {
			t.Fatal(err)
		}
		for section, value := range day.values {
			if err := f.Add(Value{Section: section, Figure: section, Side: "ours", Unit: "s", Value: value}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var text strings.Builder
	if err := f.Markdown(&text, []Section{{"a", "A", "."}, {"b", "B", "."}, {"c", "C", "."}}); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(text.String(), "\n", " ")
	for _, want := range []string{
		"since 2026-11-20: , 0 cores, coppice of 2026-11-20", "[raw/2026-11-20.jsonl](raw/2026-11-20.jsonl)", "| a | s | 1.00 |",
		"since 2026-11-21", "| b | s | 3.00 |", "## C  .  | | unit | ours | |---|---|---| | c | s | 5.00 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report has no %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(got, "4.00") {
		t.Errorf("the report has the values of a quick run:\n%s", text.String())
	}
}

func TestWrap(t *testing.T) {
	text := wrap(strings.Repeat("word ", 100))
	for line := range strings.Lines(text) {
		if len(strings.TrimSuffix(line, "\n")) > lineLength {
			t.Errorf("a line has %d columns", len(line))
		}
	}
	if len(strings.Fields(text)) != 100 {
		t.Errorf("wrap changed the words: %s", text)
	}
}
