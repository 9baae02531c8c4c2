package collector_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/testing/wireserver"
)

var (
	sleepSeed  = flag.Uint64("sleep.seed", 0, "the history of TestRandomSleep with this seed only")
	sleepSeeds = flag.Uint64("sleep.seeds", 30, "how many histories TestRandomSleep plays")
)

// step makes a random change of a server, and describes it.
func step(random *rand.Rand, s *wireserver.Server, p *collector.Pool, next *int, restore *func()) string {
	owners := s.UIDs("configmaps")
	switch n := random.IntN(12); {
	case n < 3:
		*next++
		family(s, types.UID(fmt.Sprint("f", *next)), 1+random.IntN(3))
		return "family"
	case n < 6 && len(owners) > 0:
		owner := owners[random.IntN(len(owners))]
		s.Remove("configmaps", owner)
		return "remove " + string(owner)
	case n < 7 && len(owners) > 1:
		*next++
		name := fmt.Sprint("s", *next)
		s.Put("secrets", wireserver.Owned(name, types.UID(name), owners[0], owners[len(owners)-1]))
		return "shared " + name
	case n == 7:
		s.Tick()
		return "tick"
	case n == 8:
		s.Compact()
		return "compact"
	case n == 9:
		p.Wake("c")
		return "wake"
	case n == 10:
		*restore = s.Backup()
		return "backup"
	case n == 11 && *restore != nil:
		(*restore)()
		*restore = nil
		advance(3 * time.Second) // writes before a probe hide that the revision was lower
		return "restore"
	}
	return "nothing"
}

// Random changes while a cluster sleeps, wakes and sleeps again: no object with an existing owner is deleted, and at
// rest no object is left whose owners are all absent.
func TestRandomSleep(t *testing.T) {
	first, last := uint64(1), *sleepSeeds
	if *sleepSeed != 0 {
		first, last = *sleepSeed, *sleepSeed
	}
	for seed := first; seed <= last; seed++ {
		s, random := wireserver.New(kinds()...), rand.New(rand.NewPCG(seed, 0))
		var history []string
		slept := 0
		pooled(t, collector.PoolOptions{IdleAfter: 10 * time.Second}, map[string]*wireserver.Server{"c": s}, func(p *collector.Pool) {
			var restore func()
			next := 0
			advance(time.Second)
			for range 40 {
				wait := time.Duration(random.IntN(30_000)) * time.Millisecond
				history = append(history, fmt.Sprintf("%v %s", wait, step(random, s, p, &next, &restore)))
				advance(wait)
				if isAsleep(p, "c") {
					slept++
				}
			}
			advance(3 * time.Second) // until a probe has seen the last change
			asleep(t, p, "c")
		})
		if wrong, garbage := s.Wrong(), s.Garbage("secrets"); len(wrong) > 0 || len(garbage) > 0 || slept == 0 {
			t.Fatalf("seed %d (-sleep.seed): wrong deletions %v, garbage that stays %v, slept %d times\n%s",
				seed, wrong, garbage, slept, strings.Join(history, "\n"))
		}
	}
}
