// Package testing is the parent of the packages that tests share; it has no code. No package below it
// is part of a released binary.
//
// # The kit
//
//   - eventually waits for other goroutines or processes.
//   - controlplane builds coppice and runs it as a process, for test/e2e and test/containers.
//   - transcript keeps the output of a process or a logger, for tests that read it meanwhile.
//   - freeport finds ports for processes that a test starts.
//   - pipes connects a client and a server in memory, without any buffer.
//   - etcdcluster runs etcd clusters with sockets, whose members a test stops and restarts.
//   - fakewatch makes the fake of client-go watch as a server does.
//   - histories checks state machines against random histories.
//   - census makes inventories with the shape of a large cluster, for benchmarks.
//   - accesspolicy is a policy in memory, for tests of authorization.
//   - variation makes requests about whole objects of any kind, with each field changed, right and wrong; difference
//     compares the outcomes on two sides, with the declared and the recorded differences. test/differential sends the
//     requests to two servers, test/upstream calls two registries.
//   - For nodes whose pods behave as a test wants, tests use the product's simulated runtime
//     (annotations simulated.coppice.dev/…). The kubelet of test/e2e (kubelet_test.go) has other
//     functions: it binds without a scheduler, counts the ready pods at any moment, and never makes
//     pods of some images ready.
//
// # API servers in memory
//
// There are several, for different tests. A single one would need the parts of all, and be harder to
// trust than each.
//
//   - apimodel executes a request when it is called, with faults and hooks before it, and holds the
//     data that the collector needs: metadata and one revision. The collector's own tests use it.
//   - simulation splits a request, its execution and its answer into steps, keeps every version
//     of every object for the oracle, and restores backups (see its doc.go).
//   - laggingcache holds whole typed objects, which workload controllers read and apimodel does not
//     have, and caches whose lag the test controls.
//   - memorystore is below registries, as a storage of k8s.io/apiserver without watches.
//   - internal/collect/feed's tests serve HTTP: discovery, lists, watches and bookmarks as bytes, and
//     no rules of deletion.
//   - wireserver serves HTTP too, with a history, so that watches continue, and backups are restored;
//     no rules of deletion. It is for many clusters in one process.
//   - internal/collect/namespaces' tests put the contents of namespaces beside the fake of client-go,
//     with types that come and go in the middle of a sync.
//   - internal/apiserver/deleteflow's tests have a storage of one object, in which another client can
//     write before each write.
//   - internal/rules/verdict's tests (model*_test.go) are not a server but an oracle: the rules,
//     stated slowly over maps.
//
// # Oracles
//
// An oracle shares types with the code that it checks, but no decision, not even the meaning of a
// finalizer or a blocking reference. The rules are therefore stated more than once, on purpose: in
// internal/rules/verdict, in its tests, in simulation/rules.go, and, for the delete flow, in
// test/differential/promise_test.go. If two of them shared code, a bug in it would be a bug of both.
package testing
