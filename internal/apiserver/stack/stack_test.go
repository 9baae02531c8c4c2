package stack

import "testing"

// deep uses as much stack as a request does, in as many frames.
//
//go:noinline
func deep(n int) (sum int) {
	var frame [256]byte
	frame[n] = byte(n)
	if n > 0 {
		sum = deep(n - 1)
	}
	return sum + int(frame[n])
}

const frames = 60 // of 300 bytes or so

func BenchmarkGoroutine(b *testing.B) {
	for name, begin := range map[string]func(){
		"as it comes": func() {},
		"grown first": func() { Grow() },
	} {
		b.Run(name, func(b *testing.B) {
			done := make(chan int)
			for b.Loop() {
				go func() {
					begin()
					done <- deep(frames)
				}()
				<-done
			}
		})
	}
}

func TestGrowAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Grow() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
