package coppicetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/coppicetest"
)

// A suite has one plane for each test, or one for all with Reset between them.
func ExampleStart() {
	_ = func(t *testing.T) {
		plane := coppicetest.Start(t, coppicetest.WithCRDs("testdata/crds"))
		runOperator(t, plane.Kubeconfig)
		widget := createWidget(t, plane.Kubeconfig)

		plane.See(t) // who owns what, before it goes
		deleteWidget(t, plane.Kubeconfig)

		plane.Gone(t, widget)
		plane.NoLeaks(t)
	}
}

// Tests that run in parallel have planes of their own, which earlier tests have used.
func ExampleShared() {
	_ = func(t *testing.T) {
		t.Parallel()
		plane := coppicetest.Shared(t, coppicetest.WithCRDs("testdata/crds"))
		runOperator(t, plane.Kubeconfig)
		widget := createWidget(t, plane.Kubeconfig)
		deleteWidget(t, plane.Kubeconfig)
		plane.Gone(t, widget)
	}
}

// A TestMain has no test: it opens a plane, and closes it.
func ExampleOpen() {
	_ = func(m *testing.M) (int, error) {
		plane, err := coppicetest.Open(context.Background(), coppicetest.WithNodes(3))
		if err != nil {
			return 1, err
		}
		return m.Run(), plane.Close()
	}
}

// A suite on envtest keeps its way of starting, and gets a collector.
func ExampleAttach() {
	_ = func(t *testing.T, kubeconfigOfEnvtest string) {
		plane := coppicetest.Attach(t, kubeconfigOfEnvtest)
		widget := createWidget(t, kubeconfigOfEnvtest)
		deleteWidget(t, kubeconfigOfEnvtest)
		plane.Gone(t, widget)
	}
}

// A pod that ignores TERM is killed after its grace period, which takes no time here.
func ExamplePlane_Advance() {
	_ = func(t *testing.T) {
		plane := coppicetest.Start(t, coppicetest.WithNodes(1), coppicetest.WithMovableClock())
		pod := createWidget(t, plane.Kubeconfig)
		deleteWidget(t, plane.Kubeconfig)
		plane.Settled(t) // the pod is held for its grace period
		plane.Advance(t, 30*time.Second)
		plane.Gone(t, pod)
	}
}

// The following types stand for a user's operator and client.

func runOperator(*testing.T, string) {}

func createWidget(*testing.T, string) any { return nil }

func deleteWidget(*testing.T, string) {}
