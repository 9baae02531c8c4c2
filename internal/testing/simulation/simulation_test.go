package simulation

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var (
	seedFlag     = flag.Uint64("sim.seed", 0, "run this seed only, and print its history")
	traceFlag    = flag.String("sim.trace", "", "run the schedule in this file only, and print its history")
	seedsFlag    = flag.Uint64("sim.seeds", 20_000, "how many seeds to run at most; 0: no bound")
	firstFlag    = flag.Uint64("sim.first", 1, "the first seed")
	durationFlag = flag.Duration("sim.duration", 20*time.Second, "how long to run seeds at most; 0: no bound")
	stepsFlag    = flag.Int("sim.steps", DefaultSteps, "steps of a schedule, on average")
	statesFlag   = flag.Bool("sim.states", false, "count the states of the world that were seen")
)

// TestSeeds runs random schedules.
func TestSeeds(t *testing.T) {
	switch {
	case *traceFlag != "":
		text, err := os.ReadFile(*traceFlag)
		if err != nil {
			t.Fatal(err)
		}
		replay(t, string(text))
		return
	case *seedFlag != 0:
		result := Random(t.Context(), *seedFlag, *stepsFlag, Options{History: true})
		fmt.Println(result.Schedule)
		fmt.Println(result.History)
		if result.Violation != nil {
			t.Fatal(Report(t.Context(), *seedFlag, result))
		}
		return
	}
	c := &campaign{t: t, states: make(map[uint64]struct{})}
	c.run()
	t.Log(c)
}

func replay(t *testing.T, text string) {
	t.Helper()
	schedule, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	result := Run(t.Context(), schedule, Options{History: true})
	fmt.Println(result.History)
	if result.Violation != nil {
		t.Error(result.Violation)
	}
}

// campaign runs seeds on all processors until one is violated, or time is up.
type campaign struct {
	t    *testing.T
	next atomic.Uint64 // seeds handed out

	mu                            sync.Mutex
	ran, steps, requests, crashes int // guarded by mu, and so is all below
	states                        map[uint64]struct{}
	failed                        bool
	elapsed, processor            time.Duration
}

func (c *campaign) run() {
	began, busy := time.Now(), processorTime()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				n := c.next.Add(1) - 1
				if *seedsFlag > 0 && n >= *seedsFlag || *durationFlag > 0 && time.Since(began) > *durationFlag {
					return
				}
				if !c.seed(*firstFlag + n) {
					return
				}
			}
		})
	}
	workers.Wait()
	c.elapsed, c.processor = time.Since(began), processorTime()-busy
}

// seed runs one seed; false when there is no need for more.
func (c *campaign) seed(seed uint64) bool {
	result := Random(c.t.Context(), seed, *stepsFlag, Options{States: *statesFlag})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran++
	c.steps += len(result.Schedule.Steps)
	c.requests += result.Requests
	c.crashes += result.Crashes
	for _, state := range result.States {
		c.states[state] = struct{}{}
	}
	if result.Violation != nil && !c.failed {
		c.failed = true
		c.t.Error(Report(c.t.Context(), seed, result))
	}
	return !c.failed
}

// String is the figures of a campaign.
func (c *campaign) String() string {
	n := float64(c.ran)
	text := fmt.Sprintf("%d seeds from %d (-sim.first, -sim.seeds, -sim.duration, -sim.steps): %.0f schedules/s, %.0f per second of a processor; "+
		"a schedule has %.1f steps and %.1f requests; %d crashes", c.ran, *firstFlag, n/c.elapsed.Seconds(), n/c.processor.Seconds(),
		float64(c.steps)/n, float64(c.requests)/n, c.crashes)
	if *statesFlag {
		text += fmt.Sprintf("; %d states", len(c.states))
	}
	return text
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
