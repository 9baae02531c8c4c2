package conformance

import "github.com/coppice-dev/coppice/internal/cli/conformance/probe"

// Differences returns the differences that docs/semantics.md declares and checks observe on upstream's servers.
func Differences() []probe.Difference {
	return []probe.Difference{
		anyVersionIsTheOwner(), cyclesAreCut(), nothingIsMissed(), claimsAreSharedByAll(),
		firstDeleteRemoves(), createsAreNeverLate(), repeatedDeletesAddNothing(), statusHasTheVersion(), graceIsZero(),
		accessGoesLast(), conditionsAreWritten(), timesAreOfStatus(),
	}
}

func anyVersionIsTheOwner() probe.Difference {
	return probe.Difference{
		Of: probe.Controllers, Rules: "R1 L1",
		Ours:     "A reference that names a version that is not served, of a kind that is, is treated like any other (R1).",
		Upstream: "it keeps the dependent, and retries for ever",
	}
}

func cyclesAreCut() probe.Difference {
	return probe.Difference{
		Of: probe.Controllers, Rules: "R10 L2",
		Ours:     "Cycles are strongly connected components, of any length (R10).",
		Upstream: "it looks at direct neighbours: objects that block each other, all in foreground deletion, hang",
	}
}

func nothingIsMissed() probe.Difference {
	return probe.Difference{
		Of: probe.Controllers, Rules: "R15 R13 R14 S2 S3",
		Ours:     "A foreground or orphan deletion is held until reads that began after it prove that no dependent was missed (R15).",
		Upstream: "it relies on its watches, and misses dependents that were created a moment ago",
	}
}

func claimsAreSharedByAll() probe.Difference {
	return probe.Difference{
		Of: probe.Controllers, Rules: "R7 L5",
		Ours:     "A claim is verified once for all dependents that make it, however many there are, and many claims of one object with one list (R7).",
		Upstream: "it reads absent owners one by one, and cascades of others wait",
	}
}

func firstDeleteRemoves() probe.Difference {
	return probe.Difference{
		Of: probe.APIServer, Rules: "R18",
		Ours:     "A namespace that nothing holds is removed by its first DELETE (R18).",
		Upstream: "the second DELETE removes it",
	}
}

func createsAreNeverLate() probe.Difference {
	return probe.Difference{
		Of: probe.APIServer, Rules: "R21 S8",
		Ours:     "The refusal is decided in the transaction that would create the object, so none is left behind in a namespace that is gone.",
		Upstream: "a create that has passed admission may be late",
	}
}

func repeatedDeletesAddNothing() probe.Difference {
	return probe.Difference{
		Of: probe.APIServer, Rules: "R19",
		Ours:     "A repeated DELETE adds no finalizer; background is the only policy that one can fully change to; orphan is refused (R19).",
		Upstream: "a repeated DELETE puts the other finalizer in place",
	}
}

func statusHasTheVersion() probe.Difference {
	return probe.Difference{
		Of: probe.APIServer, Rules: "R20",
		Ours:     "The Status of a DELETE has the resourceVersion of the deletion (R20).",
		Upstream: "versions before 1.38 leave it out",
	}
}

func graceIsZero() probe.Difference {
	return probe.Difference{
		Of: probe.APIServer, Rules: "R18",
		Ours:     "A terminating namespace has `deletionGracePeriodSeconds: 0` too (R18).",
		Upstream: "it leaves that out",
	}
}

func accessGoesLast() probe.Difference {
	return probe.Difference{
		Of: probe.Controllers, Rules: "R22",
		Ours:     "RBAC and NetworkPolicies are deleted last (R22).",
		Upstream: "it deletes all kinds but pods in any order",
	}
}

func conditionsAreWritten() probe.Difference {
	return probe.Difference{
		Of: probe.Controllers, Rules: "R22",
		Ours:     "Conditions are written while pods hold a namespace, too (R22).",
		Upstream: "it can stay silent",
	}
}

func timesAreOfStatus() probe.Difference {
	return probe.Difference{
		Of: probe.Controllers, Rules: "R22",
		Ours:     "`lastTransitionTime` of a namespace condition changes with its status only.",
		Upstream: "it changes with every message",
	}
}
