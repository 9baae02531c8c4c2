// Package planted is an operator with bugs of stale caches and lost answers, each behind a flag, and a test that finds
// them with the faults of a real API server. Each bug is from a public report of an operator; bugs.go names the reports.
//
// The operator without a bug is correct under every fault of docs/faults.md. It shows what that takes: deterministic
// names, optimistic locks, preconditions of deletions, live reads before decisions that cannot be taken back, and errors
// that queue the object again.
package planted
