package sections

import (
	"slices"
	"testing"
)

func TestCompareTakesRatiosWithinTheRun(t *testing.T) {
	var b Bench
	for _, v := range []struct {
		side, figure, unit string
		value              float64
	}{
		{coppiceUp, "create", "pods/s", 100},
		{coppiceUp, "create, processor time of each", "ms", 5},
		{coppiceUp, "delete", "pods/s", 30},
		{coppiceUp, "memory", "MB", 7},
		{coppiceUp, "create", "pods/s", 90},
		{coppiceUp, "of ours only", "pods/s", 1},
		{kwok, "create", "pods/s", 50},
		{kwok, "create, processor time of each", "ms", 20},
		{kwok, "delete", "pods/s", 60},
		{kwok, "memory", "MB", 7},
		{kwok, "create", "pods/s", 30},
	} {
		b.add(v.side, v.figure, v.unit, v.value)
	}
	b.compare(coppiceUp, kwok)
	for figure, want := range map[string][]float64{
		"create":                         {2, 3},
		"create, processor time of each": {0.25},
		"delete":                         {0.5},
		"memory":                         nil,
		"of ours only":                   nil,
	} {
		if got := b.values(coppiceUp, figure+", compared with "+kwok); !slices.Equal(got, want) {
			t.Errorf("%s: the ratios are %v, want %v", figure, got, want)
		}
	}
}
