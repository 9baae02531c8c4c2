package answer

import (
	"context"
	"fmt"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// nodes reads nodes, and counts the rounds in which it is asked.
type nodes struct{ rounds int }

func (n *nodes) Read(_ context.Context, needs inventory.Needs, facts *inventory.Facts) {
	n.rounds++
	for name := range needs.Nodes {
		facts.Nodes[name] = inventory.Fact[inventory.Node]{Value: inventory.Node{NodeState: builtin.NodeState{Exists: true}}}
	}
}

// Each answer raises the next question: a decision about a chain of nodes knows a node more in each round.
func TestNeedsAreReadInRounds(t *testing.T) {
	for length, want := range map[int]int{0: 0, 1: 1, 5: 5, mostRounds: mostRounds, 1000: mostRounds} {
		facts, reader := inventory.NewFacts(), &nodes{}
		known := decide(t.Context(), reader, facts, func() int {
			for n := range length {
				if facts.Node(fmt.Sprint(n)).Unread != "" {
					return n
				}
			}
			return length
		})
		if known != want || reader.rounds != want {
			t.Errorf("a chain of %d: %d nodes known after %d rounds, want %d", length, known, reader.rounds, want)
		}
	}
}

// A fact that cannot be read is a fact: it is not asked for again.
func TestUnreadFactsAreNotReadAgain(t *testing.T) {
	facts, reader := inventory.NewFacts(), &refusing{}
	why := decide(t.Context(), reader, facts, func() string { return facts.Node("n").Unread })
	if why != "forbidden" || reader.rounds != 1 {
		t.Errorf("the node is unread for %q after %d rounds", why, reader.rounds)
	}
}

type refusing struct{ rounds int }

func (r *refusing) Read(_ context.Context, needs inventory.Needs, facts *inventory.Facts) {
	r.rounds++
	for name := range needs.Nodes {
		facts.Nodes[name] = inventory.Fact[inventory.Node]{Unread: "forbidden"}
	}
}
