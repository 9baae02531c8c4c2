package sometimes

import (
	"os"
	"testing"
)

// TestSometimes fails in every other run: it leaves a file that it removes the next time.
func TestSometimes(t *testing.T) {
	file := os.Getenv("SOMETIMES")
	if os.Remove(file) == nil {
		t.Log("seed=42")
		t.Error("something went wrong")
		return
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAlways(*testing.T) {}
