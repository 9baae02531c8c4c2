// Package simulation runs the real collector against a model of an API server, under a scheduler
// that decides the order of all steps.
//
// # How a schedule runs
//
// A [Schedule] is a list of steps. A step is one event in the cluster: a user writes, a watch event
// arrives, a worker takes a key, a request is executed, its answer arrives or is lost, the
// collector crashes. The collector is the real one, with the real graph and the real rules. Only
// its surroundings are replaced: the API (requests end in server.go), the queue (queue.go), and the
// feed (stream.go). Collect runs as a coroutine that stops at every request (worker.go), so that
// several workers can wait for answers while other steps are taken. No two steps run at the same
// time, and the clock advances only when a back-off ends, so a schedule always runs the same way.
//
// After the steps the cluster comes to rest: faults end, all events are delivered, all keys are
// processed in a fair order (rest.go).
//
// # What is checked
//
// After each write of the collector, oracle.go checks it against all objects of the server: the
// invariants S1 to S5 and S7 in docs/semantics.md, and the rules for writes. At rest no work may be left
// (L1, L2), the graph must match the server's objects (S9), and no more requests may be sent (L4).
// The oracle shares no decision with the collector: rules.go states the rules a second time, slowly
// and obviously, over the server's own objects, including the meaning of finalizers and blocking
// references. Only the types of internal/rules/ownership and internal/rules/verdict are shared.
//
// # Where schedules come from
//
// [Random] makes a schedule from a seed (generate.go): the seed picks a profile first, so that
// schedules differ in kind, not only in detail. TestSeeds runs the same first seeds every time, and
// then seeds of the day. [Graphs] enumerates all small ownership graphs for the exhaustive search,
// one of each set of provably equivalent graphs (isPlain in graphs.go). standstill (restart.go)
// identifies each state that a crash can leave, so that each is followed only once. testdata/traces
// holds schedules that found bugs, as regression tests; testdata/mutants holds planted bugs that
// random schedules must find.
//
// This package generates and shrinks schedules itself. pgregory.net/rapid, which other tests use
// for random histories, does not fit. Here the generator chooses the next step from the state of
// the cluster, so that most steps apply. A run is replayed from a readable text, which stays valid
// when the generator changes. A schedule is shrunk by removing steps, because steps that do not
// apply are skipped. rapid shrinks the bit stream of its generator: removing one step changes the
// meaning of all later ones.
//
// # Why this server is not apimodel's
//
// apimodel executes a request when it is called. Here a request, its execution and its answer are
// three steps, other steps can come between them, every version of every object is kept for the
// oracle, and a backup can be restored at any step.
//
// # How to replay a seed
//
// A violation is reported with its seed and with the shrunk schedule (shrink.go), as a text that
// [Parse] reads:
//
//	go test ./internal/testing/simulation -run TestSeeds -sim.seed=4711 -v
//	go test ./internal/testing/simulation -run TestSeeds -sim.trace=found.trace -v
//
// print the history line by line.
//
// The HTTP client, discovery and Reflectors, and the real queue's back-off are not part of
// the simulation; they are tested with their packages.
package simulation
