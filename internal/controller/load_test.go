package controller

import (
	"fmt"
	"testing"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// A key is in work from the moment in which it leaves the queue until its end is counted: a reset that finds the controller
// idle in between ends in the middle of its work.
func TestAKeyIsInWorkOrWaiting(t *testing.T) {
	var l load
	key := cache.ObjectName{Namespace: "shop", Name: "web"}
	queue := l.queue(clock.RealClock{})
	defer queue.ShutDown()
	for _, step := range []struct {
		name string
		do   func()
		want string // in work, waiting
	}{
		{"at the start", func() {}, "0 0"},
		{"added", func() { queue.Add(key) }, "0 1"},
		{"taken", func() { queue.Get() }, "1 0"},
		{"added again meanwhile", func() { queue.Add(key) }, "1 0"},
		{"done", func() { queue.Done(key) }, "1 1"},
		{"its end is counted", func() { l.ended.Add(1) }, "0 1"},
		{"taken again", func() { queue.Get() }, "1 0"},
		{"done again", func() { queue.Done(key); l.ended.Add(1) }, "0 0"},
	} {
		step.do()
		inWork, waiting := l.numbers()
		if got := fmt.Sprint(inWork, waiting); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}
