// Package restconfig turns a plane of package coppicetest into a config of client-go. It is a module
// of its own: coppicetest requires nothing of k8s.io, and this requires no more than client-go.
package restconfig

import (
	"testing"

	"github.com/coppice-dev/coppice/coppicetest"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The rate of requests that envtest allows, too.
const (
	qps   = 1000
	burst = 2000
)

// For returns the administrator's config.
func For(t testing.TB, plane *coppicetest.Plane) *rest.Config {
	t.Helper()
	return load(t, plane.Kubeconfig)
}

// ForUser returns the config of a user who may do what RBAC grants to the name and the groups.
func ForUser(t testing.TB, plane *coppicetest.Plane, name string, groups ...string) *rest.Config {
	t.Helper()
	return load(t, plane.User(t, name, groups...))
}

func load(t testing.TB, kubeconfig string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatalf("read %s: %v", kubeconfig, err)
	}
	config.QPS, config.Burst = qps, burst
	return config
}
