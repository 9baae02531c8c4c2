package cli

import (
	"io"
	"testing"
)

// TestStopWithInput checks that a command ends with its input only if the flag is set.
func TestStopWithInput(t *testing.T) {
	input, end := io.Pipe()
	follows, cancel := inputFlag(true).follow(t.Context(), input)
	defer cancel()
	ignores, cancel := inputFlag(false).follow(t.Context(), input)
	defer cancel()
	if follows.Err() != nil {
		t.Fatal("ended before its input")
	}
	if err := end.Close(); err != nil {
		t.Fatal(err)
	}
	<-follows.Done()
	if ignores.Err() != nil {
		t.Error("ended with an input that it was not to follow")
	}
}
