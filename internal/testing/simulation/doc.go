// Package simulation runs the real collector against a model of an API server,
// under a scheduler that owns the order of everything.
//
// # How a schedule runs
//
// A [Schedule] is a list of steps. A step is one thing that happens in the cluster: a user
// writes, a watch event arrives, a worker takes a key, a request is executed, its answer
// arrives or is lost, the collector crashes. The collector is the real one, with the real
// graph and the real rules. Only its surroundings are replaced: the API (requests end in
// server.go), the queue (queue.go), and the feed (stream.go). Collect runs as a coroutine
// that stops at every request (worker.go), so that several workers can be in the middle of
// something while other steps are taken. Nothing runs at the same time as anything else and
// nothing reads a clock, so a schedule always runs the same way.
//
// When the steps are over the cluster comes to rest: faults end, everything is delivered,
// all keys are worked off in a fair order (rest.go).
//
// # What is checked
//
// After each write of the collector, oracle.go compares it with all that the server has
// stored: S1 to S7 of the invariants in docs/semantics.md, and the rules that writes must
// obey. At rest nothing may be left undone (L1, L2), the graph must be what the server holds
// (S9), and no more requests may be sent (L4). The oracle shares no decision with the
// collector: rules.go states the rules a second time, slowly and obviously, over the
// server's own objects, down to what a finalizer and a blocking reference mean. Only the
// types of internal/rules/ownership and internal/rules/verdict are shared.
//
// # Where schedules come from
//
// [Random] makes one from a seed (generate.go): the seed picks a profile first, so that
// schedules differ in kind, not only in detail. TestSeeds runs the same first seeds every
// time, and then seeds of the day. [Graphs] enumerates all small ownership graphs for the
// exhaustive search, one for all of which it can be shown that they go the same way (isPlain
// in graphs.go), and standstill (restart.go) follows what comes after a crash once for each
// state that a crash can leave. testdata/traces holds schedules that found something, to be
// run for ever; testdata/mutants holds planted bugs that random schedules must find.
//
// Generating and shrinking is done here and not by pgregory.net/rapid, which other tests
// use for random histories. The next step is chosen by looking at the cluster, so that most
// steps apply; a run is replayed from a text that a person can read and change, and that
// stays valid when the generator does not; and a schedule is shrunk by taking out steps,
// which is possible because steps that do not apply are passed over. rapid shrinks the bit
// stream that its generator read: to take one step out changes the meaning of all that
// follow.
//
// # Why this server is not apimodel's
//
// apimodel executes a request when it is called. Here a request, its execution and its
// answer are three steps with others in between, every version of every object is kept for
// the oracle, and a backup can be restored in the middle.
//
// # How to replay a seed
//
// A violation is reported with its seed and with the schedule, shrunk to what is needed
// (shrink.go), in text that [Parse] reads:
//
//	go test ./internal/testing/simulation -run TestSeeds -sim.seed=4711 -v
//	go test ./internal/testing/simulation -run TestSeeds -sim.trace=found.trace -v
//
// print the history line by line.
//
// The HTTP client, discovery and Reflectors, and the real queue's back-off are not part of
// the simulation; they are tested with their packages.
package simulation
