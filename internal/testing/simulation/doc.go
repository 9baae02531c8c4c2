// Package simulation runs the real collector against a model of an API server,
// under a scheduler that owns the order of everything.
//
// How a schedule runs. A [Schedule] is a list of steps. A step is one thing that
// happens in the world: a user writes, a watch event arrives, a worker takes a
// key, a request is carried out, its answer arrives or is lost, the collector
// crashes. The collector is the real one, with the real graph and the real rules.
// Only its surroundings are replaced: the API (the requests end in server.go), the
// queue (queue.go), and the feed (stream.go). Collect runs as a coroutine that
// stops at every request (worker.go), so several workers can be in the middle of
// something while the world goes on. Nothing runs at the same time as anything
// else and nobody reads a clock, so a schedule is the same history every time.
//
// When the steps are over the world comes to rest: faults end, everything is
// delivered, all keys are worked off in a fair order (rest.go).
//
// What is checked. After each write of the collector, oracle.go compares it with
// the history of the server: S1 to S7 of docs/semantics.md's invariants, and the
// rules that writes must obey. At rest it is checked that nothing is left undone
// (L1, L2), that the graph is what the server holds (S9), and that no request is
// sent any more (L4). The oracle knows nothing of graph and verdict: rules.go
// states the rules once more, slowly and obviously, over the server's own objects.
//
// Where schedules come from. [Random] makes one from a seed (generate.go): the
// seed picks a profile first, so that schedules differ in kind, not only in detail.
// [Graphs] enumerates all small ownership graphs for the exhaustive search, one for all
// of which it can be shown that they go the same way (isPlain in graphs.go), and
// standstill (restart.go) follows what comes after a crash once for each state that a
// crash can leave.
// testdata/traces holds schedules that found something, to be run for ever.
//
// How to replay a seed. A violation is reported with its seed and with the
// schedule, shrunk to what is needed (shrink.go), in text that [Parse] reads:
//
//	go test ./internal/testing/simulation -run TestSeeds -sim.seed=4711 -v
//	go test ./internal/testing/simulation -run TestSeeds -sim.trace=found.trace -v
//
// print the history line by line. Steps that do not apply when their turn comes,
// because an earlier one was taken out, are passed over; that is what makes
// shrinking simple.
//
// What it does not do: the HTTP client, discovery and Reflectors, and the real
// queue's back-off are tested with their packages.
package simulation
