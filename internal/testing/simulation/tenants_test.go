package simulation

import (
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// TestTenants is S6: actions of users in one namespace, including wrong references to the other
// one, do not change the remaining objects in the other.
func TestTenants(t *testing.T) {
	differences, compared := 0, 0
	for seed := uint64(1); compared < scaled(2000) && differences < 3; seed++ {
		both, alone := tenants(Random(t.Context(), seed, DefaultSteps, Options{}).Schedule)
		if len(both.Steps) == len(alone.Steps) {
			continue // there are none in the other namespace
		}
		compared++
		got, want := inNamespace("b", Run(t.Context(), both, Options{Left: true}).Left), inNamespace("b", Run(t.Context(), alone, Options{Left: true}).Left)
		if got != want {
			differences++
			s := &shrinker{best: both, fails: func(s Schedule) (Schedule, bool) {
				_, alone := tenants(s)
				return s, inNamespace("b", Run(t.Context(), s, Options{Left: true}).Left) != inNamespace("b", Run(t.Context(), alone, Options{Left: true}).Left)
			}}
			t.Errorf("seed %d: with namespace a, b is left with\n%s\nand without with\n%s\nshrunk:\n%s", seed, got, want, s.shrink())
		}
	}
	t.Logf("%d schedules compared", compared)
}

// tenants makes two schedules of one: with and without the steps in namespace a. Cluster-scoped
// objects are left out, because both namespaces share them. The collector is idle before each step
// in b, so the order does not matter.
func tenants(s Schedule) (both, alone Schedule) {
	both.Settings, alone.Settings = s.Settings, s.Settings
	for _, step := range s.Steps {
		// The removal of a UID answers all claims on it, including those on a kind that is not
		// served (R6): these would be parked otherwise.
		step.Owners = slices.DeleteFunc(slices.Clone(step.Owners), func(r ownership.Reference) bool { return r.Kind == ghost })
		switch {
		case step.Op.isUser() && step.Ref.Namespace == "a":
			both.Steps = append(both.Steps, step)
		case step.Op.isUser() && step.Ref.Namespace == "b":
			both.Steps = append(both.Steps, Step{Op: Settle}, step)
			alone.Steps = append(alone.Steps, Step{Op: Settle}, step)
		case slices.Contains([]Op{Collect, Answer, Execute, Lose, Deliver, Work, Relist, Settle}, step.Op):
			both.Steps = append(both.Steps, step)
			alone.Steps = append(alone.Steps, step)
		}
	}
	return both, alone
}

func inNamespace(namespace, left string) string {
	var lines []string
	for line := range strings.SplitSeq(left, ", ") {
		if strings.HasPrefix(line, namespace+"/") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
