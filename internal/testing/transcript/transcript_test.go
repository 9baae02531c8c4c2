package transcript

import (
	"fmt"
	"testing"
)

func TestTranscript(t *testing.T) {
	for limit, want := range map[int]string{0: "one two three ", 8: "o three ", 100: "one two three "} {
		kept := &Transcript{Limit: limit}
		for _, word := range []string{"one", "two", "three"} {
			if _, err := fmt.Fprintf(kept, "%s ", word); err != nil {
				t.Fatal(err)
			}
		}
		if kept.String() != want {
			t.Errorf("limit %d: %q, want %q", limit, kept, want)
		}
	}
}
