package plural

import "testing"

func TestOneIsNoPlural(t *testing.T) {
	for n, want := range map[int][2]string{0: {"0 more objects", "0 more objects are"}, 1: {"1 more object", "1 more object is"}, 2: {"2 more objects", "2 more objects are"}} {
		if got := [2]string{Count(n, "more object"), Are(n, "more object")}; got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
