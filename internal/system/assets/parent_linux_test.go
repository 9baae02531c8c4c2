package assets

import (
	"os"
	"os/exec"
	"testing"
)

// TestIsElsewhereComparesWorkingDirectories checks that isElsewhere detects another process by its working
// directory, and returns false for a process that does not exist.
func TestIsElsewhereComparesWorkingDirectories(t *testing.T) {
	own, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{own: false, t.TempDir(): true} {
		process := exec.Command("sleep", "60")
		process.Dir = dir
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		if got := isElsewhere(process.Process.Pid); got != want {
			t.Errorf("in %s, while this one is in %s: %t", dir, own, got)
		}
		_ = process.Process.Kill()
		_ = process.Wait()
		if isElsewhere(process.Process.Pid) {
			t.Error("a process that has ended is elsewhere")
		}
	}
}
