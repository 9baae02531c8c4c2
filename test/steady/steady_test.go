package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == burn { // startBurners starts this binary
		burnUntilEOF()
		return
	}
	os.Exit(m.Run())
}

func TestFailuresAreReportedWithTheirSeeds(t *testing.T) {
	t.Setenv("SOMETIMES", filepath.Join(t.TempDir(), "file"))
	var out strings.Builder
	outputs := t.TempDir()
	err := run(t.Context(), []string{"-runs", "4", "-unraced", ".", "-burners", "1", "-modules", "testdata/sometimes", "-o", outputs}, &out)
	if err == nil || !strings.HasPrefix(err.Error(), "2 runs failed") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{
		`(?m)^FAIL example.com/sometimes, run 2, beside a load: exit status 1$`,
		`(?m)^FAIL example.com/sometimes, run 4, beside a load, on one processor: exit status 1$`,
		`order: -test.shuffle=\d+\n`,
		`TestSometimes failed\n.*seed=42\n.*something went wrong\n`,
		`(?m)^example.com/sometimes: 2 of 4 runs failed, \d+s \(package 1 of 1\)$`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("the report does not match %s:\n%s", want, &out)
		}
	}
	if files, err := os.ReadDir(outputs); err != nil || len(files) != 2 {
		t.Errorf("outputs of failed runs: %v %v", files, err)
	}
}

func TestSteadyTestsPass(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), []string{"-runs", "2", "-unraced", ".", "-burners", "0", "-modules", "testdata/sometimes", "-run", "TestAlways", "-o", t.TempDir()}, &out)
	if err != nil || !strings.HasSuffix(out.String(), "no failure in 2 runs of each of 1 package\n") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestRunsAreNotMadeAgain(t *testing.T) {
	t.Setenv("SOMETIMES", filepath.Join(t.TempDir(), "file"))
	record := filepath.Join(t.TempDir(), "steady", "record")
	campaign := func(runs string, more ...string) string {
		var out strings.Builder
		_ = run(t.Context(), append([]string{"-runs", runs, "-unraced", ".", "-burners", "0", "-modules", "testdata/sometimes", "-record", record, "-o", t.TempDir()}, more...), &out)
		return out.String()
	}
	for _, step := range []struct{ got, want string }{
		{campaign("2"), ": 1 of 2 runs failed, "},
		{campaign("2"), ": 1 of 2 runs failed, 2 of them made before, "},
		{campaign("4"), ": 2 of 4 runs failed, 2 of them made before, "},
		{campaign("2", "-run", "TestAlways"), "no failure in 2 runs "},
	} {
		if !strings.Contains(step.got, step.want) {
			t.Errorf("the report does not say %q:\n%s", step.want, step.got)
		}
	}
}

func TestSummaryOfATestThatPanics(t *testing.T) {
	got := summary("-test.shuffle 7\n=== RUN   TestA\npanic: no [recovered]\n\ngoroutine 1 [running]:\n")
	if !strings.Contains(got, "-test.shuffle=7") || !strings.Contains(got, "panic: no") {
		t.Errorf("summary:\n%s", got)
	}
}

func TestTestsThatAreOnceLongAreNamed(t *testing.T) {
	took := durations{}
	for n, seconds := range []string{"2.90", "141.30", "3.10"} {
		took.add("\x16=== RUN   TestA\n\x16--- PASS: TestA ("+seconds+"s)\n\x16--- PASS: TestAlwaysLong (100.00s)\n\x16--- PASS: TestShort (0.00s)\nPASS\n",
			attempt{number: n + 1, onOneProcessor: n == 1})
	}
	want := "LONG TestA took 2m21.3s in run 2, on one processor, and 3.1s in most: it may wait for something that need not happen\n"
	if got := took.long(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
