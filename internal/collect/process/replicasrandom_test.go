package process_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/wireserver"
)

var (
	replicasSeed  = flag.Uint64("replicas.seed", 0, "the trace of TestRandomReplicas with this seed only")
	replicasSeeds = flag.Uint64("replicas.seeds", 30, "how many traces TestRandomReplicas plays")
)

// trace is a random sequence of changes of a server and two replicas.
type trace struct {
	t        *testing.T
	random   *rand.Rand
	plane    *plane
	replicas []*replica
	made     int // families and replicas
	terms    int // how often another replica led than before
	leader   *replica
	restore  func()
	log      []string
}

// away returns the replicas that do not reach the server.
func (h *trace) away() (away []*replica) {
	for _, r := range h.replicas {
		r.mu.Lock()
		if r.away {
			away = append(away, r)
		}
		r.mu.Unlock()
	}
	return away
}

// write makes a random change of the server, and describes it.
func (h *trace) write() string {
	owners := h.plane.UIDs("configmaps")
	switch n := h.random.IntN(10); {
	case n < 3:
		h.made++
		h.plane.family(types.UID(fmt.Sprint("f", h.made)), 1+h.random.IntN(3))
		return fmt.Sprint("family f", h.made)
	case n < 6 && len(owners) > 0:
		owner := owners[h.random.IntN(len(owners))]
		h.plane.Remove("configmaps", owner)
		return "remove " + string(owner)
	case n == 6 && len(owners) > 1:
		h.made++
		name := fmt.Sprint("s", h.made)
		h.plane.Put("secrets", wireserver.Owned(name, types.UID(name), owners[0], owners[len(owners)-1]))
		return "shared " + name
	case n == 7:
		h.plane.Compact()
		return "compact"
	case n == 8:
		h.restore = h.plane.Backup()
		return "backup"
	case n == 9 && h.restore != nil && len(h.away()) == 0:
		h.restore()
		h.restore = nil
		advance(3 * time.Second) // further writes before the watches are back would hide that the revision was lower
		return "restore"
	}
	return "nothing"
}

// disturb stops, kills, separates or reconnects a random replica. A replica that has ended is replaced at once.
func (h *trace) disturb() string {
	i := h.random.IntN(len(h.replicas))
	r := h.replicas[i]
	switch h.random.IntN(5) {
	case 0:
		r.setAway(false)
		r.stop(h.t)
		h.replace(i)
		return "stop " + r.name
	case 1:
		r.kill()
		h.replace(i)
		return "kill " + r.name
	case 2, 3:
		r.setAway(true)
		return "separate " + r.name
	}
	for _, r := range h.away() {
		r.setAway(false)
	}
	return "reconnect"
}

func (h *trace) replace(i int) {
	h.made++
	h.replicas[i] = h.plane.start(h.t, fmt.Sprint("r", h.made))
}

func (h *trace) note(wait time.Duration, what string) {
	h.log = append(h.log, fmt.Sprintf("%v %s", wait, what))
	h.plane.mu.Lock()
	now := h.plane.holder
	h.plane.mu.Unlock()
	if now != nil && now != h.leader {
		h.leader = now
		h.terms++
	}
}

func (h *trace) play() {
	h.replicas = make([]*replica, 2)
	for i := range h.replicas {
		h.replace(i)
	}
	for range 60 {
		wait := time.Duration(h.random.IntN(20_000)) * time.Millisecond
		if h.random.IntN(4) == 0 {
			h.note(wait, h.disturb())
		} else {
			h.note(wait, h.write())
		}
		advance(wait)
	}
	for _, r := range h.away() {
		r.setAway(false)
	}
	advance(2 * time.Minute)
	for _, r := range h.replicas {
		r.stop(h.t)
	}
}

// Two replicas lead in turn, while they die, lose the server, and the server is put back in time: no object with an
// existing owner is deleted, nobody writes without the Lease, and at rest no object is left whose owners are all absent.
func TestRandomReplicas(t *testing.T) {
	first, last := uint64(1), *replicasSeeds
	if *replicasSeed != 0 {
		first, last = *replicasSeed, *replicasSeed
	}
	terms := 0
	for seed := first; seed <= last; seed++ {
		synctest.Test(t, func(t *testing.T) {
			h := &trace{t: t, random: rand.New(rand.NewPCG(seed, 0)), plane: newPlane()}
			h.play()
			terms += h.terms
			wrong := slices.Concat(h.plane.Wrong(), h.plane.wrong)
			if garbage := h.plane.Garbage("secrets"); len(wrong) > 0 || len(garbage) > 0 || t.Failed() {
				t.Fatalf("seed %d (-replicas.seed): wrong writes %v, garbage that stays %v, %d terms\n%s",
					seed, wrong, garbage, h.terms, strings.Join(h.log, "\n"))
			}
		})
	}
	if t.Logf("%d terms", terms); terms < 2 {
		t.Error("nobody took over")
	}
}
