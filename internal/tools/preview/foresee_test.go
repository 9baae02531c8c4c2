package preview_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// counting is a judge that permits everything, and counts its decisions.
type counting struct{ decisions int }

func (c *counting) Decide(preview.Review) preview.Judgement {
	c.decisions++
	return preview.Judgement{}
}

// The facts about the contents of a namespace are asked for before the simulation: it begins once, with all of them.
func TestFactsOfANamespaceAreForeseen(t *testing.T) {
	inv := cluster(t, "Namespace shop", "Node n1", "Pod p @ n1", "Pod q @ gone", "ConfigMap a always")
	known, facts, judge := judgedFacts(inv, nil), inventory.NewFacts(), &counting{}
	p := preview.NewPredictor(inv, facts, preview.Question{Requests: requests("Background", "shop"), Now: now(), Judge: judge})
	round := func(what string) inventory.Needs {
		p.Predict()
		if judge.decisions > 0 {
			t.Errorf("without %s, the simulation has begun", what)
		}
		return facts.Needs()
	}
	needs := round("policies and nodes")
	if !needs.Policies || !needs.Webhooks || !needs.RepeatedReplaces || !needs.Nodes["n1"] || len(needs.Nodes) != 1 || len(needs.Protections) != 1 {
		t.Errorf("needs first %+v", needs)
	}
	facts.Policies, facts.Webhooks, facts.RepeatedReplaces = known.Policies, known.Webhooks, &inventory.Fact[bool]{}
	facts.Nodes["n1"] = inventory.Fact[inventory.Node]{Value: inventory.Node{NodeState: builtin.NodeState{Exists: true, Ready: true}}}
	facts.Protections["a"] = inventory.Fact[inventory.Protection]{Value: inventory.Protection{Protection: protection.New(string(protection.Unused), ""), Enforced: true}}
	needs = round("bodies")
	if bodies := slices.Sorted(maps.Keys(needs.Bodies)); !needs.Deleters || !slices.Equal(bodies, []ownership.UID{"a", "p", "q", "shop"}) {
		t.Errorf("needs %q then, and deleters: %t", bodies, needs.Deleters)
	}
	facts.Deleters, facts.Bodies = known.Deleters, known.Bodies
	predicted := p.Predict()
	if needs = facts.Needs(); !needs.IsEmpty() || len(predicted.Outcomes) != 4 || judge.decisions == 0 {
		t.Errorf("%d outcomes, %d decisions, needs %+v", len(predicted.Outcomes), judge.decisions, needs)
	}
}
