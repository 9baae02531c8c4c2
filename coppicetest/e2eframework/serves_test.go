package e2eframework

import "testing"

func TestServes(t *testing.T) {
	for _, test := range []struct {
		wanted string
		want   bool
	}{
		{"", true},
		{"v1.37", true},
		{"1.37.2", true},
		{"v1.37.2+coppice-0.1.0", true},
		{"v1.3", false},
		{"v1.37.20", false},
		{"v1.36", false},
	} {
		if got := serves("v1.37.2+coppice-0.1.0", test.wanted); got != test.want {
			t.Errorf("wanted %q: got %v, want %v", test.wanted, got, test.want)
		}
	}
}
