package daemonset

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// The largest limits of an update are as good as none.
func TestLargestLimits(t *testing.T) {
	for _, limit := range []string{"2147483647", "100%"} {
		most := intstr.Parse(limit)
		p := Decide(Set{Hash: "B", MaxSurge: &most}, read(t, "a: A+; b: A+; c:"), now)
		if slices.Sort(p.Create); !slices.Equal(p.Create, []string{"a", "b", "c"}) || len(p.Delete) > 0 {
			t.Errorf("a surge of %s: pods on %v, %d are deleted", limit, p.Create, len(p.Delete))
		}
		p = Decide(Set{Hash: "B", MaxUnavailable: &most}, read(t, "a: A+; b: A+; c:"), now)
		if !slices.Equal(p.Create, []string{"c"}) || len(p.Delete) != 2 {
			t.Errorf("%s unavailable: pods on %v, %d are deleted", limit, p.Create, len(p.Delete))
		}
	}
}
