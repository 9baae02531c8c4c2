// Package coppicetest gives a test a Kubernetes-style control plane with real garbage collection, and
// reports the objects that the test left behind. It starts the binary coppice and needs only the
// standard library, so a module that requires it keeps its versions of k8s.io.
//
//	func TestOperator(t *testing.T) {
//		plane := coppicetest.Start(t, coppicetest.WithCRDs("../config/crd"))
//		config := restconfig.For(t, plane) // a rest.Config, from a module of its own
//		…
//		plane.Settled(t)      // collection has come to rest
//		plane.Gone(t, widget) // and this is gone; if not, the test says why
//		plane.NoLeaks(t)      // nothing is left that nobody will ever collect
//	}
//
// The course of a test:
//
//  1. Start finds the binary (binary.go), starts it on a free port of loopback with its data in a
//     temporary directory (process.go), applies the definitions (definitions.go), and returns a Plane.
//     Attach does the same for an existing server: it starts only the collector.
//  2. Settled, Gone, Deletions and Advance ask the process (settled.go, deletions.go, clock.go).
//  3. NoLeaks reads the metadata of all objects (objects.go) and hands them to package leaks, which
//     is pure.
//  4. At the end of the test the process is stopped. If the test has failed, its output lists the
//     collected objects and the reasons. If the test's process dies, the pipe to the control plane's
//     standard input closes, and the control plane stops.
package coppicetest
