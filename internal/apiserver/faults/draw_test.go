package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func parsed(t *testing.T, text string) Plan {
	t.Helper()
	plan, err := ParsePlan(text)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func write(name string) Request {
	return Request{User: "admin", Client: "manager", Verb: "update", Resource: "deployments.apps", Namespace: "default", Name: name}
}

// The same seed and the same requests have the same faults, in whatever order the requests for different objects come.
func TestSameSeedSameFaults(t *testing.T) {
	const seed, objects, times = 42, 20, 50
	plan := parsed(t, fmt.Sprintf("seed=%d; harsh", seed))
	fates := func(shuffle uint64) map[string][]string {
		var requests []Request
		for i := range objects * times {
			r := write(fmt.Sprint(i % objects))
			if i%2 == 1 {
				r.Verb, r.Name = "watch", ""
			}
			requests = append(requests, r)
		}
		rand.New(rand.NewPCG(shuffle, 0)).Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
		draws, all := NewDraws(plan), map[string][]string{}
		for _, r := range requests {
			fate := draws.Next(r)
			lags := []time.Duration{fate.NextLag(), fate.NextLag()}
			fate.events = nil
			all[r.Verb+r.Name] = append(all[r.Verb+r.Name], fmt.Sprint(fate, lags))
		}
		return all
	}
	one, other := fates(1), fates(2)
	for key := range one {
		if !slices.Equal(one[key], other[key]) {
			t.Errorf("%s: %v and %v", key, one[key], other[key])
		}
	}
	plan.Seed++
	if maps.EqualFunc(one, fates(1), slices.Equal[[]string]) {
		t.Error("another seed has the same faults")
	}
}

// Rates are kept: of 20 000 requests with 5 % each, 5 standard deviations are 154.
func TestRates(t *testing.T) {
	draws, refused, lost := NewDraws(parsed(t, "seed=1; refused-write rate=5%; lost-answer rate=5%")), map[Refusal]int{}, map[Loss]int{}
	const requests = 20000
	for i := range requests {
		fate := draws.Next(write(fmt.Sprint(i % 100)))
		if fate.Refusal != "" && fate.Loss != "" {
			t.Fatal("the answer of a refused write is lost")
		}
		refused[fate.Refusal]++
		lost[fate.Loss]++
	}
	for name, without := range map[string]int{"refused": refused[""], "lost": lost[""]} {
		if with := requests - without; with < 1000-154 || with > 1000+154 {
			t.Errorf("%s: %d of %d", name, with, requests)
		}
	}
	if len(refused) != 4 || len(lost) != 3 {
		t.Errorf("%v %v: some kind does not occur", refused, lost)
	}
}

func TestSelection(t *testing.T) {
	const none, all = "rate=0", "rate=1"
	for _, c := range []struct {
		plan    string
		request Request
		want    bool
	}{
		{"lost-answer " + all, write("a"), true},
		{"lost-answer " + none, write("a"), false},
		{"lost-answer " + all + " resource=deployments.apps", write("a"), true},
		{"lost-answer " + all + " resource=deployments", write("a"), false},
		{"lost-answer " + all + " client=kube*", write("a"), false},
		{"lost-answer " + all + " user=admin client=manager", write("a"), true},
		{"lost-answer " + all + "; lost-answer " + none + " client=manager", write("a"), false},
		{"lost-answer " + none + " client=manager; lost-answer " + all, write("a"), true},
		{"lost-answer " + all, Request{Verb: "get", Resource: "pods"}, false},
		{"lost-answer " + all, Request{Verb: "watch", Resource: "pods"}, false},
		{"lost-answer " + all, Request{Verb: "create", Resource: "pods", Subresource: "exec"}, false},
		{"lost-answer " + all, Request{Verb: "create", Resource: "pods", Subresource: "eviction"}, true},
		{"lost-answer " + all, Request{Verb: "create", User: "system:coppice:scheduler", Own: true}, false},
		{"lost-answer user=system:coppice:* " + all, Request{Verb: "create", User: "system:coppice:scheduler", Own: true}, true},
		{"lost-answer user=system:coppice:* " + all + "; lost-answer rate=0", Request{Verb: "create", User: "system:coppice:scheduler", Own: true}, true},
		{"lost-answer user=system:coppice:collector " + all, Request{Verb: "create", User: "system:coppice:scheduler", Own: true}, false},
	} {
		if fate := NewDraws(parsed(t, c.plan)).Next(c.request); (fate.Loss != "") != c.want {
			t.Errorf("%s: %+v: %+v, want %v", c.plan, c.request, fate, c.want)
		}
	}
}

// The lags of a watch are in the range of the plan, and in a part of it that is its own.
func TestLags(t *testing.T) {
	draws := NewDraws(parsed(t, "seed=3; watch-lag delay=1s-9s; watch-end delay=10s-20s"))
	middles := map[time.Duration]bool{}
	for range 20 {
		fate := draws.Next(Request{Verb: "watch", Resource: "pods"})
		if fate.Lag.Most-fate.Lag.Least > 4*time.Second || fate.Lag.Least < time.Second || fate.Lag.Most > 9*time.Second {
			t.Errorf("a part of the range: %v", fate.Lag)
		}
		if fate.End < 10*time.Second || fate.End > 20*time.Second {
			t.Errorf("ends after %v", fate.End)
		}
		for range 100 {
			if lag := fate.NextLag(); lag < fate.Lag.Least || lag > fate.Lag.Most {
				t.Errorf("%v is not in %v", lag, fate.Lag)
			}
		}
		middles[fate.Lag.Least] = true
	}
	if len(middles) < 10 {
		t.Errorf("20 watches have %d parts", len(middles))
	}
}

// Draws keeps a bounded number of counts.
func TestCountsAreBounded(t *testing.T) {
	draws := NewDraws(parsed(t, "mild"))
	for i := range 3 * mostCounted {
		draws.Next(write(fmt.Sprint(i)))
		if len(draws.count) > mostCounted {
			t.Fatalf("%d counts", len(draws.count))
		}
	}
}
