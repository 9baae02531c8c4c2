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
	firstFlag    = flag.Uint64("sim.first", 0, "the first seed; 0: some from 1, then those of the day")
	durationFlag = flag.Duration("sim.duration", 20*time.Second, "how long to run seeds at most, after those that always run; 0: no bound")
	stepsFlag    = flag.Int("sim.steps", DefaultSteps, "steps of a schedule, on average")
	statesFlag   = flag.Bool("sim.states", false, "count the states of the cluster that were seen")
)

const (
	// sameSeeds is the number of seeds from 1 that every run explores, so that runs can be
	// compared.
	sameSeeds = 1000
	// daySeeds is the least number of seeds of the day that a run explores, however long it
	// takes.
	daySeeds = 1000
)

// seedOfTheDay returns the first of the seeds of this day's runs. Other days have other seeds.
func seedOfTheDay(now time.Time) uint64 {
	return uint64(now.Unix()/int64(24*time.Hour/time.Second)) * 10_000_000
}

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
	c := &campaign{t: t, today: seedOfTheDay(time.Now()), states: make(map[uint64]struct{})}
	c.run()
	t.Log(c)
	if !t.Failed() && c.ran < c.least() {
		t.Errorf("%d schedules were explored, want %d at least", c.ran, c.least())
	}
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
	t     *testing.T
	today uint64        // the first seed of the day
	next  atomic.Uint64 // seeds handed out

	mu                            sync.Mutex
	ran, steps, requests, crashes int // guarded by mu, and so is all below
	states                        map[uint64]struct{}
	failed                        bool
	elapsed, processor            time.Duration
}

// least returns the number of seeds that are run in any case.
func (c *campaign) least() int {
	if *firstFlag != 0 || *seedsFlag != 0 && *seedsFlag < sameSeeds+daySeeds {
		return 1
	}
	return scaled(sameSeeds + daySeeds)
}

// seedOf returns the nth seed of the campaign.
func (c *campaign) seedOf(n uint64) uint64 {
	same := uint64(scaled(sameSeeds))
	switch {
	case *firstFlag != 0:
		return *firstFlag + n
	case n < same:
		return n + 1
	}
	return c.today + n - same
}

func (c *campaign) run() {
	began, busy := time.Now(), processorTime()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				n := c.next.Add(1) - 1
				isLate := *durationFlag > 0 && time.Since(began) > *durationFlag && n >= uint64(c.least())
				if isLate || *seedsFlag > 0 && n >= *seedsFlag {
					return
				}
				if !c.seed(c.seedOf(n)) {
					return
				}
			}
		})
	}
	workers.Wait()
	c.elapsed, c.processor = time.Since(began), processorTime()-busy
}

// seed runs one seed, and reports whether more are to be run.
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

// String returns the figures of a campaign.
func (c *campaign) String() string {
	n := float64(c.ran)
	text := fmt.Sprintf("%d seeds, the day's begin with %d (-sim.first, -sim.seeds, -sim.duration, -sim.steps): %.0f schedules/s, %.0f per second of a processor; "+
		"a schedule has %.1f steps and %.1f requests; %d crashes", c.ran, c.today, n/c.elapsed.Seconds(), n/c.processor.Seconds(),
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
