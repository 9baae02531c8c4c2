// Package testing is the parent of what tests have in common; it has no code. Nothing below it
// is part of a binary that users run.
//
// # The kit
//
//   - eventually waits for what other goroutines or processes do.
//   - controlplane builds coppice and runs it as a process, for test/e2e and test/containers.
//   - transcript keeps what a process or a logger writes, for tests that read it meanwhile.
//   - freeport finds ports for processes that a test starts.
//   - fakewatch makes the fake of client-go watch as a server does.
//   - histories checks state machines against random histories.
//   - census makes inventories with the shape of a large cluster, for benchmarks.
//   - subsets writes the subsets of Endpoints as tests compare them.
//   - accesspolicy is a policy in memory, for tests of authorization.
//   - A node whose pods behave as a test wants is the simulated runtime of the product
//     (annotations simulated.coppice.dev/…). The kubelet of test/e2e (kubelet_test.go) is for
//     what that agent never does: it binds without a scheduler, counts how many pods are ready
//     at any moment, and never makes those of some images ready.
//
// # API servers in memory
//
// There are several. They differ in what they are asked: one for all would have the parts of
// all, and be harder to trust than each.
//
//   - apimodel executes a request when it is called, with faults and hooks before it, and holds
//     what the collector needs: metadata and one revision. The collector's own tests use it.
//   - simulation splits a request, its execution and its answer into steps, keeps every version
//     of every object for the oracle, and restores backups (see its doc.go).
//   - laggingcache holds whole typed objects, which workload controllers read and apimodel does not
//     have, and caches that are behind by as much as the test lets them be.
//   - internal/collect/feed's tests serve HTTP: discovery, lists, watches and bookmarks as bytes, and
//     no rules of deletion.
//   - wireserver serves HTTP too, with a history, so that watches continue, and backups are restored;
//     no rules of deletion. It is for many clusters in one process.
//   - internal/collect/namespaces' tests put the contents of namespaces beside the fake of client-go,
//     with types that come and go in the middle of a sync.
//   - internal/apiserver/deleteflow's tests have a storage of one object, in which another
//     client can come before each write.
//   - internal/rules/verdict's tests (model*_test.go) are no server but an oracle: the rules, stated
//     slowly over maps.
//
// # Oracles
//
// An oracle shares types with the code that it judges, and no decision, down to what a finalizer
// or a blocking reference means. The rules are therefore stated more than once, on purpose:
// in internal/rules/verdict, in its tests, in simulation/rules.go, and, for the delete flow, in
// test/differential/promise_test.go. What two of them had in common, a fault of it would be a
// fault of both.
package testing
