// Package conformance holds black-box tests of garbage collection and of the deletion of
// namespaces: each creates objects on an API server, deletes some, and checks the others. Most are
// the checks of internal/cli/conformance, which coppice conformance runs as well (TestChecksOfTheCommandPass). The
// names of the tests carry the IDs of matrix.txt, which lists the test of every behaviour;
// behaviours that are not visible from outside are tested elsewhere.
//
// By default the server is our own, in this process. Two environment variables
// choose others:
//
//	COPPICE_CONFORMANCE_KUBECONFIG  a kubeconfig: the tests run against the server that it names.
//	COPPICE_CONFORMANCE_COLLECTOR   what collects there, and takes namespaces apart: library (the
//	                                default), our collector and our namespace controller, run in
//	                                this process; or none, whatever the server has already.
//
// There are two kinds of tests. The checks share one server and one collector, run at the same
// time, and work in namespaces of their own (shared). Tests that start, stop, or disturb a
// collector are only here; they run one after the other, on a server without another collector
// (quiet), or beside others on a server of their own, if they wait for long (apart).
package conformance

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

const (
	kubeconfigVariable = "COPPICE_CONFORMANCE_KUBECONFIG"
	collectorVariable  = "COPPICE_CONFORMANCE_COLLECTOR"
)

// patience is the time that a condition may take before the test fails; normally it takes a small
// part of it. Upstream's collector reads discovery twice a minute, and retries what failed after
// up to 1000 s.
const patience = eventually.Patience

func TestMain(m *testing.M) {
	// The servers in this process log a lot that does not help here.
	klog.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	eventually.SideBySide(32)
	code := m.Run()
	if missing := notRun(); code == 0 && len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "matrix.txt says that these are tested here, and no test with their ID has run to its end: %v\n", missing)
		code = 1
	}
	if err := stopServers(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the servers:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
