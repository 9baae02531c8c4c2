package deployment

import (
	"math"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

const largest = math.MaxInt32

// sizes plans a step for a deployment, and returns the sizes of its sets, the oldest first. The sets with older templates
// have these sizes and as many available pods.
func sizes(t *testing.T, w *rolloutTest, older ...int32) []int32 {
	t.Helper()
	for i, size := range older {
		w.image(string(rune('a' + i)))
		w.step()
		set := w.sets[i]
		*set.Spec.Replicas, set.Status = size, appsv1.ReplicaSetStatus{Replicas: size, ReadyReplicas: size, AvailableReplicas: size, ObservedGeneration: set.Generation}
	}
	w.image("new")
	w.step()
	var all []int32
	for _, set := range w.sets {
		all = append(all, *set.Spec.Replicas)
	}
	return all
}

// The size of a deployment and the limits of its update have 31 bits, their sums have more.
func TestLargestSizesDoNotOverflow(t *testing.T) {
	for name, test := range map[string]struct {
		size               int32
		surge, unavailable string
		older, want        []int32
	}{
		"a new one":                       {largest, "25%", "25%", nil, []int32{largest}},
		"a new one with the most surge":   {largest, "2147483647", "2147483647", nil, []int32{largest}},
		"beside the full size":            {largest, "25%", "0", []int32{largest}, []int32{largest, 0}},
		"all at once":                     {10, "2147483647", "0", []int32{10}, []int32{10, 10}},
		"a percentage of 31 bits":         {10, "2147483647%", "0", []int32{10}, []int32{10, 10}},
		"a percentage of 63 bits":         {10, "9223372036854775807%", "0", []int32{10}, []int32{10, 10}},
		"both limits at their most":       {10, "9223372036854775807%", "2147483647", []int32{10}, []int32{10, 10}},
		"beside more than 31 bits of old": {10, "0", "0", []int32{largest, largest}, []int32{largest, largest, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got := sizes(t, newRolloutTest(t, test.size, test.surge, test.unavailable), test.older...)
			if len(got) != len(test.want) {
				t.Fatalf("sizes %v, want %v", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("sizes %v, want %v", got, test.want)
				}
			}
		})
	}
}

// Scaling in the middle of a rollout, with sizes and annotations at their limits, leaves each set with a size in the range.
func TestLargestProportionsDoNotOverflow(t *testing.T) {
	for name, test := range map[string]struct {
		size      int32
		max       string // the annotation about the size before
		old, next int32
	}{
		"to the largest":                {largest, "10", 5, 5},
		"from the largest":              {10, "2147483647", largest - 5, 5},
		"from more than the largest":    {10, "2147483647", largest, largest},
		"a size before that was small":  {largest, "1", largest - 1, 1},
		"a size before that is no size": {10, "-1", 8, 8},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRolloutTest(t, 10, "25%", "0")
			w.image("a")
			w.step()
			w.image("b")
			w.step()
			for i, size := range []int32{test.old, test.next} {
				*w.sets[i].Spec.Replicas = size
				w.sets[i].Annotations[annotationDesired], w.sets[i].Annotations[annotationMax] = "7", test.max
			}
			w.resize(test.size)
			w.step()
			var whole int64
			for _, set := range w.sets {
				if n := *set.Spec.Replicas; n < 0 || n > test.size+min(3, largest-test.size) {
					t.Errorf("a set has the size %d, of %d", n, test.size)
				}
				whole += int64(*set.Spec.Replicas)
			}
			if want := min(int64(test.size)+3, largest); whole != want {
				t.Errorf("the sets have %d pods, want %d", whole, want)
			}
		})
	}
}
