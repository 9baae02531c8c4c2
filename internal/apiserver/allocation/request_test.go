package allocation

import (
	"errors"
	"testing"
)

// TestCountOnce checks that the attempts of a request count one change once, and other changes, requests and failures again.
func TestCountOnce(t *testing.T) {
	one, other, none := WithRequest(t.Context()), WithRequest(t.Context()), t.Context()
	refused := errors.New("refused")
	counted := 0
	for i, step := range []struct {
		in     func() error
		counts bool
	}{
		{func() error { return CountOnce(one, "a", func() error { counted++; return refused }) }, true},
		{func() error { return CountOnce(one, "a", func() error { counted++; return nil }) }, true},
		{func() error { return CountOnce(one, "a", func() error { counted++; return refused }) }, false},
		{func() error { return CountOnce(one, "b", func() error { counted++; return nil }) }, true},
		{func() error { return CountOnce(other, "b", func() error { counted++; return nil }) }, true},
		{func() error { return CountOnce(none, "b", func() error { counted++; return nil }) }, true},
		{func() error { return CountOnce(none, "b", func() error { counted++; return nil }) }, true},
	} {
		before := counted
		err := step.in()
		if got := counted > before; got != step.counts || (err != nil) != (i == 0) {
			t.Errorf("step %d: counted %t, %v", i, got, err)
		}
	}
}
